"""Resolution: the numbers of a model on a board, the memory they take, and what does not fit."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from math import lcm
from typing import Any

import pytest

from generator import catalog
from generator.errors import ManifestError
from generator.geometry import Resolved, resolve
from generator.manifest import check, load
from generator.memory import interleaved, key_value_item
from generator.targets import Board, load_board
from generator.toml_source import scan
from tests.support.manifests import read

N150, P150 = (load_board(catalog.BUILT_IN, name) for name in ("n150", "p150"))
SHIPPED = [
    (name, board)
    for name in catalog.names(catalog.BUILT_IN)
    for board in (N150, P150)
    if board.name in load(catalog.BUILT_IN, name).manifest.target
]
LLAMA_8B = ("llama-3.1-8b", N150)


def refused(board: Board, *changes: tuple[str, str]) -> str:
    with pytest.raises(ManifestError) as caught:
        resolve(read(*changes), board)
    return str(caught.value)


def shipped(name: str, board: Board) -> Resolved:
    return resolve(load(catalog.BUILT_IN, name), board)


@pytest.mark.parametrize(("name", "board"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_every_shipped_model_fits_its_boards(name: str, board: Board) -> None:
    resolved = shipped(name, board)
    memory = resolved.memory
    assert memory.total <= memory.capacity, (memory.total, memory.capacity)
    assert resolved.module.isidentifier()
    aligned = lcm(resolved.block_size, resolved.attention_chunk)
    assert resolved.alignment == (resolved.context if resolved.attention_soft_cap else aligned)
    assert resolved.prefill_chunk == max(resolved.lengths) and resolved.prefill_chunk % resolved.alignment == 0


def test_derived_numbers_and_the_words_for_them() -> None:
    resolved = resolve(read(), N150)
    assert (resolved.head_dim, resolved.device_query_width, resolved.device_key_value_width) == (64, 576, 192)
    assert (resolved.device_query_key_value_width, resolved.context_blocks, resolved.alignment) == (960, 128, 128)
    assert resolved.attention_scale == 0.125
    assert resolved.derivations == {
        "head_dim": "576 hidden / 9 query heads",
        "device_query_width": "9 query heads x 64",
        "device_key_value_width": "3 key-value heads x 64",
        "device_query_key_value_width": "(9 query + 2 x 3 key-value heads) x 64",
        "attention_scale": "64 ** -0.5, exact in float32",
        "context_blocks": "4096 context / 32 block",
        "alignment": "lcm(32 block, 128 attention chunk)",
    }


def test_the_attention_scale_is_exactly_a_float32() -> None:
    resolved = resolve(read(("query_heads = 9", "query_heads = 9\nhead_dim = 128")), N150)
    assert resolved.attention_scale == 0.0883883461356163  # 128 ** -0.5 is 0.08838834764831845 in double precision
    assert resolved.derivations["attention_scale"] == "128 ** -0.5, rounded to float32"
    assert resolved.derivations["head_dim"] == "model.head_dim"


@pytest.mark.parametrize(
    ("head_dim", "style"),
    [(32, "half_split"), (64, "half_split"), (96, "interleaved"), (128, "half_split"), (160, "interleaved")],
)
def test_the_rotary_operation_follows_the_head_dim(head_dim: int, style: str) -> None:
    assert resolve(read(("query_heads = 9", f"query_heads = 9\nhead_dim = {head_dim}")), N150).rotary_style == style


def test_families_differ_in_biases_and_norms() -> None:
    models = {name: shipped(name, board) for name, board in SHIPPED}
    assert {one.family for one in models.values() if one.query_key_value_bias} == {"gpt_oss", "qwen2"}
    assert {one.family for one in models.values() if one.query_key_norm} == {
        "gemma3",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_moe",
    }
    assert {one.family for one in models.values() if one.experts} == {"gpt_oss", "mixtral", "qwen3_5_moe", "qwen3_moe"}


@pytest.mark.parametrize(("model", "board"), [("llama-3.1-8b", N150), ("qwen3-30b-a3b", P150)])
def test_every_resolved_number_names_the_manifest_keys_it_came_from(model: str, board: Board) -> None:
    file = load(catalog.BUILT_IN, model)
    resolved = resolve(file, board)
    elsewhere = {"board", "placement", "devices", "derivations", "keys", "memory", "digest"}
    assert {field.name for field in fields(Resolved)} - elsewhere <= set(resolved.keys)
    data: dict[str, Any] = file.manifest.model_dump()
    for keys in resolved.keys.values():
        for key in keys.split(", "):
            value: Any = data
            for part in key.split("."):
                value = value[part]  # raises KeyError for a key that no manifest has


def test_a_resolved_model_is_frozen_and_prints_as_json() -> None:
    resolved = resolve(read(), N150)
    with pytest.raises(FrozenInstanceError):
        resolved.hidden = 1  # type: ignore[misc]
    printed = json.loads(json.dumps(resolved.to_json(), allow_nan=False))
    assert printed["lengths"] == [128, 512, 1024] and printed["board"]["grid"] == [8, 8]
    assert set(printed) == {field.name for field in fields(Resolved)}


def test_the_digest_follows_the_numbers_and_nothing_else() -> None:
    digest = resolve(read(), N150).digest
    assert len(digest) == 16 and int(digest, 16) >= 0
    assert resolve(read(('source = "a test"', 'source = "elsewhere"')), N150).digest == digest
    assert resolve(read(), replace(N150, rates=replace(N150.rates, eager_launch_seconds=0.5))).digest == digest
    others = [
        resolve(read(change), N150).digest
        for change in (
            ("100000.0", "100001.0"),
            ("layers = 30", "layers = 29"),
            ('key_value = "bfloat16"', 'key_value = "bfloat8_b"'),
        )
    ]
    others.append(resolve(read(), replace(N150, l1_limit=N150.l1_limit - 1)).digest)
    assert len({digest, *others}) == 5


def test_weights_and_caches_take_what_the_library_allocates() -> None:
    """Bytes that ttnn 0.81.1 allocates on mock devices for the tensors of qwen2.5-7b, biases and norms included."""
    wormhole, blackhole = shipped("qwen2.5-7b", N150).memory, shipped("qwen2.5-7b", P150).memory
    assert (wormhole.weights, wormhole.rotary_tables, wormhole.key_value) == (8611478016, 16779264, 1996732416)
    assert (blackhole.weights, blackhole.rotary_tables, blackhole.key_value) == (14728526848, 16777216, 7985954816)
    small = [shipped("qwen2.5-7b", replace(board, trace_region_bytes=50_000_000)).memory for board in (N150, P150)]
    assert [memory.trace_region for memory in small] == [50036736, 50003968]


def test_every_bank_keeps_room_for_its_rounded_up_share() -> None:
    assert interleaved(N150, 524288, 2048) == 12 * 89479168  # the share that the library's out-of-memory message states
    assert interleaved(N150, 1, 2048) == 12 * 2048
    assert interleaved(P150, 8, 72) == 8 * 128


def test_a_model_that_does_not_fit_names_its_numbers_and_the_most_blocks() -> None:
    message = refused(N150, ("key_value_blocks = 512", "key_value_blocks = 100000"))
    assert message == (
        "m.toml:24: target.n150.key_value_blocks = 100000: does not fit: 0.303 weights + 0.001 rotary tables + "
        "68.665 key-value blocks + 0.022 activations of 4096 tokens + "
        "0.036 hidden rows of captured traces + 0.391 trace region = 69.418 GiB of 11.988 GiB "
        "DRAM on n150; nearest legal value 16362"
    )
    assert resolve(read(("key_value_blocks = 512", "key_value_blocks = 16362")), N150).memory.fits
    assert "nearest legal value 16362" in refused(N150, ("key_value_blocks = 512", "key_value_blocks = 16363"))


def test_a_context_whose_blocks_do_not_fit_is_answered_with_the_longest_that_does() -> None:
    big = (("maximum_context = 8192", "maximum_context = 1000000"), ("context = 4096", "context = 800000"))
    message = refused(N150, *big, ("key_value_blocks = 512", "key_value_blocks = 25000"))
    assert message.endswith("nearest legal context 514752 with key_value_blocks 16086")
    fits = (big[0], ("context = 4096", "context = 514752"), ("key_value_blocks = 512", "key_value_blocks = 16086"))
    assert resolve(read(*fits), N150).memory.fits


def test_weights_that_do_not_fit_are_said_to_leave_no_blocks() -> None:
    message = refused(N150, ("layers = 30", "layers = 1000"), ("intermediate = 1536", "intermediate = 65536"))
    assert message.endswith("no key_value_blocks fits: choose smaller dtypes, a smaller wave_tokens or a larger board")


def test_a_wave_over_the_limit_of_the_target_is_refused() -> None:
    assert refused(replace(N150, maximum_wave=4)) == (
        "m.toml:26: target.n150.waves[3] = 8: is over the 4 rows that n150 takes; nearest legal value 4"
    )


def test_a_target_without_a_table_is_refused() -> None:
    assert refused(P150) == "m.toml:21: target.p150: is missing; the manifest has [target.n150]"


def test_key_value_bytes_never_shrink_with_more_blocks() -> None:
    resolved = shipped(*LLAMA_8B)
    sizes = [key_value_item(resolved, blocks).bytes for blocks in range(0, 3000, 7)]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(("original_context", "switch", "tables"), [(2048, 2048, 2), (4095, 4095, 2), (4096, 0, 1)])
def test_prompts_past_the_original_context_have_rotary_tables_of_their_own(
    original_context: int, switch: int, tables: int
) -> None:
    """Context 4096: no prompt leaves an original context of 4096, and one set serves it."""
    numbers = f'kind = "longrope"\noriginal_context = {original_context}\nattention_factor = 1.2'
    factors = f"short_factors = {[1.0] * 16}\nlong_factors = {[2.0] * 16}"
    resolved = resolve(
        read(
            ('"llama"', '"phi3"'),
            ("query_heads = 9", "query_heads = 9\nrotary_dimensions = 32"),
            ('kind = "default"', f"{numbers}\n{factors}"),
        ),
        N150,
    )
    assert (resolved.rotary_switch, resolved.rope.dimensions, resolved.head_dim) == (switch, 32, 64)
    assert resolved.memory.rotary_tables == 2 * interleaved(N150, tables * 4096, 64 * 2)
    assert resolved.keys["rope.dimensions"] == "model.rotary_dimensions"


@pytest.mark.parametrize(
    ("model", "changes", "why"),
    [
        ("gemma-3-1b", {}, "it has a window, sinks or a soft cap"),
        ("gpt-oss-20b", {}, "it has a window, sinks or a soft cap"),
        ("gemma-2-2b", {}, "it has a window, sinks or a soft cap"),
        ("qwen3.5-9b", {}, "is for models without a recurrence"),
        ("smollm2-135m", {"batch_invariant": True}, "is not for batch_invariant builds"),
        ("qwen3-30b-a3b", {}, ""),
        ("mistral-7b-v0.3", {}, ""),
    ],
)
def test_waves_of_rows_of_any_lengths_are_for_models_that_take_packed_rows(model, changes, why):
    data = load(catalog.BUILT_IN, model).manifest.model_dump(exclude_none=True)
    data["target"]["p150"] |= {"ragged_tokens": (256, 1024), **changes}
    file = check(data, "m.toml", scan(""), ("n150", "p150"))
    if not why:
        assert resolve(file, P150).ragged_tokens == (256, 1024)
        return
    with pytest.raises(ManifestError, match=rf"target.p150.ragged_tokens = \[256, 1024\]: .*{why}"):
        resolve(file, P150)

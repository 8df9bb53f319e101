"""Layers with a recurrent state in the generator: rules of manifests, alignment, routes, memory, and the operations of a layer."""

from __future__ import annotations

from math import lcm
from pathlib import Path
from typing import Any

import pytest

from generator import catalog, inputs, kinds, memory, recurrences
from generator.attentions import Attention
from generator.errors import ManifestError
from generator.geometry import Resolved, resolve
from generator.layer import layer_steps
from generator.manifest import check, load
from generator.pipeline import emit
from generator.shapes import enumerate_shapes
from generator.targets import load_board
from generator.toml_source import scan
from generator.twin import twin
from runtime.backend import open_device
from runtime.load import load as load_module
from runtime.stores import allocate, tensors
from tests.support.building import codegen, emitted, resolved as of_catalog

MODEL = "qwen3.5-9b"
BOARDS = ("n150", "p150")


def data() -> dict[str, Any]:
    return load(catalog.BUILT_IN, MODEL).manifest.model_dump(exclude_none=True)


def checked(changed: dict[str, Any]) -> Any:
    return check(changed, "m.toml", scan(""), BOARDS)


def refused(changed: dict[str, Any], target: str | None = None) -> str:
    with pytest.raises(ManifestError) as error:
        file = checked(changed)
        if target:
            resolve(file, load_board(catalog.BUILT_IN, target))
    return str(error.value)


def small(target: str = "p150", **table: Any) -> Resolved:
    """The twin of the model, with some keys of its table changed."""
    file = twin(load(catalog.BUILT_IN, MODEL))
    changed = file.manifest.model_dump(exclude_none=True)
    changed["target"][target] |= table
    return resolve(check(changed, "m.toml", scan(""), BOARDS), load_board(catalog.BUILT_IN, target))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer_kinds": ("gated_delta_net", "fulll")},
            'model.layer_kinds[1] = "fulll": must be "gated_delta_net" or "full"; did you mean "full"?',
        ),
        (
            {"layer_kinds": ("gated_delta_net",) * 3 + ("full",) * 2},
            "model.layer_kinds: has 5 entries, which do not repeat evenly over 32 layers",
        ),
        (
            {"layer_kinds": ("full",)},
            "model.layer_kinds: names no layer of kind gated_delta_net; both kinds are needed",
        ),
        (
            {"layer_kinds": ("gated_delta_net",)},
            "model.layer_kinds: names no layer of kind full; both kinds are needed",
        ),
        ({"full_attention_layers": (3,)}, "model.full_attention_layers: belongs to families with windows"),
    ],
)
def test_layer_lists_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    changed = data()
    changed["model"] |= changes
    assert message in refused(changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": 3}, "model.gated_delta_net.kernel = 3: must be one of 4; nearest legal value 4"),
        (
            {"key_dim": 100},
            "model.gated_delta_net.key_dim = 100: must be a multiple of 32, a tile; nearest legal value 96",
        ),
        ({"value_heads": 40}, "model.gated_delta_net.value_heads = 40: must be a multiple of the 16 key heads"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    changed = data()
    changed["model"]["gated_delta_net"] |= changes
    assert message in refused(changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_slots": 4}, "target.p150.state_slots = 4: must be at least 8, the rows of the largest wave"),
        ({"batch_invariant": True}, "target.p150.batch_invariant = true: is not built with recurrent layers"),
        ({"recurrence": "magic"}, 'target.p150.recurrence = "magic": must be "operation" or "matmuls"'),
        (
            {"recurrence": "matmuls", "lengths": (96, 2048)},
            "target.p150.lengths[0] = 96: must be a multiple of 64, the tokens that the recurrence takes at a time; nearest legal value 64",
        ),
    ],
)
def test_tables_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    changed = data()
    changed["target"]["p150"] |= changes
    assert message in refused(changed)


def test_a_chunk_that_breaks_the_alignment_is_refused_with_the_numbers() -> None:
    changed = data()
    changed["target"]["p150"] |= {"lengths": (128, 1056), "prefill_chunk": 1056}
    assert (
        "target.p150.prefill_chunk = 1056: must be a multiple of the alignment 128, lcm(32 block, 128 attention chunk, "
        "32 recurrent chunk); nearest legal value 1024"
    ) in refused(changed)


def test_what_belongs_to_recurrent_layers_is_refused_elsewhere() -> None:
    changed = load(catalog.BUILT_IN, "qwen3-8b").manifest.model_dump(exclude_none=True)
    changed["model"]["layer_kinds"] = ("full",)
    changed["target"]["n150"] |= {"state_slots": 8}
    found = refused(changed)
    assert "model.layer_kinds: belongs to families with linear attention, and qwen3 has none" in found
    assert "target.n150.state_slots = 8: belongs to families with linear attention, and qwen3 has none" in found


def test_a_family_with_linear_attention_states_its_sizes_layers_and_slots() -> None:
    changed = data()
    del changed["model"]["gated_delta_net"], changed["model"]["layer_kinds"]
    found = refused(changed)
    assert "model.gated_delta_net: is missing; family qwen3_5 needs it" in found
    assert "model.layer_kinds: is missing; family qwen3_5 needs it" in found
    changed = data()
    del changed["target"]["p150"]["state_slots"]
    assert "target.p150.state_slots: is missing" in refused(changed)


def test_more_value_heads_than_cores_need_the_matmuls() -> None:
    changed = data()
    changed["model"]["gated_delta_net"] |= {"key_heads": 64, "value_heads": 128, "key_dim": 32, "value_dim": 32}
    assert (
        "value_heads = 128: is over the 110 cores of p150, one of which the operation takes for each value head; "
        in (refused(changed, "p150"))
    )
    changed["target"]["p150"] |= {"recurrence": "matmuls", "lengths": [128, 2048]}
    assert resolve(checked(changed), load_board(catalog.BUILT_IN, "p150")).gated_delta_net.form == "matmuls"


@pytest.mark.parametrize("target", BOARDS)
@pytest.mark.parametrize(("form", "chunk"), [("operation", 32), ("matmuls", 64)])
def test_every_start_and_cut_is_a_multiple_of_the_recurrent_chunk(target: str, form: str, chunk: int) -> None:
    numbers = small(target, recurrence=form, lengths=(64, 128))
    assert numbers.gated_delta_net.chunk == chunk
    assert numbers.alignment == lcm(numbers.block_size, numbers.attention_chunk, chunk)
    assert numbers.keys["alignment"].endswith(f"target.{target}.recurrence")
    assert numbers.prefill_chunk % numbers.alignment == 0
    assert all(shape.tokens % chunk == 0 for shape in enumerate_shapes(numbers))


def test_a_recurrent_chunk_larger_than_block_and_attention_chunk_sets_the_alignment() -> None:
    numbers = small(recurrence="matmuls", lengths=(64, 128), attention_chunk=32)
    assert (numbers.block_size, numbers.attention_chunk, numbers.alignment) == (32, 32, 64)


def test_s001_22_dims_that_the_operation_does_not_take_fall_to_the_matmuls() -> None:
    assert recurrences.form(None, 128, 128) == recurrences.form(None, 64, 64) == "operation"
    assert recurrences.form(None, 64, 128) == "matmuls"


@pytest.mark.parametrize(
    ("heads", "dim", "cores", "fuses", "routes"),
    [
        (32, 128, 110, True, {1: "alone", 2: "rows", 4: "rows"}),
        (16, 128, 110, True, {1: "alone", 2: "wave", 4: "rows"}),
        (32, 128, 64, True, {1: "alone", 2: "rows"}),
        (33, 128, 64, False, {1: "alone", 2: "rows"}),
        (48, 128, 64, False, {1: "alone", 2: "rows"}),
        (55, 128, 110, True, {1: "alone", 2: "rows"}),
        (56, 128, 110, False, {1: "alone", 2: "rows"}),
        (16, 256, 64, False, {1: "alone", 2: "wave", 4: "wave", 8: "rows"}),
        (16, 96, 64, False, {1: "alone", 4: "wave"}),
    ],
)
def test_rows_run_at_once_where_the_program_of_one_row_holds_them(
    heads: int, dim: int, cores: int, fuses: bool, routes: dict[int, str]
) -> None:
    assert recurrences.fuses(heads, dim, cores) is fuses
    assert {rows: recurrences.route("operation", rows, heads, dim, cores) for rows in routes} == routes
    assert {recurrences.route("matmuls", rows, heads, dim, cores) for rows in routes} == {"matmuls"}


@pytest.mark.parametrize(("value_heads", "program"), [(16, "Fused"), (48, "Phased")])
def test_a_module_states_the_program_of_its_recurrence(value_heads: int, program: str) -> None:
    file = twin(load(catalog.BUILT_IN, MODEL))
    changed = file.manifest.model_dump(exclude_none=True)
    changed["model"]["gated_delta_net"] |= {"key_heads": value_heads, "value_heads": value_heads}
    numbers = resolve(check(changed, "m.toml", scan(""), BOARDS), load_board(catalog.BUILT_IN, "n150"))
    text = emit(numbers, "m.toml", inputs.TEMPLATES).text
    assert f"DELTA_RULE = ttnn.ChunkGdn{program}ProgramConfig()  # " in text and "program_config=DELTA_RULE," in text


@pytest.mark.parametrize("target", BOARDS)
def test_the_modelled_memory_of_states_is_what_the_stores_take(target: str, tmp_path: Path) -> None:
    """Every slot, every row of a wave, and the zero state: as the emulator's allocator counts them."""
    numbers = small(target)
    path = tmp_path / f"{target}.py"
    path.write_text(emit(numbers, "m.toml", inputs.TEMPLATES).text, encoding="utf-8")
    module = load_module(path)
    device = open_device(module.BOARD)
    stores = allocate(module, device)
    caches = list(tensors((stores.keys, stores.values)))
    held = [one for one in tensors(stores) if one not in caches]
    items = memory.state_items(numbers)
    assert sum(item.count for item in items) == len(held)
    assert sum(item.bytes for item in items) == numbers.memory.recurrent_states > 0
    per_slot = 2 * sum(item.bytes // item.count * numbers.recurrent_layers for item in items)
    assert per_slot == numbers.memory.state_slot


def test_show_tells_the_bytes_of_a_state_slot() -> None:
    out = codegen("show", MODEL, "--target", "p150").out
    net = of_catalog(MODEL, "p150").gated_delta_net
    wide = 2 * 24 * (net.value_heads * net.key_dim * net.value_dim * 4)
    tails = 2 * 24 * 3 * net.convolution_width * 2
    shown = int(next(line for line in out.split("\n") if "bytes of one state slot" in line).split()[5])
    assert wide + tails <= shown < 1.05 * (wide + tails)  # pages are dealt over the banks in whole
    assert "24 layers of a state 32 x 128 x 128 float32 and a tail 3 x 8192 bfloat16" in out
    assert "recurrent_states" in out
    assert "recurrent_states" not in codegen("show", "qwen3-8b", "--target", "p150").out


@pytest.mark.parametrize("form", ["operation", "matmuls"])
def test_the_steps_of_a_recurrent_layer_use_every_matmul_and_free_what_they_make(form: str) -> None:
    numbers = small(recurrence=form, lengths=(64, 128))
    roles = {role.name for part in kinds.layer_parts(numbers, "gated_delta_net") for role in part.matmuls(numbers)}
    for shape in enumerate_shapes(numbers):
        steps = layer_steps(numbers, shape, Attention(32, 32), "gated_delta_net")
        assert {step.role for step in steps} - {""} == roles
        live: set[str] = set()
        for step in steps:
            live |= {tensor.name for tensor in step.writes}
            live -= {tensor.name for tensor in step.frees}
        assert live - {"normed", "hidden", "summed", "product", "valid"} <= {"fed"}, (shape, live)


def test_only_layers_of_their_kind_have_a_weight() -> None:
    rows = kinds.layer_weights(of_catalog(MODEL, "p150"))
    by_kind = {kind: {row.name for row in rows if row.kind == kind} for kind in ("gated_delta_net", "full", "")}
    assert {"mixed", "tap_3", "value_norm", "delta_output"} <= by_kind["gated_delta_net"]
    assert {"query_key_value", "attention_gate", "attention_output"} <= by_kind["full"]
    assert {"mlp_norm", "down"} <= by_kind[""]
    text = emitted(MODEL, "p150").text
    assert 'LAYER_KINDS = ("gated_delta_net", "gated_delta_net", "gated_delta_net", "full") * 8' in text

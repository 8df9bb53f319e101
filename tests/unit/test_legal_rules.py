"""What the library accepts and `codegen legal` does not, and the recorder that asks: on a library of few functions."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runtime.legality import silent
from runtime.legality.programs import described
from runtime.legality.recorder import Layered, Recorder

FLOAT32 = 0.0883883461356163  # 128 ** -0.5 as a float32


def tensor(*shape: int) -> SimpleNamespace:
    return SimpleNamespace(shape=shape)


def broken(name: str, *args: Any, **kwargs: Any) -> list[str]:
    return list(silent.broken_rules(silent.Arguments(name, args, kwargs), alignment=128))


def chunked(query=tensor(1, 32, 256, 128), chunks=(128, 128), **kwargs: Any) -> list[str]:
    program = SimpleNamespace(q_chunk_size=chunks[0], k_chunk_size=chunks[1]) if chunks else None
    given = {"scale": FLOAT32, "program_config": program, "chunk_start_idx_tensor": tensor(1)} | kwargs
    return broken(silent.CHUNKED, query, tensor(), tensor(), tensor(), **given)


@pytest.mark.parametrize("name", [silent.ATTENTION, silent.CHUNKED])
@pytest.mark.parametrize("scale", [128**-0.5, 1, 0.1])
def test_a_scale_that_is_no_float32_is_refused_by_every_attention(name: str, scale: float) -> None:
    messages = chunked(scale=scale) if name == silent.CHUNKED else broken(name, scale=scale)
    assert len(messages) == 1 and f"scale is {scale!r}, which is no float32" in messages[0]


@pytest.mark.parametrize("scale", [None, FLOAT32, 0.125])
def test_a_scale_that_is_a_float32_is_fine(scale: float | None) -> None:
    assert broken(silent.ATTENTION, scale=scale) == chunked(scale=scale) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chunked(query=tensor(1, 32, 100, 128)), "100 tokens is no multiple of q_chunk_size 128"),
        (lambda: chunked(chunks=(64, 256)), "multiple of 128 tokens, which k_chunk_size 256 does not divide"),
        (lambda: chunked(chunks=(256, 64)), "multiple of 128 tokens, which q_chunk_size 256 does not divide"),
        (lambda: chunked(chunks=None), "has no program_config"),
        (lambda: chunked(chunk_start_idx=0), "given 2 starts"),
        (lambda: chunked(chunk_start_idx_tensor=None), "given 0 starts"),
    ],
)
def test_chunked_attention_is_held_to_its_chunks(call, message: str) -> None:
    assert [message in found for found in call()] == [True]


@pytest.mark.parametrize(
    ("width", "heads", "key_value", "message"),
    [
        (15 * 80, 9, 3, "heads of 80 elements are no whole tiles of 32"),
        (500, 4, 2, "a width of 500 holds no whole number"),
        (3 * 48, 1, None, "heads of 48"),
    ],
)
def test_heads_must_fill_the_width_with_whole_tiles(
    width: int, heads: int, key_value: int | None, message: str
) -> None:
    found = broken(silent.SPLIT_HEADS, tensor(1, 1, 64, width), num_heads=heads, num_kv_heads=key_value)
    assert len(found) == 1 and message in found[0]
    assert not broken(silent.SPLIT_HEADS, tensor(1, 1, 64, 15 * 64), num_heads=9, num_kv_heads=3)


def test_interleaved_rotary_needs_whole_tiles() -> None:
    assert "heads of 80 elements" in broken(silent.INTERLEAVED_ROTARY, tensor(1, 9, 64, 80))[0]
    assert not broken(silent.INTERLEAVED_ROTARY, tensor(1, 9, 64, 96))


def test_a_cache_is_filled_in_whole_blocks() -> None:
    cache = tensor(256, 3, 64, 64)
    assert "100 tokens are written to blocks of 64" in broken(silent.FILL_CACHE, cache, tensor(1, 3, 100, 64))[0]
    assert not broken(silent.FILL_CACHE, cache_tensor=cache, input_tensor=tensor(1, 3, 128, 64))


def test_an_operation_without_a_rule_breaks_none() -> None:
    assert broken("ttnn.linear", tensor(1), scale=0.1) == []


def test_buffers_and_tensors_share_the_memory_of_a_core() -> None:
    assert silent.over_l1("SDPAOperation", 1000, 24, 1024) is None
    assert silent.over_l1("SDPAOperation", 1000, 25, 1024) == (
        "SDPAOperation needs 1000 bytes of buffers beside 25 of tensors in the L1 of one core, which has 1024"
    )


# --- the recorder ---------------------------------------------------------------------------------------------------


class Graph:
    """The marks of a capture, as `graph` reads them."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def track_function_start(self, name: str) -> None:
        self.marks.append(name.removeprefix("emitted:"))

    def track_function_end(self) -> None:
        pass


EMITTED = """def body(weights, stores):
    for weight, store in zip(weights.layers, stores.keys):
        hidden = ttnn.linear(
            1, weight, program_config=ttnn.Program()
        )
        ttnn.experimental.paged_fill_cache(store, hidden, 0)
    return ttnn.version
"""


@pytest.fixture
def recorded() -> tuple[Recorder, list[str]]:
    library, experimental = ModuleType("library"), ModuleType("experimental")
    library.graph, library.experimental, library.version, library.Program = Graph(), experimental, 7, dict
    library.linear = lambda a, b, program_config: tensor(1, 1, 100, 64)
    experimental.paged_fill_cache = lambda cache, keys, table: None
    first, second = object(), object()
    recorder = Recorder(library, "emitted.py", {id(second): "down"}, alignment=128)
    module = {"ttnn": recorder.library}
    exec(compile(EMITTED, "emitted.py", "exec"), module)
    weights = SimpleNamespace(layers=Layered([first, second], recorder.enter))
    stores = SimpleNamespace(keys=Layered([tensor(8, 1, 64, 64)] * 2, recorder.enter))
    recorder.stage("body")
    assert module["body"](weights, stores) == 7
    recorder.stage("logits")
    return recorder, library.graph.marks


def test_calls_are_recorded_with_their_line_function_and_weight(recorded) -> None:
    recorder, _ = recorded
    assert [(one.name, one.function, one.line, one.role) for one in recorder.calls] == [
        ("ttnn.linear", "body", 3, ""),
        ("ttnn.experimental.paged_fill_cache", "body", 6, ""),
        ("ttnn.linear", "body", 3, "down"),
        ("ttnn.experimental.paged_fill_cache", "body", 6, ""),
    ]


def test_marks_say_stage_layer_and_call(recorded) -> None:
    _, marks = recorded
    assert marks == [
        "stage:body", "layer:0", "call:0", "call:1", "layer:1", "call:2", "call:3", "layer:None", "stage:logits",
    ]  # fmt: skip


def test_a_broken_rule_is_found_at_its_line(recorded) -> None:
    recorder, _ = recorded
    assert [(one.line, one.message[:10]) for one in recorder.findings] == [(6, "100 tokens")] * 2


def test_a_call_by_a_helper_stands_on_the_emitted_line_that_asked_for_it(recorded) -> None:
    recorder, _ = recorded
    helper: dict[str, Any] = {}
    exec(compile("def helper(ttnn):\n    ttnn.linear(1, 2, program_config=None)", "helper.py", "exec"), helper)
    exec(compile("\n\nhelper(ttnn)", "emitted.py", "exec"), {"ttnn": recorder.library, **helper})
    assert (recorder.calls[-1].line, recorder.calls[-1].function) == (3, "<module>")
    before = len(recorder.calls)
    helper["helper"](recorder.library)
    assert len(recorder.calls) == before, "a call that no emitted line asked for"


def test_nothing_of_a_call_is_kept_alive(recorded) -> None:
    kept = object()
    recorder, _ = recorded
    before = sys.getrefcount(kept)
    recorder._around("ttnn.linear", lambda one: None, kept)
    assert sys.getrefcount(kept) == before


def test_entries_taken_by_index_are_of_their_layer_too() -> None:
    entered: list[int | None] = []
    layers = Layered("ab", entered.append)
    assert (layers[0], layers[-1], list(layers[:1])) == ("a", "b", ["a"]) and entered == [0, 1]
    assert list(layers) == ["a", "b"] and entered[2:] == [0, 1, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "SDPAProgramConfig(compute_with_storage_grid_size=8-8, sub_core_grids=none, q_chunk_size=128, k_chunk_size=256)",
            "chunks q128 k256 on 8x8",
        ),
        (
            "MatmulMultiCoreReuseMultiCastProgramConfig(compute_with_storage_grid_size=8-7,in0_block_w=4,"
            "out_subblock_h=1,out_subblock_w=4,out_block_h=8,out_block_w=24,per_core_M=16,per_core_N=24,fused_activation=std::nullopt)",
            "2d 8x7 k4 sub 1x4 block 8x24 core 16x24",
        ),
        (
            "MinimalMatmulConfig(M_block_size=8,K_block_size=4,N_block_size=16,subblock_h=2,subblock_w=2,"
            "compute_with_storage_grid_size=11-10)",
            "minimal 11x10 blocks 8x4x16 sub 2x2",
        ),
        ("SomethingNew(x=1)", "SomethingNew"),
    ],
)
def test_configurations_are_told_in_a_few_words(text: str, words: str) -> None:
    class Program:
        def __repr__(self) -> str:
            return text

    assert described(Program()) == words

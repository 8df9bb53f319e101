"""L1 bytes of attention are those of the circular buffers in programs captured from the library on mock devices."""

from __future__ import annotations

import pytest

import runtime.emulator as ttnn
from runtime.emulator.operations.attention_programs import program_bytes
from runtime.emulator.storage import TensorSpec, tensor_spec
from tests.support.emulated import attention_program
from tests.support.emulated_calls import BOARDS


def spec(*shape: int, dtype=ttnn.bfloat16) -> TensorSpec:
    layout = ttnn.ROW_MAJOR_LAYOUT if dtype is ttnn.int32 else ttnn.TILE_LAYOUT
    return tensor_spec(shape, dtype, layout, ttnn.DRAM_MEMORY_CONFIG)


def compute(accumulate: bool) -> ttnn.WormholeComputeKernelConfig:
    return ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=accumulate)


@pytest.mark.parametrize(
    ("heads", "tokens", "dim", "chunks", "accumulate", "window", "sink", "stored", "n150", "p150"),
    (
        ((8, 2), 256, 64, (64, 64), True, 0, False, "bfloat16", 126976, 127072),  # handed on, in two pairs of chunks
        ((8, 2), 512, 64, (128, 128), True, 0, False, "bfloat16", 278528, 311424),  # handed on, in three
        ((8, 2), 512, 64, (128, 128), True, 0, False, "bfloat8_b", 247808, 247808),
        ((8, 2), 512, 64, (128, 128), False, 0, True, "bfloat8_b", 202752, 220288),
        (
            (8, 2),
            768,
            64,
            (96, 128),
            True,
            0,
            False,
            "bfloat16",
            227328,
            227328,
        ),  # pairs that visit unlike numbers of chunks
        ((8, 2), 512, 64, (128, 128), True, 128, True, "bfloat16", 301056, 301056),
        ((8, 2), 512, 64, (128, 128), False, 128, True, "bfloat16", 239616, 239616),
        ((4, 1), 384, 256, (128, 128), True, 0, False, "bfloat8_b", 532480, 532480),  # an odd number of chunks
        ((8, 1), 480, 512, (96, 64), False, 0, True, "bfloat8_b", 555008, 555008),
    ),
)
def test_the_size_of_whole_attention(
    heads, tokens, dim, chunks, accumulate, window, sink, stored, n150: int, p150: int
) -> None:
    query, key = spec(1, heads[0], tokens, dim), spec(1, heads[1], tokens, dim, dtype=getattr(ttnn, stored))
    found = {
        name: program_bytes(
            BOARDS[name], query, key, attention_program(*chunks), compute(accumulate), window=window, sink=sink
        )
        for name in ("n150", "p150")
    }

    assert found == {"n150": n150, "p150": p150}


@pytest.mark.parametrize(
    ("width", "started", "accumulate", "window", "sink", "n150", "p150"),
    (
        (24, True, True, 128, True, 270496, 270496),
        (24, False, True, 128, True, 270432, 270464),
        (24, True, False, 0, True, 202912, 202912),
        (72, False, False, 0, False, 200992, 201024),
    ),
)
def test_the_size_of_a_chunk(width, started, accumulate, window, sink, n150: int, p150: int) -> None:
    query, keys, table = (
        spec(1, 8, 256, 64),
        spec(64, 2, 32, 64, dtype=ttnn.bfloat8_b),
        spec(1, width, dtype=ttnn.int32),
    )
    found = {
        name: program_bytes(
            BOARDS[name],
            query,
            keys,
            attention_program(128, 128),
            compute(accumulate),
            window=window,
            sink=sink,
            table=table,
            started=started,
        )
        for name in ("n150", "p150")
    }

    assert found == {"n150": n150, "p150": p150}

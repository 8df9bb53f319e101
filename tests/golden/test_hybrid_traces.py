"""Replays of hybrid modules: the bits of eager passes, in stores and in states, whatever slots and rows came before."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from tests.support.hybrids import MATMULS, ROWS, WAVE, TracedBench

# A geometry for each form of a wave of eight, and experts.
FAMILIES = {
    "qwen3_next": WAVE,
    "qwen3_5": WAVE,
    "qwen3_5-more-heads-in-a-wave-than-cores": ROWS,
    "qwen3_5-wide-values-tied": MATMULS,
}
CALLS: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {
    "single": ([50], [3], {}),
    "wave": ([64, 1, 33, 2, 63, 50, 3, 64], [11, 2, 9, 4, 7, 6, 5, 8], {}),
    "padded wave": ([100, 70, 128], [1, 0, 2], {}),
    "chunks": ([300], [10], {}),
    "chunked wave": ([300, 290, 257, 384, 301], [0, 9, 1, 8, 2], {}),
    "kept on the way": ([300, 300], [5, 6], {"keep_at": 64}),
    "slices": ([192, 128], [7, 3], {"final": False}),
}


@cache
def captured(family: str) -> TracedBench:
    return TracedBench(family)


@pytest.fixture(params=FAMILIES)
def bench(request):
    made = captured(request.param)
    made.forget()
    assert made.module.RECURRENCE[8] == FAMILIES[request.param]
    return made


def same(one: Any, other: Any) -> bool:
    return one == other if isinstance(one, tuple) else torch.equal(one, other)


@pytest.mark.parametrize("name", CALLS)
def test_replays_give_the_bits_of_eager_passes(bench, name):
    """Eager passes with all programs compiled run beside the traces, over the same stores."""
    lengths, slots, options = CALLS[name]
    rows = bench.rows(lengths, seed=len(name))
    eager = bench.call(rows, slots=slots, traced=False, **options)
    wanted = bench.bits(rows, slots)
    bench.forget()
    bench.fill(0.0)
    assert same(bench.call(rows, slots=slots, **options), eager)
    assert bench.bits(rows, slots) == wanted


def test_b51_a_second_traced_wave_in_other_slots_keeps_prompts_caches_and_states_apart(bench):
    """Also of the first wave's slots, which go on afterwards; a shorter wave follows a longer one, over its rows."""
    blocks = iter(range(bench.module.KEY_VALUE_BLOCKS))
    waves = []
    for seed, slots in enumerate([[0, 1, 2, 3, 4, 5, 6, 7], [9, 8], [10]]):
        rows = bench.rows([300 + index for index in range(len(slots))], seed)
        waves.append(([_on(row, blocks) for row in rows], slots))
    alone = []
    for rows, own in waves:
        alone.append((bench.call(rows, slots=own, traced=False), bench.bits(rows, own)))
    bench.forget()
    for rows, own in waves:
        bench.call(rows, ends=[128] * len(rows), slots=own, final=False)
    for (rows, own), (logits, stored) in list(zip(waves, alone))[::-1]:
        found = bench.call(rows, starts=[128] * len(rows), slots=own)
        assert torch.equal(found, logits) and bench.bits(rows, own) == stored
    for (rows, own), (_, stored) in zip(waves, alone):
        assert bench.bits(rows, own) == stored


def _on(row: Any, blocks: Any) -> Any:
    """The row on the next free blocks."""
    return type(row)(row.prompt, row.tokens, tuple(next(blocks) for _ in row.pages))


def test_replays_compile_and_destroy_nothing(bench):
    rows = bench.rows([300, 290, 40], seed=4)
    bench.call(rows, slots=[3, 1, 2])
    counters = bench.device.counters
    assert (counters.double_frees, counters.destroyed_tensors, counters.compiles_under_trace) == (0, 0, 0)
    assert bench.prefill.orphans == 0

"""Emitted modules of each family against transformers: logits, and keys and values block by block."""

from __future__ import annotations

import pytest
import torch

from generator import programs
from runtime.backend import ttnn
from runtime.verification.comparison import pcc
from tests.support.families import CAPPED, GEOMETRIES, WINDOWED
from tests.support.golden import EXACT, Bench, build_module, manifest
from tests.support.tiny.base import WINDOW

ROUTED_LIMITS = {False: 0.99, True: 0.97}
LIMIT = 1e-4  # nothing is rounded in the emulator's float32 mode
LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 300, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW)


FAMILIES = GEOMETRIES | WINDOWED | CAPPED


@pytest.fixture(scope="module", params=FAMILIES)
def bench(request):
    return Bench(request.param)


def holds(errors: dict[str, float]) -> bool:
    assert max(errors.values()) <= LIMIT, f"relative errors {errors} over {LIMIT:g}"
    return True


def test_fault_b05_and_57_prompts_of_every_length_equal_transformers(bench):
    for seed, length in enumerate(LENGTHS):
        rows = bench.rows([length], seed)
        assert holds(bench.errors(rows, bench.call(rows))), length


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_waves_equal_transformers(bench, count):
    rows = bench.rows([100 + 4 * index for index in range(count)], seed=count)
    (plan,) = bench.prefill.prepare(
        [row.tokens + (0,) * (128 - len(row.tokens)) for row in rows], *pages_and_lengths(rows)
    )
    assert plan.chunks[0].shape.rows == {1: 1, 2: 2, 3: 4, 5: 8, 8: 8}[count]
    assert holds(bench.errors(rows, bench.call(rows)))


def pages_and_lengths(rows):
    return [list(row.pages) for row in rows], [len(row.tokens) for row in rows]


def test_rows_of_mixed_lengths_equal_transformers_in_the_callers_order(bench):
    rows = bench.rows(LENGTHS, seed=40)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("cached", [32, 64, 96, 128, 256, 288])
def test_b07_b54_a_prompt_after_a_cached_prefix_equals_transformers(bench, cached):
    (row,) = bench.rows([300], seed=cached)
    bench.call([row], ends=[cached], slots=[5])
    logits = bench.call([row], starts=[cached], slots=[6])
    assert holds(bench.errors([row], logits))


def test_b03_rows_behind_one_shared_prefix_equal_transformers(bench):
    first, second = bench.rows([300, 300], seed=3)
    shared = type(second)(1, first.tokens[:128] + second.tokens[128:], first.pages[:4] + second.pages[4:])
    bench.call([first], ends=[128], slots=[2])
    rows = [first, shared]
    assert holds(bench.errors(rows, bench.call(rows, starts=[128, 128])))


@pytest.mark.parametrize("length, chunks", [(200, 2), (300, 3), (600, 5)])
def test_b53_prompts_longer_than_a_chunk_equal_transformers(bench, length, chunks):
    rows = bench.rows([length], seed=chunks)
    (plan,) = bench.prefill.prepare([rows[0].tokens], *pages_and_lengths(rows))
    assert len(plan.chunks) == (1 if bench.module.GEOMETRY.attention_soft_cap else chunks)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("cuts", [(64,), (64, 128), (32, 64, 192, 256), (96, 160), (128, 224, 256, 288)])
def test_prompts_that_the_caller_cuts_equal_transformers(bench, cuts):
    (row,) = bench.rows([300], seed=len(cuts))
    for start, end in zip((0, *cuts), cuts):
        assert bench.call([row], ends=[end], starts=[start], slots=[4], final=False) == (None,)
    assert holds(bench.errors([row], bench.call([row], starts=[cuts[-1]], slots=[4])))


@pytest.mark.parametrize("family", ["mistral", "gemma3-capped"])
def test_norms_of_rows_too_wide_for_a_core_equal_transformers(monkeypatch, family):
    monkeypatch.setattr(programs, "norms_in_blocks", lambda resolved: True)
    bench = Bench(family, module=build_module(manifest(family, EXACT)))
    assert bench.weights.final_norm.layout == bench.weights.layers[0].mlp_norm.layout == ttnn.TILE_LAYOUT
    rows = bench.rows([33, 128, 300], seed=4)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("packed, limit", [(False, 0.999), (True, 0.99)], ids=["bfloat16", "bfloat8_b"])
@pytest.mark.parametrize("family", FAMILIES)
def test_declared_dtypes_correlate_with_transformers(family, packed, limit):
    bench = Bench(family, "declared", packed)
    if bench.module.GEOMETRY.experts is not None:  # rounding turns some choice of experts, and with it all of a token
        limit = ROUTED_LIMITS[packed]
    rows = bench.rows([1, 33, 128, 129, 300], seed=9)
    for row, found in zip(rows, bench.call(rows)):
        wanted = bench.peer.logits(list(row.tokens))[-1]
        assert pcc(found, wanted) >= limit
        keys, values = bench.peer.keys_and_values(list(row.tokens))
        ours = bench.cache(row)
        assert min(pcc(*pair) for pair in zip(ours["keys"] + ours["values"], keys + values)) >= limit
    assert torch.isfinite(bench.everything()).all()

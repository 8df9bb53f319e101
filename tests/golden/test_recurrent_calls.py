"""Emitted modules of hybrid families over several calls: slices, hits and snapshots against transformers and one whole call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from runtime.backend import open_device
from runtime.prefill import Prefill
from runtime.stores import allocate
from runtime.verification.comparison import relative_error
from runtime.weights import load_weights
from tests.support.golden import Bench
from tests.support.state_module import held_tensors

FAMILIES = ("qwen3_5", "qwen3_next")
LENGTH = 300
TOLERANCE = 1e-5  # passes of other widths add up in another order


@pytest.fixture(scope="module", params=FAMILIES)
def bench(request):
    return Bench(request.param)


@pytest.fixture
def cold(bench):
    """A prompt, its logits from one call, and the states that it leaves, in slot 0."""
    for slot in range(bench.module.STATE_SLOTS):
        bench.prefill.reset(slot)
    (row,) = bench.rows([LENGTH], seed=5)
    logits = bench.call([row], slots=[0])
    return SimpleNamespace(row=row, logits=logits, states=held_tensors(bench.prefill, 0))


def paged(bench):
    return [bench.store(name, layer) for name in ("keys", "values") for layer in range(len(bench.stores.keys))]


def same_states(bench, slot, wanted):
    return all(map(torch.equal, held_tensors(bench.prefill, slot), wanted))


@pytest.mark.parametrize("cuts", [(64,), (128, 192), (96,), (160, 224), (32, 64, 96, 128)])
def test_fault_b15_slices_leave_bit_for_bit_the_states_of_one_call_and_its_logits(bench, cold, cuts):
    """S003-32: cuts inside an aligned stretch too, since passes go back to the boundary before them."""
    start = 0
    for end in cuts:
        bench.call([cold.row], ends=[end], starts=[start], slots=[1], final=False)
        start = end
    found = bench.call([cold.row], starts=[start], slots=[1])
    assert same_states(bench, 1, cold.states)
    assert relative_error(found, cold.logits) <= TOLERANCE


def test_s003_26_an_exact_full_hit_gives_the_logits_and_states_of_the_cold_run_and_writes_no_block(bench):
    (row,) = bench.rows([256], seed=6)
    wanted = bench.call([row], slots=[2])
    states, blocks = held_tensors(bench.prefill, 2), paged(bench)
    found = bench.call([row], starts=[256], slots=[2])
    assert torch.equal(found, wanted) and same_states(bench, 2, states)
    assert all(map(torch.equal, paged(bench), blocks))


def test_s003_47_a_hit_without_a_state_gives_the_logits_of_the_cold_run(bench, cold):
    found = bench.call([cold.row], starts=[128], slots=[3])
    assert torch.equal(found, cold.logits) and same_states(bench, 3, cold.states)


def test_s003_30_a_restored_state_goes_on_as_the_one_it_was_taken_of(bench, cold):
    snapshot = bench.prefill.snapshot(0)
    (other,) = bench.rows([70], seed=7)
    blocks_of_its_own = SimpleNamespace(index=0, tokens=other.tokens, pages=tuple(range(117, 120)))
    bench.call([blocks_of_its_own], slots=[0])
    bench.prefill.restore(0, snapshot)
    found = bench.call([cold.row], starts=[256], slots=[0])
    assert torch.equal(found, cold.logits) and same_states(bench, 0, cold.states)


def test_s001_19_rows_of_waves_agree_with_transformers(bench):
    """S001-13 and S001-18: the waves of both routes."""
    for lengths in ([64, 64], [64, 40, 3], [128, 1, 77, 90, 100]):
        rows = bench.rows(lengths, seed=8)
        logits = bench.call(rows, slots=list(range(4, 4 + len(rows))))
        assert max(bench.errors(rows, logits).values()) < 1e-4
    routes = bench.prefill.stats().routes
    assert routes["equal-length wave"] >= 1 and routes["variable-length wave"] >= 2


def test_traced_slices_leave_bit_for_bit_the_states_of_one_eager_call_and_its_logits(bench, cold):
    module = bench.module
    device = open_device(module.BOARD, precision="float32", trace_region_size=1 << 30)
    weights, stores = load_weights(module, device, bench.peer.tensors), allocate(module, device)
    prefill = Prefill(module, device, weights, stores)
    prefill.warm_up()
    prefill.capture(decode_traces="none")
    tokens, pages = torch.tensor([cold.row.tokens]), torch.tensor([cold.row.pages])
    for start, end, final in ((0, 96, False), (96, 256, False), (256, LENGTH, True)):
        found = prefill.prefill_forward(tokens, pages, [end], [start], [1], final=final, traced=True)
    assert relative_error(found, cold.logits) <= TOLERANCE
    assert all(map(torch.equal, held_tensors(prefill, 1), cold.states))
    counters = device.counters
    assert (counters.destroyed_tensors, counters.compiles_under_trace) == (0, 0)

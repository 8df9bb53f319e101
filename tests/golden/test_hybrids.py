"""Emitted modules with recurrent layers against transformers: logits, keys and values block by block, and the state and the
convolution's tail of every layer.
"""

from __future__ import annotations

from copy import deepcopy
from statistics import mean, median

import pytest
import torch

from runtime.positions import NO_STATE
from runtime.stats import Recomputed
from runtime.verification.comparison import pcc, relative_error
from runtime.verify import FLOAT32_ERROR, PCC_BFLOAT16_WEIGHTS
from tests.support.families import build_peer
from tests.support.hybrids import HYBRIDS, PARTS, ROWS, SPARE, answer, hybrid_bench

LENGTHS = (1, 2, 3, 4, 63, 64, 65, 127, 128, 129, 200, 300)
ALIGNED = (64, 128, 192, 256)
SAME = 1e-5  # of two ways through one module
PCC_STORED = {False: 0.99, True: 0.95}  # of a layer's states, tails, keys and values, without experts and with them


@pytest.fixture(params=HYBRIDS)
def bench(request):
    made = hybrid_bench(request.param)
    made.forget()
    return made


def holds(errors: dict[str, float]) -> bool:
    assert max(errors.values()) <= FLOAT32_ERROR, f"relative errors {errors} over {FLOAT32_ERROR:g}"
    return True


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    error = relative_error(found, wanted)
    assert error <= SAME, f"relative error {error:.2e} over {SAME:g}"
    return True


@pytest.mark.parametrize("family, form", HYBRIDS.items())
def test_every_form_of_the_recurrence_is_among_the_geometries(family, form):
    forms = hybrid_bench(family).module.RECURRENCE
    assert forms[8] == form and (form != ROWS or "wave" in forms.values())


@pytest.mark.parametrize("length", LENGTHS)
def test_prompts_of_every_length_equal_transformers(bench, length):
    rows = bench.rows([length], seed=length)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("lengths", [(1, 4), (63, 64, 2), (100, 65, 128, 127, 66), (3, 64, 1, 33, 2, 63, 50, 17)])
def test_waves_of_mixed_lengths_equal_transformers(bench, lengths):
    rows = bench.rows(lengths, seed=len(lengths))
    before = bench.prefill.stats().waves
    assert holds(bench.errors(rows, bench.call(rows)))
    assert bench.prefill.stats().waves > before


def test_rows_of_every_length_in_one_call_equal_transformers_in_the_callers_order(bench):
    rows = bench.rows(LENGTHS[::-1], seed=3)
    slots = [(5 * index) % 12 for index in range(len(rows))]
    assert holds(bench.errors(rows, bench.call(rows, slots=slots), slots))


def test_s001_19_chunked_waves_equal_transformers(bench):
    """Rows that are cut alike share their chunks, each over its own blocks, from its own state, to its own length."""
    for seed, lengths in enumerate([(300, 300), (290, 300, 257), (260, 384, 300, 259, 270)]):
        rows = bench.rows(lengths, seed)
        assert holds(bench.errors(rows, bench.call(rows))), lengths


@pytest.mark.parametrize(
    "cuts",
    [*[(cut,) for cut in ALIGNED], (64, 128), (128, 256), (64, 192), ALIGNED],
    ids=lambda cuts: "-".join(map(str, cuts)),
)
def test_slices_that_end_aligned_equal_transformers(bench, cuts):
    (row,) = bench.rows([300], seed=len(cuts))
    for start, end in zip((0, *cuts), cuts):
        assert bench.call([row], ends=[end], starts=[start], slots=[4], final=False) == (None,)
        assert bench.prefill.positions(4) == (end, end)
        assert holds(bench.state_errors(4, row.tokens[:end]))
    assert holds(bench.errors([row], bench.call([row], starts=[cuts[-1]], slots=[4]), [4]))


@pytest.mark.parametrize("cuts", [(32,), (96,), (160,), (32, 96), (96, 224, 288), (32, 64, 96, 128, 160)])
def test_slices_that_end_between_aligned_positions_equal_transformers(bench, cuts):
    """Multiples of the block: tokens behind the last aligned position are computed again, from the state kept there."""
    (row,) = bench.rows([300], seed=len(cuts) + 10)
    for start, end in zip((0, *cuts), cuts):
        bench.call([row], ends=[end], starts=[start], slots=[4], final=False)
        assert bench.prefill.positions(4) == (end, end // 64 * 64)
        assert holds(bench.state_errors(4, row.tokens[:end]))
    assert holds(bench.errors([row], bench.call([row], starts=[cuts[-1]], slots=[4]), [4]))


@pytest.mark.parametrize("first", [64, 96, 128, 192, 256, 288])
def test_a_prompt_that_goes_on_where_another_call_ended_equals_transformers(bench, first):
    (row,) = bench.rows([300], seed=first)
    bench.call([row], ends=[first], slots=[6])
    before = bench.prefill.stats().tokens
    assert holds(bench.errors([row], bench.call([row], starts=[first], slots=[6]), [6]))
    assert bench.prefill.stats().tokens - before <= 300 - (first - 1) // 128 * 128


@pytest.mark.parametrize("length", [64, 96, 128, 256])
def test_s003_26_a_whole_prompt_that_is_cached_gives_its_logits_again(bench, length):
    (row,) = bench.rows([length], seed=length)
    wanted = bench.call([row], slots=[6])[0]
    assert close(bench.call([row], starts=[length], slots=[6])[0], wanted)
    assert holds(bench.state_errors(6, row.tokens))


@pytest.mark.parametrize("cached", [64, 128, 256])
def test_s003_47_a_cached_prefix_without_a_state_is_computed_whole_and_counted(bench, cached):
    (row,) = bench.rows([300], seed=cached)
    bench.call([row], ends=[cached], slots=[1])
    wanted = bench.whole(row)
    before = bench.prefill.stats()
    found = bench.call([row], starts=[cached], slots=[2])
    after = bench.prefill.stats()
    assert torch.equal(found[0], wanted)
    assert holds(bench.errors([row], found, [2]))
    assert after.tokens - before.tokens == 300
    counted = before.recomputed.get(NO_STATE, Recomputed(0, 0))
    assert after.recomputed[NO_STATE] == Recomputed(counted.rows + 1, counted.tokens + cached)


@pytest.mark.parametrize("keep_at", [64, 128, 192])
def test_s003_32_a_state_that_is_kept_on_the_way_equals_that_of_a_run_to_there(bench, keep_at):
    (row,) = bench.rows([300], seed=keep_at)
    found = bench.call([row], slots=[3], keep_at=keep_at)
    assert bench.prefill.positions(3) == (300, keep_at)
    assert holds(bench.errors([row], found, [3]))
    assert holds(bench.state_errors(3, row.tokens[:keep_at], "boundary"))
    bench.whole(row, keep_at)
    kept, run = bench.held(3, "boundary"), bench.held(SPARE)
    assert all(torch.equal(*pair) for name in PARTS for pair in zip(kept[name], run[name], strict=True))
    changed = type(row)(0, row.tokens[:keep_at] + tuple(token % 255 + 1 for token in row.tokens[keep_at:]), row.pages)
    assert holds(bench.errors([changed], bench.call([changed], starts=[keep_at], slots=[3]), [3]))


def test_s003_30_a_restored_snapshot_goes_on_as_if_nothing_had_come_between(bench):
    row, other = bench.rows([300, 300], seed=7)
    for cut in (128, 192):
        bench.forget()
        bench.call([row], ends=[cut], slots=[0], final=False)
        uninterrupted = bench.call([row], starts=[cut], slots=[0])
        wanted = bench.bits([row], [0])
        bench.forget()
        bench.call([row], ends=[cut], slots=[0], final=False)
        snapshot = bench.prefill.snapshot(0)
        bench.call([other], slots=[5])
        bench.prefill.reset(0)
        bench.call([other], ends=[200], slots=[0])
        bench.prefill.restore(7, snapshot)
        assert torch.equal(bench.call([row], starts=[cut], slots=[7]), uninterrupted)
        assert bench.bits([row], [7]) == wanted


@pytest.mark.parametrize("length, keep_at", [(300, None), (200, 64), (96, None)])
def test_s003_30_a_restored_snapshot_goes_on_from_its_boundary_and_from_its_end(bench, length, keep_at):
    """Of a prompt that ended between aligned positions: the state at the boundary is what both begin with."""
    (row,) = bench.rows([320], seed=length)
    bench.call([row], ends=[length], slots=[0], keep_at=keep_at)
    snapshot = bench.prefill.snapshot(0)
    boundary = keep_at or (length - 1) // 128 * 128
    assert (snapshot.end, snapshot.boundary) == (length, boundary)
    for start in filter(None, (boundary, length // 32 * 32 if length % 32 == 0 else 0)):
        bench.prefill.restore(6, snapshot)
        for where, count in (("end", length), ("boundary", boundary)):
            if count:
                assert holds(bench.state_errors(6, row.tokens[:count], where))
        assert holds(bench.errors([row], bench.call([row], starts=[start], slots=[6]), [6]))


@pytest.mark.parametrize("family", HYBRIDS)
def test_declared_dtypes_correlate_with_transformers(family):
    """A head's norm behind the recurrence makes a small sum as large as any other, and rounding with it: where transformers
    itself in bfloat16 is off its float32, a module may be too, but for what an expert more or less does on the whole no more.
    """
    bench, peer = hybrid_bench(family, "declared"), deepcopy(build_peer(family).model).bfloat16()
    routed = bench.geometry.experts is not None
    ours, theirs = [], []
    for seed in range(3):
        bench.forget()
        rows = bench.rows([1, 33, 128, 129, 300, 300], seed)
        for slot, (row, found) in enumerate(zip(rows, bench.call(rows))):
            wanted, held, cache = answer(family, row.tokens), bench.held(slot), bench.cache(row)
            ours.append(pcc(found, wanted.logits))
            with torch.no_grad():
                theirs.append(pcc(peer(torch.tensor([row.tokens])).logits[0, -1].float(), wanted.logits))
            for name, parts in {**held, **cache}.items():
                layers = [pcc(*pair) for pair in zip(parts, getattr(wanted, name), strict=True)]
                assert (
                    min(layers) >= PCC_STORED[routed]
                ), f"{name} of {len(row.tokens)} tokens, layer by layer: {layers}"
    assert median(ours) >= PCC_BFLOAT16_WEIGHTS and min(ours) >= (0.9 if routed else 0.99), sorted(ours)
    assert 1 - mean(ours) <= (3 if routed else 1.5) * (1 - mean(theirs)), (sorted(ours), sorted(theirs))
    assert torch.isfinite(bench.everything()).all()

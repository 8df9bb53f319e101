"""Sampling: what callers may ask for, the values that reach the device, and each row getting its own."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from runtime.errors import InvalidSampling, RequestError, UnknownSampling
from runtime.request import Sampling
from runtime.results import SampledTokens
from runtime.sampling import GREEDY, choice_values, resolve
from tests.support.twins import Rig, traced_rig

MODULE = SimpleNamespace(SAMPLING=("logits", "argmax", "top_k"), TOP_K=32, ROW_SLOTS=32)
DRAW = Sampling(0.8, 10, 0.9)


@pytest.fixture(scope="module")
def rig():
    return traced_rig()


@pytest.mark.parametrize(
    "sampling, path, choices",
    [
        (None, "logits", ()),
        ("logits", "logits", ()),
        ("argmax", "argmax", (GREEDY,) * 2),
        (GREEDY, "argmax", (GREEDY,) * 2),
        ("top_k", "top_k", (Sampling(),) * 2),
        (DRAW, "top_k", (DRAW,) * 2),
        ([Sampling(top_k=1), GREEDY], "argmax", (Sampling(top_k=1), GREEDY)),
        ((GREEDY, DRAW), "top_k", (GREEDY, DRAW)),
    ],
    ids=str,
)
def test_s000_50_none_is_logits_greedy_is_argmax_and_anything_else_draws(sampling, path, choices):
    assert resolve(MODULE, sampling, 2) == (path, choices)


@pytest.mark.parametrize(
    "sampling, served", [(DRAW, "logits, argmax"), ("top_k", "logits, argmax"), (GREEDY, "logits")]
)
def test_s000_50_a_path_that_the_module_lacks_is_refused_by_name(sampling, served):
    module = SimpleNamespace(SAMPLING=tuple(served.split(", ")), ROW_SLOTS=32)
    name = "argmax" if sampling is GREEDY else "top_k"
    sampling = Sampling(0.5, 1) if sampling is GREEDY else sampling
    if isinstance(sampling, Sampling) and name == "top_k":
        sampling = Sampling(0.5)
    with pytest.raises(UnknownSampling, match=f"'{name}' is not served by this module; it serves {served}$"):
        resolve(module, sampling, 2)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": 1e-39}, "temperature is 1e-39; give one whose inverse bfloat16 holds"),
        ({"temperature": True}, "temperature is True"),
        ({"top_k": 0}, "top_k is 0; give 1 to 32, or None for 32"),
        ({"top_k": 33}, "top_k is 33; give 1 to 32"),
        ({"top_k": 2.0}, "top_k is 2.0"),
        ({"top_p": 0.0}, "top_p is 0.0; give a number above 0 and up to 1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": -1}, "seed is -1; give 0 to 4294967295, or None"),
        ({"seed": 1 << 32}, "seed is 4294967296"),
        ({"presence": 2.5}, "presence is 2.5; give a number from -2 to 2"),
        ({"frequency": "a"}, "frequency is 'a'"),
        ({"repetition": 0.0}, "repetition is 0.0; give a number above 0"),
        ({"log_probabilities": 1}, "log_probabilities is 1; give True or False"),
    ],
    ids=str,
)
def test_a_parameter_out_of_range_is_refused_with_its_row(changed, message):
    with pytest.raises(InvalidSampling, match=f"row 1: {message}") as caught:
        resolve(MODULE, [DRAW, Sampling(**changed), DRAW], 3)
    assert caught.value.row == 1


def test_rows_without_a_choice_and_other_containers_are_refused():
    with pytest.raises(InvalidSampling, match="row 1: its sampling is None; give a Sampling"):
        resolve(MODULE, [DRAW, None], 2)
    with pytest.raises(RequestError, match="sampling has 1 entries for 2 rows"):
        resolve(MODULE, [DRAW], 2)
    with pytest.raises(RequestError, match="sampling is int; give None, a path's name"):
        resolve(MODULE, 3, 2)


def test_s000_53_k_p_and_one_over_t_are_padded_to_the_row_slots():
    values = choice_values((Sampling(0.5, 3, 0.25), GREEDY, Sampling(2.0)), 8, 32)
    assert values["top_k"].tolist() == [3, 1, 32, 1, 1, 1, 1, 1]
    assert values["top_p"].tolist() == [0.25, 1, 1, 1, 1, 1, 1, 1]
    assert values["inverse_temperature"].tolist() == [2, 1, 0.5, 1, 1, 1, 1, 1]
    assert {value.dtype for value in values.values()} == {torch.int32, torch.float32}


@pytest.mark.parametrize("traced", [False, True])
def test_b61_each_row_of_a_wave_draws_by_its_own_parameters(rig, traced):
    call = rig.call([40] * 8, seed=2)
    scores = rig.expected(call)
    ranked = scores.argsort(-1, descending=True)
    choices = [Sampling(200.0, 1 + 2 * row, seed=row) if row % 2 else Sampling(0.0) for row in range(8)]
    drawn = []
    for attempt in range(30):
        again = [Sampling(c.temperature, c.top_k, seed=attempt * 8 + row) for row, c in enumerate(choices)]
        drawn.append(rig.prefill.prefill_forward(**vars(call), sampling=again, traced=traced))
    places = torch.stack([(ranked == tokens[:, None]).int().argmax(-1) for tokens in drawn])
    assert bool((places[:, ::2] == 0).all())
    for row in range(1, 8, 2):
        assert int(places[:, row].max()) < choices[row].top_k and len(set(places[:, row].tolist())) > 1


@pytest.mark.parametrize("traced", [False, True])
def test_a_low_temperature_or_a_small_share_draws_the_likeliest(rig, traced):
    call = rig.call([40, 33, 50, 20], seed=3)
    likeliest = rig.expected(call).argmax(-1)
    for choice in (Sampling(1e-3), Sampling(3.0, top_p=1e-3)):
        assert torch.equal(rig.prefill.prefill_forward(**vars(call), sampling=choice, traced=traced), likeliest)
    tokens = [rig.prefill.prefill_forward(**vars(call), sampling=Sampling(200.0, seed=s)) for s in range(3)]
    assert any(not torch.equal(found, likeliest) for found in tokens)


@pytest.mark.parametrize("traced", [False, True])
def test_a_seed_repeats_its_rows_draw_whatever_other_rows_do(rig, traced):
    call = rig.call([40, 33], seed=4)

    def draw(*seeds):
        choices = [Sampling(200.0, seed=seed) for seed in seeds]
        return rig.prefill.prefill_forward(**vars(call), sampling=choices, traced=traced).tolist()

    assert draw(1, 2) == draw(1, 2)
    assert len({draw(1, seed)[0] for seed in (2, 3, None, 5)}) == 1
    assert len({draw(seed, 2)[0] for seed in range(12)}) > 1
    assert len({draw(None, 2)[0] for _ in range(12)}) > 1


@pytest.mark.parametrize("slots", [(7, 3, 11), (0, 1, 2), (31, 0, 15)])
@pytest.mark.parametrize("traced", [False, True])
def test_b60_a_sampled_token_belongs_to_the_slot_of_its_row(rig, slots, traced):
    call = rig.call([60, 40, 290], seed=5)
    by_row = dict(zip(slots, rig.expected(call).argmax(-1).tolist()))
    prepared = rig.prefill.prepare(**vars(call), slots=slots, sampling="argmax")
    by_slot = {}
    for result in rig.prefill.run(prepared, traced=traced):
        found = rig.prefill.collect([result])
        by_slot |= dict(zip(result.slots, found.tolist()))
    assert by_slot == by_row


@pytest.mark.parametrize(
    "sampling", [Sampling(0.0, log_probabilities=True), Sampling(100.0, seed=1, log_probabilities=True)]
)
@pytest.mark.parametrize("traced", [False, True])
def test_log_probabilities_are_those_of_the_chosen_token_under_the_logits(rig, sampling, traced):
    call = rig.call([60, 33, 290], seed=6)
    found = rig.prefill.prefill_forward(**vars(call), sampling=sampling, traced=traced)
    assert isinstance(found, SampledTokens) and found.log_probabilities.dtype == torch.float32
    expected = rig.expected(call).log_softmax(-1).gather(-1, found.tokens[:, None])[:, 0]
    assert torch.allclose(found.log_probabilities, expected, atol=1e-4)


def test_s000_54_log_probabilities_are_merged_by_row_and_absent_where_nobody_asked(rig):
    call = rig.call([60, 290, 33], seed=7)
    asked = [Sampling(0.0, log_probabilities=row != 2) for row in range(3)]
    found = rig.prefill.prefill_forward(**vars(call), sampling=asked)
    assert torch.isnan(found.log_probabilities).tolist() == [False, False, True]
    expected = rig.expected(call).log_softmax(-1).max(-1).values
    assert torch.allclose(found.log_probabilities[:2], expected[:2], atol=1e-4)
    assert found.tokens.tolist() == rig.expected(call).argmax(-1).tolist()
    call = rig.call([64, 33], seed=8)
    sliced = rig.prefill.prefill_forward(**vars(call), sampling=asked[0], final=[False, True])
    rig.prefill.reset(0)
    assert sliced.tokens[0] is None and sliced.log_probabilities[0] is None
    assert float(sliced.log_probabilities[1]) <= 0


def test_s000_27_the_history_of_penalties_is_a_copy_with_minus_one_behind_the_prompt(rig):
    call = rig.call([20, 60, 5])
    before = call.tokens.copy()
    penalised = [Sampling(), Sampling(repetition=1.2), Sampling()]
    plans = rig.prefill.prepare(**vars(call), sampling=penalised)
    histories = {plan.source_rows: plan.history for plan in plans}
    assert histories[(0, 2)] is None
    (history,) = (value for value in histories.values() if value is not None)
    assert history.shape == (1, 60) and history[0].tolist() == before[1, :60].tolist()
    plans = rig.prefill.prepare(**vars(call), sampling=[Sampling(presence=1.0)] * 3)
    history = next(plan.history for plan in plans if plan.source_rows == (0, 2))
    assert history[1].tolist() == [*before[2, :5].tolist(), *[-1] * 15]
    call.tokens[:] = 0
    assert history[0].tolist() == before[0, :20].tolist() and np.array_equal(before[1], before[1])
    assert [choice.presence for plan in plans for choice in plan.choices] == [1.0] * 3


def test_nothing_runs_for_a_call_whose_sampling_is_refused():
    rig = Rig()
    names = []
    rig.device.before_operation = names.append
    with pytest.raises(InvalidSampling):
        rig.prefill.prefill_forward(**vars(rig.call([4])), sampling=[Sampling(top_k=99)])
    assert names == []

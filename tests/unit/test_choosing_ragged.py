"""Ragged waves for the calls of a log: which rows are packed, sizes by brute force, and what it comes to by the runtime's own planner."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import planning
from generator.choosing import ragged
from generator.choosing.prices import Prices
from generator.choosing.ragged import Together, pack_all, sizes_for, together
from generator.choosing.times import Times, ragged_times
from generator.choosing.workload import Workload
from generator.pass_time import attention_time, microseconds, pass_time
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from runtime.packing import Packer
from runtime.replay import Replay

LENGTHS, SIZES, CONTEXT, STEP = (64, 160, 512), (256, 768, 1536, 4096), 2048, 256


@pytest.fixture(scope="module")
def model():
    return planning.resolve(planning.manifest(CONTEXT, 512, 4096, LENGTHS, 64 * CONTEXT // 32, SIZES))


def workload(lengths: list[int], cached: list[int] | None = None) -> Workload:
    count = len(lengths)
    arrays = [np.array(values, dtype=np.int64) for values in (lengths, cached or [0] * count, [1] * count)]
    return Workload(*arrays, None, 0, cached is not None)


def test_rows_are_packed_by_what_a_pass_takes_without_its_attention(model) -> None:
    shapes = enumerate_shapes(model)
    programs = choose_programs(model, shapes)
    priced = microseconds(model, programs, shapes)
    assert {shape.variant for shape in priced} == {"single", "ragged"} and len(priced) == len(LENGTHS) + len(SIZES)
    for shape, price in priced.items():
        attention = attention_time(model, programs, shape)
        assert attention > 0 and price == round(1e6 * (pass_time(model, programs, shape).seconds - attention))
    assert microseconds(replace(model, ragged_tokens=()), programs, shapes) == {}


def test_a_ragged_pass_takes_what_its_rows_do(model) -> None:
    """Equal rows of its share take what the pass is modelled with, and one long row more than many short ones."""
    shapes = enumerate_shapes(model)
    programs, prices = choose_programs(model, shapes), Prices(model)
    for shape in (one for one in shapes if one.variant == "ragged"):
        whole = pass_time(model, programs, shape)
        share = [shape.tokens] * shape.rows
        assert prices.ragged(shape.rows, shape.tokens, share) == pytest.approx(whole.seconds, rel=1e-12)
        assert prices.ragged(shape.rows, shape.tokens, [1] * shape.rows) <= whole.seconds
        assert prices.ragged(shape.rows, shape.tokens, [shape.rows * shape.tokens]) > whole.seconds


def test_rows_that_are_packed_start_a_prompt_and_have_company(model) -> None:
    log = workload([40, 500, 513, 30, 100, 70, 3000, 9, 8], [0, 0, 0, 0, 64, 0, 0, 0, 0])
    calls = np.array([0, 0, 0, 1, 1, 1, 1, 2, 3])
    found = together(log, model, 512, calls)
    assert found.lengths == ((40, 500), (30, 70))
    assert found.members.tolist() == [
        True,
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]  # without the one over the context


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sizes_serve_the_sums_of_calls_in_the_least_time(data) -> None:
    """By brute force, where each call takes one wave: the best of as many sizes as are chosen, the largest among them."""
    last = data.draw(st.integers(2, 7))
    sums = data.draw(st.lists(st.integers(1, last * STEP // 32), min_size=1, max_size=9))
    seconds = np.array(data.draw(st.lists(st.floats(0.1, 5), min_size=last, max_size=last)))
    budget = data.draw(st.integers(1, 5))
    zeros = np.zeros(last)
    found = Times(STEP, STEP * np.arange(1, last + 1), seconds, zeros, zeros, zeros, 0)
    calls = Together(tuple((32 * blocks - 5, 5) if blocks > 1 else (16,) for blocks in sums), np.array([]))
    totals = [sum(-(-length // 32) * 32 for length in call) for call in calls.lengths]
    chosen = sizes_for(calls, found, 32, budget)

    def cost(sizes: tuple[int, ...]) -> float:
        return sum(
            seconds[min(size for size in sizes if size >= total) // STEP - 1]
            for total in totals
            if total <= last * STEP
        )

    if max(totals) > last * STEP:
        return
    every = combinations(range(STEP, last * STEP, STEP), len(chosen) - 1)
    assert len(chosen) <= budget and chosen[-1] == last * STEP
    assert cost(chosen) == pytest.approx(min(cost((*some, last * STEP)) for some in every), rel=1e-12)


def test_a_sum_over_the_largest_wave_is_whole_ones_and_a_rest() -> None:
    assert list(ragged._waves_of(2 * 4096 + 96, 4096)) == [4096, 4096, 96] and list(ragged._waves_of(4096, 4096)) == [
        4096
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(1, 512), min_size=2, max_size=12), min_size=1, max_size=3))
def test_calls_come_to_what_the_runtimes_planner_makes_of_them(calls: list[list[int]]) -> None:
    """Pass by pass, through its admission, against sums over all calls."""
    numbers = planning.resolve(planning.manifest(CONTEXT, 512, 4096, LENGTHS, 64 * CONTEXT // 32, SIZES))
    planner, prices = Replay(planning.tables(numbers)), Prices(numbers)
    seconds, passes, computed = 0.0, 0, 0
    for lengths in calls:
        for plan in planner.plan(lengths, [0] * len(lengths)).plans:
            (chunk,) = plan.chunks
            shape, rows = chunk.shape, [request.length for request in plan.requests]
            passes, computed = passes + 1, computed + shape.rows * shape.tokens
            seconds += (
                prices.ragged(shape.rows, shape.tokens, rows)
                if shape.variant == "ragged"
                else prices.seconds("single", 1, shape.tokens, 0, True)
            )
    found = pack_all(Together(tuple(map(tuple, calls)), np.array([])), prices, numbers.block_size, Packer)
    assert (found.passes, found.computed) == (passes, computed)
    assert found.seconds == pytest.approx(seconds, rel=1e-12)


def test_times_of_ragged_waves_are_those_of_their_passes(model) -> None:
    found, shapes = ragged_times(model), enumerate_shapes(model)
    assert found.lengths.tolist() == list(range(STEP, 4097, STEP))
    for shape in (one for one in shapes if one.variant == "ragged"):
        at = shape.rows * shape.tokens // STEP - 1
        assert found.regular[at] == pytest.approx(
            pass_time(model, choose_programs(model, shapes), shape).seconds, rel=0.02
        )


def test_some_of_the_calls_stand_for_the_tokens_of_all() -> None:
    calls = tuple((100 + 10 * number, 20) for number in range(10))
    whole = Together(calls, np.array([]))
    assert whole.thinned(10) is whole
    some = whole.thinned(4)
    assert some.lengths == calls[::3]
    assert some.weight == sum(map(sum, calls)) / sum(map(sum, calls[::3]))
    numbers = planning.resolve(planning.manifest(CONTEXT, 512, 4096, LENGTHS, 64 * CONTEXT // 32, SIZES))
    prices = Prices(numbers)
    every = [pack_all(Together((call,), np.array([])), prices, numbers.block_size, Packer) for call in calls[::3]]
    found = pack_all(some, prices, numbers.block_size, Packer)
    assert found.seconds == pytest.approx(some.weight * sum(one.seconds for one in every), rel=1e-12)
    assert found.passes == round(some.weight * sum(one.passes for one in every))
    assert found.computed == round(some.weight * sum(one.computed for one in every))

"""Lengths and waves chosen for prompts that arrive together: what calls come to by the runtime's planner, and the optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import planning, request_logs
from generator import catalog, geometry, manifest, targets
from generator.choosing.times import Times
from generator.choosing.waves import calls_of, calls_within, choose_in_waves, evaluate, gaps_of, groups_of, wave_times
from generator.pass_time import pass_times
from generator.shapes import enumerate_shapes
from runtime.admission import Admission
from runtime.planner import Planner
from runtime.slices import SliceCursors
from tests.unit.test_choosing import CONTEXT, STEP, geometry_of, workload

CHUNK = 512


def times_by_rows(seed: int, wave_tokens: int, waves: tuple[int, ...]) -> dict[int, Times]:
    """Any times, for the lengths that each wave may have."""
    draw, found = np.random.default_rng(seed), {}
    for rows in waves:
        count = min(CHUNK, wave_tokens // rows if rows > 1 else CHUNK) // STEP
        regular, chunked, growth, tail = draw.random((4, count))
        lengths = np.arange(1, count + 1) * STEP
        found[rows] = Times(STEP, lengths, regular + 1, chunked + 2, growth / 1000, tail / 10, 10)
    return found


prompts = st.lists(
    st.lists(
        st.tuples(st.one_of(st.integers(1, CONTEXT), st.sampled_from([512, 513, 1024, 33])), st.integers(0, 1)),
        min_size=1,
        max_size=9,
    ),
    min_size=1,
    max_size=3,
)


def seen(
    calls: list[list[tuple[int, int]]], wave_tokens: int, waves: tuple[int, ...], seed: int, lengths: tuple[int, ...]
):
    """Lengths, cached tokens and calls of all prompts; a module's geometry; the groups and times of them."""
    flat = [(length, min(prefix * 512, length // 512 * 512)) for call in calls for length, prefix in call]
    numbers = np.repeat(np.arange(len(calls)), [len(call) for call in calls])
    log = workload([length for length, _ in flat], [cached for _, cached in flat])
    resolved = geometry_of(CONTEXT, CHUNK, lengths)
    by_rows = times_by_rows(seed, wave_tokens, waves)
    return flat, numbers, resolved, groups_of(log, resolved, CHUNK, numbers, by_rows[1]), by_rows


@settings(max_examples=60, deadline=None)
@given(prompts, st.sets(st.integers(1, 15), max_size=3), st.integers(0, 2**16))
def test_calls_come_to_what_the_runtimes_planner_makes_of_them(calls, shorter: set[int], seed: int) -> None:
    """Passes, tokens and seconds of every call, pass by pass, with waves up to 32 rows at the shortest length."""
    lengths = (*(STEP * length for length in sorted(shorter)), CHUNK)
    tokens = max(CHUNK, 32 * lengths[0])
    flat, numbers, resolved, groups, by_rows = seen(calls, tokens, (1, 2, 4, 8, 16, 32), seed, lengths)
    module = planning.tables(resolved)
    choice = evaluate(groups, gaps_of(groups, by_rows, CHUNK), lengths, 0, STEP)
    passes = computed = 0
    seconds = 0.0
    admission, planner = Admission(module, SliceCursors()), Planner(module)
    for number in range(len(calls)):
        rows = [row for row, call in zip(flat, numbers) if call == number]
        width = CONTEXT // planning.BLOCK
        pages = np.arange(len(rows) * width, dtype=np.int32).reshape(len(rows), width)
        prompts = np.zeros((len(rows), max(length for length, _ in rows)), dtype=np.int32)
        admitted = admission.rows(prompts, pages, *map(list, zip(*rows)), None, True)
        for plan in planner.plan(admitted, "logits"):
            for chunk in plan.chunks:
                one, at = by_rows[chunk.shape.rows], chunk.shape.tokens // STEP - 1
                chunked = chunk.shape.read_pages > 0
                passes += 1
                computed += chunk.shape.rows * chunk.shape.tokens
                seconds += one.chunked[at] + chunk.start * one.growth[at] if chunked else one.regular[at]
                if chunk is not plan.chunks[-1]:
                    seconds -= one.tail[at]
    assert (choice.passes, choice.computed) == (passes, computed)
    assert choice.seconds == pytest.approx(seconds, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(prompts, st.integers(0, 2**16), st.integers(1, 3), st.integers(2, 9))
def test_the_choice_for_arrivals_is_the_best_of_all_choices(calls, seed: int, most: int, budget: int) -> None:
    waves = (1, 2, 4)
    _, _, _, groups, by_rows = seen(calls, 1024, waves, seed, (CHUNK,))
    gaps, last = gaps_of(groups, by_rows, CHUNK), CHUNK // STEP
    costs = [sum(end <= len(by_rows[rows].lengths) for rows in waves) for end in range(1, last + 1)]
    chosen = {len(one.lengths): one for one in choose_in_waves(groups, by_rows, waves, CHUNK, costs, most, budget)}
    for count in range(1, most + 1):
        legal = [
            (*some, last)
            for some in combinations(range(1, last), count - 1)
            if sum(costs[at - 1] for at in (*some, last)) <= budget
        ]
        assert (count in chosen) == bool(legal)
        if legal:
            best = min(evaluate(groups, gaps, tuple(STEP * at for at in some), 0, STEP).seconds for some in legal)
            assert chosen[count].seconds == pytest.approx(best, rel=1e-12)


@given(
    st.lists(st.one_of(st.floats(0, 100), st.sampled_from([0.0, 0.25, 0.5, 2.0])), max_size=30),
    st.sampled_from([0.5, 2.0, 1000.0]),
    st.integers(1, 5),
)
def test_a_call_is_what_arrives_within_the_window_of_its_first(gaps: list[float], window: float, rows: int) -> None:
    arrivals = np.cumsum(gaps)
    log = [request_logs.Request(arrival, 1) for arrival in arrivals.tolist()]
    expected = [index for index, call in enumerate(request_logs.calls(log, rows, window)) for _ in call]
    assert calls_of(arrivals, window, rows).tolist() == expected


def test_times_of_waves_are_those_of_their_passes_up_to_the_most_tokens() -> None:
    board = targets.load_board(catalog.BUILT_IN, "p150")
    resolved = geometry.resolve(manifest.load(catalog.BUILT_IN, "gemma-3-1b"), board)
    found = wave_times(resolved, 256)
    assert [len(found[rows].lengths) for rows in (1, 16, 32)] == [8, 8, min(256, resolved.wave_tokens // 32) // 32]
    modelled = pass_times(resolved, enumerate_shapes(resolved))
    for shape in (one for one in modelled if one.rows == 2 and one.tokens <= 256):
        at = np.array([shape.tokens // 32 - 1])
        asked = (at, np.array([shape.read_pages > 0]), np.array([resolved.context // 2]))
        assert found[2].last_pass(*asked)[0] == pytest.approx(modelled[shape].seconds, rel=0.02), shape


def test_prompts_over_the_context_are_in_no_call_and_fill_none() -> None:
    """Two rows to a call: those that do not fit neither begin one nor count in it."""
    log = replace(workload([9000, 10, 9000, 20, 30, 9000, 40]), arrivals=np.array([0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.4]))
    assert calls_within(log, 8192, 1.0, 2).tolist() == [-1, 0, -1, 0, 1, -1, 1]
    assert calls_within(log, 8192, 0.25, 32).tolist() == [-1, 0, -1, 0, 1, -1, 2]


def test_one_call_in_several_stands_for_the_tokens_of_all() -> None:
    lengths = [100, 700, 100, 300, 40, 1500, 260, 33]
    resolved, found = geometry_of(CONTEXT, CHUNK, (64, CHUNK)), times_by_rows(1, 1024, (1,))[1]
    calls = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    some = groups_of(workload(lengths), resolved, CHUNK, calls, found, every=2)
    kept = [100, 700, 40, 1500]
    assert some.weight.tolist() == [sum(lengths) / sum(kept)] * len(kept)
    assert some.ideal_seconds == groups_of(workload(lengths), resolved, CHUNK, calls, found).ideal_seconds
    # What is in groups by itself and equal is one group, as often as it comes.
    again = groups_of(workload([100, 100, 100, 40]), resolved, CHUNK, np.array([0, 1, 2, 2]), found)
    assert sorted(again.weight.tolist()) == [1, 2]

"""The choice of lengths: the optimum by brute force, what a choice comes to by the runtime's own planner, and its limits."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import planning
from generator import catalog, geometry, kinds, manifest, targets
from generator.choosing import limits
from generator.choosing.choose import choose, evaluate, programs_of
from generator.choosing.rows import cut
from generator.choosing.times import Times, times
from generator.choosing.workload import Workload
from generator.cost import time_of
from generator.layer import layer_steps
from generator.matmuls import program_cycles
from generator.pass_time import pass_time, pass_times
from generator.placement import choose_programs, step_work
from generator.shapes import PassShape, enumerate_shapes
from runtime import estimate
from runtime.admission import Admission
from runtime.planner import Planner
from runtime.slices import SliceCursors

CONTEXT, STEP = 2048, 32


def workload(lengths: list[int], cached: list[int] | None = None, weights: list[int] | None = None) -> Workload:
    count = len(lengths)
    arrays = [np.array(values, dtype=np.int64) for values in (lengths, cached or [0] * count, weights or [1] * count)]
    return Workload(*arrays, None, 0, cached is not None)


def geometry_of(context: int, chunk: int, lengths: tuple[int, ...]):
    """With every wave at the shortest length, and blocks for any call."""
    tokens = max(chunk, 32 * lengths[0])
    return planning.resolve(planning.manifest(context, chunk, tokens, lengths, 64 * context // planning.BLOCK))


def times_of(draw: np.random.Generator, count: int) -> Times:
    """Any times: neither rising with the length nor alike between variants."""
    regular, chunked, growth, tail = draw.random((4, count))
    return Times(STEP, np.arange(1, count + 1) * STEP, regular + 1, chunked + 2, growth / 1000, tail / 10, 10)


@st.composite
def instances(draw):
    """A chunk of up to eight lengths, prompts below, at and over it, cached prefixes, and costs in programs."""
    steps = 4 * draw(st.integers(1, 2))
    lengths = draw(st.lists(st.integers(1, 3 * steps * STEP), min_size=1, max_size=12))
    cached = [draw(st.integers(0, length // 512)) * 512 for length in lengths]
    costs = [draw(st.integers(1, 4)) for _ in range(steps)]
    seed, most, budget = draw(st.integers(0, 2**16)), draw(st.integers(1, 5)), draw(st.integers(1, 14))
    return steps, lengths, cached, costs, seed, most, budget


@settings(max_examples=60, deadline=None)
@given(instances())
def test_the_choice_is_the_best_of_all_choices(instance) -> None:
    """By brute force: every set of lengths that ends with the chunk, under both limits."""
    steps, lengths, cached, costs, seed, most, budget = instance
    chunk = steps * STEP
    resolved = geometry_of(CONTEXT, chunk, (chunk,))
    asked, found = cut(workload(lengths, cached), resolved, chunk), times_of(np.random.default_rng(seed), steps)
    chosen = {len(choice.lengths): choice for choice in choose(asked, found, chunk, costs, most, budget)}
    for count in range(1, most + 1):
        legal = [
            (*some, steps)
            for some in combinations(range(1, steps), count - 1)
            if sum(costs[at - 1] for at in (*some, steps)) <= budget
        ]
        if not legal:
            assert count not in chosen
            continue
        best = min(evaluate(asked, found, tuple(STEP * at for at in some), 0).seconds for some in legal)
        assert chosen[count].seconds == pytest.approx(best, rel=1e-12)
        assert chosen[count].programs == sum(costs[length // STEP - 1] for length in chosen[count].lengths) <= budget


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, CONTEXT), st.sampled_from([512, 513, 1024])), min_size=1, max_size=6),
    st.sets(st.integers(1, 15), max_size=4),
    st.integers(0, 2),
)
def test_a_choice_comes_to_what_the_runtimes_planner_makes_of_it(
    prompts: list[int], shorter: set[int], prefix: int
) -> None:
    """Passes and tokens of every prompt by itself, and the seconds of its passes one by one."""
    lengths = (*(STEP * length for length in sorted(shorter)), 512)
    resolved = geometry_of(CONTEXT, 512, lengths)
    module = planning.tables(resolved)
    cached = [min(prefix * 512, length // 512 * 512) for length in prompts]
    asked, found = cut(workload(prompts, cached), resolved, 512), times_of(np.random.default_rng(1), 16)
    choice = evaluate(asked, found, lengths, 0)
    passes = computed = 0
    seconds = 0.0
    admission, planner = Admission(module, SliceCursors()), Planner(module)
    for length, start in zip(prompts, cached):
        pages = np.arange(-(-length // planning.BLOCK), dtype=np.int32)[None]
        rows = admission.rows(np.zeros((1, length), dtype=np.int32), pages, [length], [start], None, True)
        (plan,) = planner.plan(rows, "logits")
        passes += len(plan.chunks)
        for chunk in plan.chunks:
            at = chunk.shape.tokens // STEP - 1
            chunked = chunk.shape.variant == "chunked"
            computed += chunk.shape.tokens
            seconds += found.chunked[at] + chunk.start * found.growth[at] if chunked else found.regular[at]
            if chunk is not plan.chunks[-1]:
                seconds -= found.tail[at]
    assert (choice.passes, choice.computed) == (passes, computed)
    assert choice.seconds == pytest.approx(seconds, rel=1e-12)


def test_prompts_are_counted_once_each_and_by_their_uncached_tokens() -> None:
    asked = cut(
        workload([100, 100, 3000, 600, 512], [0, 0, 0, 512, 512], [1, 2, 5, 1, 1]),
        geometry_of(CONTEXT, 512, (512,)),
        512,
    )
    assert (asked.requests, asked.refused, asked.real, asked.cached) == (10, 5, 300 + 88 + 1, 512 + 511)
    assert asked.rows.weight.sum() == 5 and len(asked.rows.rest) == 3
    assert (asked.rows.start == np.where(asked.rows.rest == 128, 384, asked.rows.start)).all()


def test_without_padding_nothing_is_over_the_ideal_and_between_lengths_it_goes_in_proportion() -> None:
    found = Times(32, np.array([32, 64, 96]), np.array([1.0, 3.0, 2.0]), *np.zeros((3, 3)), 1)
    rest = np.array([1, 32, 48, 64, 80, 96])
    ideal = found.ideal(rest, np.zeros(6, dtype=bool), np.zeros(6))
    assert ideal.tolist() == [1.0, 1.0, 1.5, 2.0, 2.0, 2.0]  # 64 tokens are quicker in a pass of 96


def resolved_of(model: str, target: str):
    return geometry.resolve(manifest.load(catalog.BUILT_IN, model), targets.load_board(catalog.BUILT_IN, target))


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gemma-3-1b", "qwen3.5-9b", "gemma-2-2b"])
def test_times_are_those_of_the_modules_passes(model: str) -> None:
    """In the middle of the context for chunks; a module lacks some passes that share a table of programs here."""
    resolved = resolved_of(model, "n150")
    found = times(resolved, 512)
    for shape, time in pass_times(resolved, enumerate_shapes(resolved)).items():
        if shape.rows == 1 and shape.tokens <= 512:
            chunked, start = shape.read_pages > 0, resolved.context // 2
            at = np.array([shape.tokens // STEP - 1])
            assert found.last_pass(at, np.array([chunked]), np.array([start]))[0] == pytest.approx(
                time.seconds, rel=0.02
            ), shape


@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen3.5-9b"])
def test_a_chunks_time_grows_with_its_start_as_the_times_say(model: str) -> None:
    """Within a hundredth at any start: attention is the slower of reading and multiplying, so not quite a line."""
    resolved = resolved_of(model, "n150")
    found, (shape,) = times(resolved, 256), [
        one for one in enumerate_shapes(resolved) if (one.variant, one.rows, one.tokens) == ("chunked", 1, 256)
    ]
    programs = choose_programs(resolved, enumerate_shapes(resolved))
    middle = pass_time(resolved, programs, shape, resolved.context // 2).seconds
    scale = found.last_pass(np.array([7]), np.array([True]), np.array([resolved.context // 2]))[0] / middle
    for start in (0, 128, 4096, resolved.context - 256):
        line = found.last_pass(np.array([7]), np.array([True]), np.array([start]))[0]
        assert line == pytest.approx(scale * pass_time(resolved, programs, shape, start).seconds, rel=0.01)


def test_a_chunk_at_the_middle_of_the_context_is_the_planned_one() -> None:
    """Where steps put it of their own accord, so that other starts are placed on the same scale."""
    resolved = resolved_of("llama-3.2-1b", "n150")
    chunk = PassShape("chunked", 1, 256, 8, resolved.context // 32, "last", "")
    programs = choose_programs(resolved, (chunk,))
    roles = {role.name: role for role in kinds.layer_matmuls(resolved)}
    cycles = {
        name: program_cycles(
            resolved.board.rates.core, programs.matmuls[name, 8], *role.sides(8), role.weight_dtype, role.fused
        )
        for name, role in roles.items()
    }
    steps = layer_steps(resolved, chunk, programs.attentions[chunk], "full")
    works = [step_work(resolved, step, programs.places[8], cycles) for step in steps]
    layer = sum(time_of(work, resolved.board.rates).seconds for work in works)
    at_start, middle = (pass_time(resolved, programs, chunk, start) for start in (0, resolved.context // 2))
    assert middle.operations == resolved.layers * len(steps) + 3  # tokens, cosines and sines
    assert resolved.layers * layer < middle.body < resolved.layers * layer + 1e-3
    assert at_start.body < 0.8 * middle.body


def test_attention_is_charged_a_row_and_never_across_the_rows_of_a_wave() -> None:
    """Eight rows of 256 attend less than one of 2,048 and cost no more than it for the rest."""
    resolved = resolved_of("llama-3.2-1b", "n150")
    wave = PassShape("batched", 8, 256, 64, 0, "last", "")
    alone = PassShape("single", 1, 2048, 64, 0, "last", "")
    programs = choose_programs(resolved, (wave, alone))
    assert pass_time(resolved, programs, wave).body < pass_time(resolved, programs, alone).body


def test_programs_of_a_length_are_counted_in_both_variants() -> None:
    waves = (1, 2, 4, 8)
    assert [programs_of(length, waves, 4096, 2) for length in (128, 1024, 2048, 4096)] == [8, 6, 4, 2]
    resolved = geometry_of(CONTEXT, 512, (256, 512))
    counted = sum(programs_of(length, resolved.waves, resolved.wave_tokens, 2) for length in resolved.lengths)
    assert counted == len(planning.tables(resolved).TRACES)


def test_traces_are_estimated_as_the_runtime_estimates_them() -> None:
    board = targets.load_board(catalog.BUILT_IN, "n150")
    module = SimpleNamespace(BOARD=SimpleNamespace(grid=board.grid))
    assert limits.trace_bytes(600, board) == estimate.trace_bytes(module, 600)
    assert limits.most_traces(600, board) == board.trace_region_bytes // estimate.trace_bytes(module, 600)

"""What passes take to compile, and choices that are within a limit of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import catalog, geometry, manifest, targets
from generator.choosing.choose import any_lengths, best_lengths, grids
from generator.choosing.compiling import Compiling, compiling, passes_of
from generator.shapes import enumerate_shapes

STEP = 32
KERNELS = Compiling(once=100, size=10, own={"single": 5, "chunked": 7, "ragged": 3}, seconds_each=0.5)


def resolve(model: str, target: str):
    return geometry.resolve(manifest.load(catalog.BUILT_IN, model), targets.load_board(catalog.BUILT_IN, target))


def test_passes_of_as_many_tokens_share_what_is_compiled() -> None:
    alone = KERNELS.targets([("single", 64)])
    assert alone == 115
    assert KERNELS.targets([("single", 64), ("chunked", 64)]) == alone + 7
    assert KERNELS.targets([("single", 64), ("chunked", 128)]) == alone + 17
    assert KERNELS.seconds([("single", 64)]) == alone / 2
    assert KERNELS.seconds_of_a_size("ragged") == 13 / 2


@pytest.mark.parametrize(
    "model, target", [("llama-3.1-8b", "n150"), ("gemma-2-9b", "n150"), ("gpt-oss-20b", "p150"), ("qwen3.5-9b", "p150")]
)
def test_the_passes_of_a_manifests_choice_are_those_of_its_module(model: str, target: str) -> None:
    resolved = resolve(model, target)
    passes = passes_of(resolved, resolved.lengths, resolved.waves, resolved.ragged_tokens)
    assert sorted(passes) == sorted((shape.variant, shape.rows * shape.tokens) for shape in enumerate_shapes(resolved))


def test_every_variant_that_a_module_may_have_is_counted() -> None:
    for model, target in (("llama-3.1-8b", "n150"), ("gemma-2-9b", "n150"), ("gemma-3-1b", "p150")):
        of = compiling(resolve(model, target))
        assert {shape.variant for shape in enumerate_shapes(resolve(model, target))} <= of.own.keys()
        assert min(of.once, of.size, *of.own.values()) > 0
    two_kinds, one_kind = (compiling(resolve(model, "p150")).own for model in ("gemma-3-1b", "llama-3.1-8b"))
    assert all(two_kinds[variant] == 2 * one_kind[variant] for variant in one_kind)


@st.composite
def instances(draw):
    steps = draw(st.integers(2, 7))
    costs = [draw(st.integers(1, 4)) for _ in range(steps)]
    return steps, costs, draw(st.integers(0, 2**16)), draw(st.integers(1, 5)), draw(st.integers(2, 16))


@settings(max_examples=60, deadline=None)
@given(instances())
def test_what_is_not_accepted_is_not_chosen_and_the_best_of_the_rest_is(instance) -> None:
    """By brute force over all lengths of as many programs, whose compilation is taken to grow with their programs."""
    steps, costs, seed, most, limit = instance
    gaps = np.random.default_rng(seed).random((steps + 1, steps + 1)) + 0.1

    def programs(lengths: tuple[int, ...]) -> int:
        return sum(costs[length // STEP - 1] for length in lengths)

    def seconds(lengths: tuple[int, ...]) -> float:
        ends = [length // STEP for length in lengths]
        return sum(gaps[below, end] for below, end in zip([0, *ends], ends))

    found = best_lengths(gaps, STEP, costs, most, 100, lambda lengths: programs(lengths) <= limit)
    chosen = {len(lengths): lengths for lengths, _ in found}
    for count in range(1, min(most, steps) + 1):
        legal = [
            lengths
            for some in combinations(range(1, steps), count - 1)
            if programs(lengths := tuple(STEP * at for at in (*some, steps))) <= limit
        ]
        assert (count in chosen) == bool(legal)
        if legal:
            assert seconds(chosen[count]) == pytest.approx(min(map(seconds, legal)), rel=1e-12)
            assert dict(found)[chosen[count]] == programs(chosen[count]) <= limit


def test_lengths_that_are_multiples_of_each_other_are_tried_where_not_all_are_accepted() -> None:
    """Waves of 2 and 4 rows: 32, 64 and 128 have passes of five numbers of tokens together, where three others may have nine."""
    assert list(grids([3, 3, 2, 2], 9, any_lengths)) == [[3, 3, 2, 2]]
    costs = list(grids([3, 3, 2, 2], 9, lambda lengths: True))
    assert costs == [[3, 3, 2, 2], [10, 3, 10, 2], [10, 10, 10, 2]]
    # 96 serves a little better than 64, and has no wave with as many tokens as one of the others.
    gaps = np.array([[0.0, 1.0, 2.0, 1.0, 4.0]] * 5)
    gaps[2, 4] = gaps[3, 4] = 1.5

    def sizes(lengths: tuple[int, ...]) -> int:
        return len({rows * length for length in lengths for rows in (1, 2, 4)})

    def chosen(most: int) -> list[tuple[int, ...]]:
        accept = lambda lengths: sizes(lengths) <= most  # noqa: E731
        found = [one for grid in grids([1] * 4, 9, accept) for one in best_lengths(gaps, STEP, grid, 2, 9, accept)]
        return [lengths for lengths, _ in found if len(lengths) == 2]

    assert chosen(6)[0] == (96, 128) and chosen(4) == [(64, 128)]

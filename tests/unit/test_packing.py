"""Packing of rows into ragged waves, beside all ways that there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.packing import FEW, Packer, _fullest, _sums

BLOCK = 32
PRICES = (
    {  # as a module of the smallest model has them: a pass costs something however short, and then what its tokens do
        (1, 64): 34402,
        (1, 256): 40578,
        (1, 768): 96618,
        (1, 2048): 249520,
        (8, 32): 40578,
        (16, 32): 67412,
        (32, 32): 127477,
        (32, 64): 249520,
        (32, 128): 494230,
    }
)
ROUNDED = {  # passes bound by reading weights, so that a pass more is what costs
    (1, 32): 58000,
    (1, 640): 98000,
    (8, 32): 75000,
    (16, 32): 91000,
    (24, 64): 155000,
    (32, 128): 320000,
}
UNEVEN = {(1, 128): 10, (1, 512): 30, (8, 32): 25, (16, 32): 24, (32, 32): 70}  # 512 tokens cost less than 256


def price(prices: dict[tuple[int, int], float], lengths: Sequence[int], delay: float = inf) -> float:
    """Of the cheapest pass that takes these rows; inf where none does."""
    blocks = sum(-(-length // BLOCK) for length in lengths)
    singles = sorted(tokens for rows, tokens in prices if rows == 1)
    own = [prices[1, next(tokens for tokens in singles if tokens >= length)] for length in lengths]
    if len(lengths) == 1:
        return own[0]
    fitting = [
        cost
        for (rows, tokens), cost in prices.items()
        if len(lengths) <= rows and blocks <= rows * tokens // BLOCK and cost - min(own) <= delay
    ]
    return min(fitting, default=inf)


def exact(prices: dict[tuple[int, int], float], lengths: Sequence[int], delay: float = inf) -> float:
    """The least that these rows can cost, by all their partitions."""

    @cache
    def least(rows: frozenset[int]) -> float:
        if not rows:
            return 0.0
        first, *others = sorted(rows)
        return min(
            price(prices, [lengths[row] for row in (first, *beside)], delay) + least(rows - {first, *beside})
            for count in range(len(others) + 1)
            for beside in combinations(others, count)
        )

    return least(frozenset(range(len(lengths))))


def packed(prices: dict[tuple[int, int], float], lengths: Sequence[int], delay: float = inf) -> float:
    """What the packer makes of rows, once it is seen to be legal."""
    waves = Packer(prices, BLOCK, delay).pack(lengths)
    assert sorted(row for _, rows in waves for row in rows) == list(range(len(lengths)))
    assert [rows[0] for _, rows in waves] == sorted(rows[0] for _, rows in waves)
    for (rows, tokens), members in waves:
        assert list(members) == sorted(members) and len(members) <= rows and (rows, tokens) in prices
        assert sum(-(-lengths[row] // BLOCK) for row in members) <= rows * tokens // BLOCK
        assert (rows == 1) == (len(members) == 1)
        assert prices[rows, tokens] >= price(prices, [lengths[row] for row in members], delay)
    return sum(prices[size] for size, _ in waves)


def longest(prices: dict[tuple[int, int], float]) -> int:
    return max(tokens for rows, tokens in prices if rows == 1)


@pytest.mark.parametrize("prices", [PRICES, ROUNDED, UNEVEN])
@pytest.mark.parametrize("delay", [inf, 60000, 8, 0])
def test_few_rows_cost_what_the_best_of_all_ways_costs(prices: dict, delay: float) -> None:
    draw = np.random.default_rng(0)
    for _ in range(60):
        lengths = drawn(prices, draw, int(draw.integers(1, FEW + 1)))
        assert packed(prices, lengths, delay) == pytest.approx(exact(prices, lengths, delay), rel=1e-12)


def drawn(prices: dict, draw: np.random.Generator, count: int) -> list[int]:
    return [int(length) for length in np.ceil(longest(prices) ** draw.random(count))]


@pytest.mark.parametrize("prices", [PRICES, ROUNDED, UNEVEN])
@pytest.mark.parametrize("delay", [inf, 60000, 8, 0])
def test_more_rows_cost_little_more_than_the_best_of_all_ways(prices: dict, delay: float) -> None:
    """Never less, half of the time the same, and 3 % more in the mean at most."""
    draw, ratios = np.random.default_rng(0), []
    for _ in range(20):
        lengths = drawn(prices, draw, int(draw.integers(FEW + 1, FEW + 3)))
        best, found = exact(prices, lengths, delay), packed(prices, lengths, delay)
        assert found >= best - 1e-9
        ratios.append(found / best)
    assert np.mean(ratios) < 1.03 and np.mean(np.array(ratios) < 1 + 1e-9) > 0.5


@settings(max_examples=200)
@given(st.sampled_from([PRICES, ROUNDED, UNEVEN]), st.data())
def test_any_call_is_packed_whole_and_costs_no_more_than_rows_by_themselves(prices: dict, data) -> None:
    lengths = data.draw(st.lists(st.integers(1, longest(prices)), min_size=1, max_size=40))
    delay = data.draw(st.sampled_from([0, 8, 60000, inf]))
    assert packed(prices, lengths, delay) <= sum(price(prices, [length]) for length in lengths)


def test_rows_at_the_edges_of_a_wave() -> None:
    """Whole blocks: 32 tokens take one and 33 two. Eight blocks are one wave of 256, nine the next larger."""
    pack = Packer(PRICES, BLOCK).pack
    assert pack([32] * 8) == [((8, 32), tuple(range(8)))]
    assert pack([33] + [32] * 7) == [((16, 32), tuple(range(8)))]
    assert pack([1] * 33) == [((32, 32), tuple(range(32))), ((1, 64), (32,))]  # no wave takes more than 32 rows
    assert pack([2048, 2048]) == [((32, 128), (0, 1))] and pack([100]) == [((1, 256), (0,))]


def test_a_wave_that_holds_the_tokens_and_not_the_rows_gives_way_to_a_larger_one() -> None:
    prices = {(1, 32): 58000, (24, 64): 1000, (32, 128): 1001}
    assert [size for size, _ in Packer(prices, BLOCK).pack([1] * 30)] == [(32, 128)]
    assert packed(ROUNDED, [1] * 40) <= 40 * 58000


def test_a_wave_that_costs_less_is_taken_before_a_smaller_one() -> None:
    assert Packer(UNEVEN, BLOCK).pack([100, 100]) == [((1, 128), (0,)), ((1, 128), (1,))]
    assert Packer({**UNEVEN, (1, 128): 20}, BLOCK).pack([100, 100]) == [((16, 32), (0, 1))]


def test_a_delay_keeps_short_rows_out_of_long_waves() -> None:
    """A row of 40 tokens alone takes 34 ms; with one of 2000 it would wait for 249 ms."""
    free, bound = (Packer(PRICES, BLOCK, delay).pack([2000, 40, 40]) for delay in (inf, 50000))
    assert free == [((32, 128), (0, 1, 2))] or len(free) < 3
    assert bound == [((1, 2048), (0,)), ((8, 32), (1, 2))]
    assert Packer(PRICES, BLOCK, 0).pack([40, 40]) == [((1, 64), (0,)), ((1, 64), (1,))]


@given(st.lists(st.integers(1, 12), max_size=8), st.integers(0, 40), st.integers(0, 3), st.integers(0, 9))
def test_the_fullest_subset_is_that_of_all_subsets(blocks: list[int], room: int, rows_more: int, more: int) -> None:
    """From the sums of these rows, or of some more of them and of more blocks, in which others have a wave filled too."""
    sums = _sums(range(len(blocks) + rows_more), [*blocks, *range(1, rows_more + 1)], room + more)
    chosen = _fullest(range(len(blocks)), blocks, sums, room)
    assert len(set(chosen)) == len(chosen)
    sums = {sum(subset) for count in range(len(blocks) + 1) for subset in combinations(blocks, count)}
    assert sum(blocks[row] for row in chosen) == max(total for total in sums if total <= room)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 2048), st.integers(1, 64)), min_size=2, max_size=11),
    st.sampled_from([inf, 60000, 30000, 7000]),
)
def test_the_longest_row_gets_the_wave_that_costs_least_for_what_it_holds(lengths: list[int], delay: float) -> None:
    """By brute force over every wave and every set of the longest rows beside it that may wait for it."""
    few = {(3, 96) if size == (8, 32) else size: price for size, price in PRICES.items()}  # most rows of a wave bind
    packer = Packer(few, BLOCK, delay)
    blocks = [-(-length // BLOCK) for length in lengths]
    first, *others = sorted(range(len(lengths)), key=lambda row: (-blocks[row], row))
    alone = [
        min((tokens, price) for (rows, tokens), price in few.items() if rows == 1 and tokens >= length)[1]
        for length in lengths
    ]
    rates = [alone[first] / blocks[first]]
    for (rows, tokens), price in few.items():
        may = [row for row in others if price - alone[row] <= delay] if price - alone[first] <= delay else []
        may = may[: rows - 1]  # as many of the longest as the wave takes
        for beside in (set_ for count in range(1, min(rows, len(may) + 1)) for set_ in combinations(may, count)):
            held = blocks[first] + sum(blocks[row] for row in beside)
            if rows > 1 and held * BLOCK <= rows * tokens:
                rates.append(price / held)
    _, waves = packer._filled([first, *others], blocks, lengths)
    size, members = waves[0]
    assert members[0] == first and len(members) <= size[0]
    assert few[size] / sum(blocks[row] for row in members) == pytest.approx(min(rates), rel=1e-12)

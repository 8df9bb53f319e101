"""Rows of any lengths -> ragged waves, by the modelled time of passes.

A ragged wave takes rows back to back, each in whole blocks, so that only what is left of its last block is padding, and of the
wave what no row fills. Attention costs a row the same wherever it runs; the rest of a pass costs what its tokens cost, full or not.
Which rows share a pass is therefore bin packing with bins of a few sizes, each at its price. A few rows are packed in the best of
all ways. Of more, two ways are tried and the cheaper is taken: rows in the order of their lengths, cut where it costs least (a
shortest path), and one pass after another filled as full as can be (a sum of a subset).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf

Size = tuple[int, int]  # rows and tokens a row of a pass, as its Shape states them
Wave = tuple[Size, tuple[int, ...]]  # a pass, and which rows run in it
MICROSECONDS = 1e6  # of a second: what a module's prices are in
FEW = 7  # rows whose every partition is looked at: about a thousand waves, in half a millisecond


class Packer:
    """`prices`: what each pass from the start of a prompt costs without attention, of one row or of a ragged wave. `delay`: by how
    much, in the unit of the prices, the pass of a row may cost more than the one that it has by itself.
    """

    def __init__(self, prices: Mapping[Size, float], block_size: int, delay: float = inf) -> None:
        self._block = block_size
        self._delay = delay
        self._lengths = sorted(tokens for rows, tokens in prices if rows == 1)
        self._alone = [prices[1, tokens] for tokens in self._lengths]
        waves = sorted(
            (rows * tokens // block_size, prices[rows, tokens], (rows, tokens)) for rows, tokens in prices if rows > 1
        )
        self._blocks = [blocks for blocks, _, _ in waves]
        self._prices = [price for _, price, _ in waves]
        self._sizes = [size for _, _, size in waves]
        # A larger wave may be the cheaper one: of each, the cheapest that is at least as large.
        cheapest = list(range(len(waves)))
        for at in reversed(range(len(waves) - 1)):
            if self._prices[cheapest[at + 1]] < self._prices[at]:
                cheapest[at] = cheapest[at + 1]
        # By a number of blocks: the wave that takes them most cheaply.
        most = max(self._blocks, default=-1)
        self._holding = [cheapest[bisect_left(self._blocks, blocks)] for blocks in range(most + 1)]

    def pack(self, lengths: Sequence[int]) -> list[Wave]:
        """Every row once, in the order of the first row of each wave; rows of a wave in their order."""
        if len(lengths) == 1:
            return [((1, self._lengths[self._single(lengths[0])]), (0,))]
        tokens = [-(-length // self._block) for length in lengths]
        order = sorted(range(len(lengths)), key=lambda row: (-tokens[row], row))
        ways_of = (self._best,) if len(order) <= FEW else (self._cut, self._filled)
        ways = [way(order, tokens, lengths) for way in ways_of]
        waves = min(ways, key=lambda way: way[0])[1]
        return sorted(((size, tuple(sorted(rows))) for size, rows in waves), key=lambda wave: wave[1])

    def _single(self, length: int) -> int:
        """Which of the lengths a row of so many tokens takes by itself."""
        return bisect_left(self._lengths, length)

    def _wave(self, blocks: int, rows: int) -> int | None:
        """Which wave takes so many blocks of several rows most cheaply."""
        if blocks >= len(self._holding):
            return None
        at = self._holding[blocks]
        if rows <= self._sizes[at][0]:
            return at
        larger = [other for other in range(at + 1, len(self._blocks)) if rows <= self._sizes[other][0]]
        return min(larger, key=self._prices.__getitem__, default=None)

    def _best(self, order: Sequence[int], tokens: Sequence[int], lengths: Sequence[int]) -> tuple[float, list[Wave]]:
        """The cheapest of all partitions: of every set of rows (a mask of their places) the wave of its first row, which may have
        any of the others beside it, and what is left.
        """
        alone = [self._single(lengths[row]) for row in order]
        blocks = [0] * (1 << len(order))
        best: list[tuple[float, int, Size]] = [
            (0.0, 0, (0, 0))
        ]  # of a set: price, the set in its first row's wave, which it is
        for rows in range(1, len(blocks)):
            first = rows & -rows
            place, others = first.bit_length() - 1, rows ^ first
            blocks[rows] = blocks[others] + tokens[order[place]]
            own = alone[place]
            found = (self._alone[own] + best[others][0], first, (1, self._lengths[own]))
            beside = others
            while beside:
                wave = first | beside
                at = self._wave(blocks[wave], wave.bit_count())
                if at is not None:
                    # Places go from the longest row to the shortest, the highest bit.
                    price, shortest = self._prices[at], self._alone[alone[wave.bit_length() - 1]]
                    if price - shortest <= self._delay and price + best[rows ^ wave][0] < found[0]:
                        found = (price + best[rows ^ wave][0], wave, self._sizes[at])
                beside = (beside - 1) & others
            best.append(found)
        waves, rows = [], len(best) - 1
        while rows:
            _, wave, size = best[rows]
            waves.append((size, tuple(row for place, row in enumerate(order) if wave >> place & 1)))
            rows ^= wave
        return best[-1][0], waves

    def _cut(self, order: Sequence[int], tokens: Sequence[int], lengths: Sequence[int]) -> tuple[float, list[Wave]]:
        """Rows from the longest to the shortest, neighbours together."""
        alone = [self._single(lengths[row]) for row in order]
        best: list[tuple[float, int, Size]] = [
            (0.0, 0, (0, 0))
        ]  # of the first rows: price, where their last wave begins, which it is
        for end, single in enumerate(alone, 1):
            own = self._alone[single]
            found = (best[end - 1][0] + own, end - 1, (1, self._lengths[single]))
            blocks = tokens[order[end - 1]]
            for begin in reversed(range(end - 1)):
                blocks += tokens[order[begin]]
                at = self._wave(blocks, end - begin)
                if at is None:
                    break
                price = self._prices[at]
                if price - own <= self._delay and best[begin][0] + price < found[0]:
                    found = (best[begin][0] + price, begin, self._sizes[at])
            best.append(found)
        waves, end = [], len(order)
        while end:
            _, begin, size = best[end]
            waves.append((size, tuple(order[begin:end])))
            end = begin
        return best[-1][0], waves

    def _filled(self, order: Sequence[int], tokens: Sequence[int], lengths: Sequence[int]) -> tuple[float, list[Wave]]:
        """The longest row left, with those that fill some wave best, in the wave that costs least for what it holds."""
        single = {row: self._single(lengths[row]) for row in order}
        left, total, waves = list(order), 0.0, []
        while left:
            first, others = left[0], left[1:]
            own = self._alone[single[first]]
            best = (own / tokens[first], own, (1, self._lengths[single[first]]), (first,))
            quickest = min([self._alone[single[row]] for row in others], default=inf)
            sums: list[int] = []  # of all others, once for every wave
            for blocks, price, size in zip(self._blocks, self._prices, self._sizes):
                if blocks <= tokens[first] or price - own > self._delay or price / blocks >= best[0]:
                    continue
                room = blocks - tokens[first]
                if price - quickest > self._delay:
                    fitting = [row for row in others if price - self._alone[single[row]] <= self._delay]
                    filling = _fullest(fitting[: size[0] - 1], tokens, _sums(fitting, tokens, room), room)
                else:
                    sums = sums or _sums(others, tokens, self._blocks[-1] - tokens[first])
                    filling = _fullest(others[: size[0] - 1], tokens, sums, room)
                rows = (first, *filling)
                if len(rows) > 1 and (rate := price / sum(tokens[row] for row in rows)) < best[0]:
                    best = (rate, price, size, rows)
            total += best[1]
            waves.append((best[2], best[3]))
            left = [row for row in left if row not in best[3]]
        return total, waves


def _sums(rows: Sequence[int], tokens: Sequence[int], room: int) -> list[int]:
    """Of the first rows, none, one, two and so on: bit n where some of them take n of so many blocks."""
    kept, sums = (1 << room + 1) - 1, [1]
    for row in rows:
        sums.append((sums[-1] | sums[-1] << tokens[row]) & kept)
    return sums


def _fullest(rows: Sequence[int], tokens: Sequence[int], sums: Sequence[int], room: int) -> list[int]:
    """Those of the rows that fill most of so many blocks; `sums` are of these rows, and may be of more of them and more blocks."""
    reached, chosen = (sums[len(rows)] & (1 << room + 1) - 1).bit_length() - 1, []
    for before, row in zip(reversed(sums[: len(rows)]), reversed(rows)):
        if not before >> reached & 1:
            chosen.append(row)
            reached -= tokens[row]
    return chosen

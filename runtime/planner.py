"""Rows -> waves and chunk sequences, by looking up the module's tables and nothing else.

A row without a cached prefix that fits a length runs in the smallest such length, packed with the other rows of that
length: as many of the largest wave as the rows fill, then the smallest wave that holds the rest (9 rows with waves up
to 8 run as 8 + 1, 3 as a padded 4). Every other row runs in chunks: whole prefill chunks from where it begins and,
last, the smallest length that holds what is left. Rows that begin at the same position and are cut alike share their
chunks where the tables have shapes for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from types import ModuleType

from runtime.errors import NoShape
from runtime.request import PreparedPrefill, PrefillChunk, PrefillRequest
from runtime.tables import Shape


def smallest_wave(rows: Iterable[int]) -> tuple[int, ...]:
    """For sizes of waves: entry n is the smallest that holds n rows, up to the largest of them (entry 0 is unused)."""
    sizes = sorted(rows)
    return tuple([sizes[bisect_left(sizes, count)] for count in range(sizes[-1] + 1)]) if sizes else (0,)


def split(count: int, waves: tuple[int, ...]) -> list[tuple[int, int]]:
    """Cut `count` rows into waves of the `smallest_wave` table: (real rows, padded rows) of each, in order."""
    largest = len(waves) - 1
    cut = [(largest, waves[largest])] * (count // largest)
    rest = count % largest
    if rest:
        cut.append((rest, waves[rest]))
    return cut


class Planner:
    """The lookups of one module, built once."""

    def __init__(self, module: ModuleType) -> None:
        self._chunk: int = module.PREFILL_CHUNK
        self._shapes: dict[tuple[bool, int, int], Shape] = {}
        packed: dict[int, set[int]] = {}
        chunked: dict[int, set[int]] = {}
        for shape in module.TRACES:
            is_chunked = shape.read_pages > 0
            self._shapes[is_chunked, shape.rows, shape.tokens] = shape
            (chunked if is_chunked else packed).setdefault(shape.tokens, set()).add(shape.rows)
        whole = chunked.get(self._chunk, set())
        self._lengths = sorted(packed)
        self._chunk_lengths = sorted(chunked)
        self._waves = {tokens: smallest_wave(rows) for tokens, rows in packed.items()}
        self._chunk_waves = {(False, tokens): smallest_wave(rows) for tokens, rows in chunked.items()}
        self._chunk_waves |= {(True, tokens): smallest_wave(rows & whole) for tokens, rows in chunked.items()}

    def plan(
        self, requests: tuple[PrefillRequest, ...], sampling: str, alone: bool = False
    ) -> tuple[PreparedPrefill, ...]:
        """Every row exactly once. Groups are ordered by their first row and rows within a group as the caller gave
        them. alone: no two rows share a pass.
        """
        groups: dict[tuple[bool, int, int, int, bool], list[PrefillRequest]] = {}
        for request in requests:
            group = self._group(request.row, request.cached, request.begin, request.length)
            groups.setdefault((*group, request.final), []).append(request)
        prepared: list[PreparedPrefill] = []
        for (is_chunked, begin, whole, tokens, final), rows in groups.items():
            waves = self._chunk_waves[whole > 0, tokens] if is_chunked else self._waves[tokens]
            if alone:
                waves = waves[:2]
            at = 0
            for real, padded in split(len(rows), waves):
                wave = tuple(rows[at : at + real])
                at += real
                stop = wave[0].length if real == 1 else max([request.length for request in wave])
                chunks = self._chunks(is_chunked, padded, begin, whole, tokens, stop)
                prepared.append(PreparedPrefill(wave, chunks, sampling, final))
        return tuple(prepared)

    def shapes(self, cached: int, begin: int, length: int) -> frozenset[Shape]:
        """What a row runs when it runs by itself. Raises NoShape, for row 0."""
        is_chunked, first, whole, tokens = self._group(0, cached, begin, length)
        waves = self._chunk_waves[whole > 0, tokens] if is_chunked else self._waves[tokens]
        return frozenset([chunk.shape for chunk in self._chunks(is_chunked, waves[1], first, whole, tokens, length)])

    def _group(self, row: int, cached: int, begin: int, length: int) -> tuple[bool, int, int, int]:
        """What rows of one wave have in common: chunked or not, first position, whole chunks, last length."""
        if not cached or not self._chunk_lengths:  # without chunks every row runs from its start; cached blocks stay as they are
            lengths = self._lengths
            at = bisect_left(lengths, length)
            if at < len(lengths):
                return False, 0, 0, lengths[at]
        rest = length - begin
        whole = (rest - 1) // self._chunk
        at = bisect_left(self._chunk_lengths, rest - whole * self._chunk)
        if at == len(self._chunk_lengths) or len(self._chunk_waves[whole > 0, self._chunk_lengths[at]]) == 1:
            raise NoShape(
                row,
                f"no pass of the module holds {rest} tokens from position {begin}: "
                f"its lengths are {self._lengths}, its chunk lengths {self._chunk_lengths}",
            )
        return True, begin, whole, self._chunk_lengths[at]

    def _chunks(
        self, is_chunked: bool, rows: int, begin: int, whole: int, tokens: int, stop: int
    ) -> tuple[PrefillChunk, ...]:
        last = PrefillChunk(self._shapes[is_chunked, rows, tokens], begin + whole * self._chunk, stop)
        if not whole:
            return (last,)
        shape = self._shapes[True, rows, self._chunk]
        starts = range(begin, last.start, self._chunk)
        return (*[PrefillChunk(shape, start, start + self._chunk) for start in starts], last)

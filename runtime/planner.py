"""Rows -> waves and chunk sequences, by looking up the module's tables and nothing else.

A row without a cached prefix that fits a length runs in the smallest such length, packed with the other rows of that
length: as many of the largest wave as the rows fill, then the smallest wave that holds the rest (9 rows with waves up
to 8 run as 8 + 1, 3 as a padded 4). Where the module has ragged waves, rows of all lengths are packed into those instead
(`runtime.packing`). Every other row runs in chunks: whole prefill chunks from where it begins and,
last, the smallest length that holds what is left. Rows that begin at the same position and are cut alike share their
chunks where the tables have shapes for it.

Of a row in a module with recurrent state, the state at one aligned position is kept beside the last one. Where no pass would
begin there, the row is cut in two segments, and a pass of the first may stop before it is full.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import inf
from types import ModuleType

from runtime.errors import NoBatchedRecurrence, NoShape
from runtime.packing import MICROSECONDS, Packer
from runtime.recurrence import require_batched, route
from runtime.request import PrefillChunk, PrefillRequest, PreparedPrefill
from runtime.tables import RAGGED, Shape, pass_microseconds, recurrence, states

Segment = tuple[int, int, int]  # of a row's passes: first position, whole chunks, length of the last pass
ANY_LENGTH: tuple[bool, tuple[Segment, ...]] = (False, ())  # the group of all rows that may share a ragged wave


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
    """The lookups of one module, built once. most_delay: modelled seconds that the pass of a row may take longer than the one that
    it would have by itself, where rows are packed into ragged waves.
    """

    def __init__(self, module: ModuleType, most_delay: float = inf) -> None:
        self._chunk: int = module.PREFILL_CHUNK
        self._alignment: int = module.ALIGNMENT
        self._recurrent = bool(states(module))
        self._forms = recurrence(module)
        self._shapes: dict[tuple[bool, int, int], Shape] = {}
        packed: dict[int, set[int]] = {}
        chunked: dict[int, set[int]] = {}
        for shape in module.TRACES:
            is_chunked = shape.read_pages > 0
            self._shapes[is_chunked, shape.rows, shape.tokens] = shape
            if shape.variant != RAGGED:
                (chunked if is_chunked else packed).setdefault(shape.tokens, set()).add(shape.rows)
        prices = pass_microseconds(module)
        self._packer = Packer(prices, module.BLOCK_SIZE, MICROSECONDS * most_delay) if prices else None
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
        groups: dict[tuple[bool, tuple[Segment, ...], bool, int], list[PrefillRequest]] = {}
        for request in requests:
            cut = self.cut(request.begin, request.length, request.final, request.keep_at) if self._recurrent else 0
            group = self._group(request.row, request.cached, request.begin, request.length, cut)
            if self._packer and not alone and not group[0]:
                group = ANY_LENGTH
            groups.setdefault((*group, request.final, cut if request.keep_at else 0), []).append(request)
        prepared: list[PreparedPrefill] = []
        for (is_chunked, segments, final, keep_at), rows in groups.items():
            if (is_chunked, segments) == ANY_LENGTH:
                prepared += self._packed(rows, sampling, final)
                continue
            waves = self._waves_of(is_chunked, segments)
            if alone or not self._is_batched(len(rows), waves):
                waves = waves[:2]
            at = 0
            for real, padded in split(len(rows), waves):
                wave = tuple(rows[at : at + real])
                at += real
                stop = wave[0].length if real == 1 else max([request.length for request in wave])
                chunks = self._chunks(is_chunked, padded, segments, stop)
                routes = self._routes(wave, chunks) if self._forms else ()
                prepared.append(PreparedPrefill(wave, chunks, sampling, final, keep_at=keep_at, routes=routes))
        return tuple(prepared)

    def _packed(self, rows: list[PrefillRequest], sampling: str, final: bool) -> Iterator[PreparedPrefill]:
        """Ragged waves of rows that begin at position 0, and those that run by themselves."""
        for size, members in self._packer.pack([request.length for request in rows]):
            wave = tuple([rows[member] for member in members])
            chunk = PrefillChunk(self._shapes[False, *size], 0, max([request.length for request in wave]))
            yield PreparedPrefill(wave, (chunk,), sampling, final)

    def shapes(self, cached: int, begin: int, length: int, cut: int = 0) -> frozenset[Shape]:
        """What a row runs when it runs by itself. Raises NoShape, for row 0."""
        is_chunked, segments = self._group(0, cached, begin, length, cut)
        waves = self._waves_of(is_chunked, segments)
        return frozenset([chunk.shape for chunk in self._chunks(is_chunked, waves[1], segments, length)])

    def cut(self, begin: int, length: int, final: bool, keep_at: int = 0) -> int:
        """Where a pass has to begin because the state there is to be kept, 0 where none has to: where the caller says, or at
        the last aligned position of a slice that ends past it, from where the next slice begins.
        """
        if not self._recurrent or not self._chunk_lengths:
            return 0
        aligned = length // self._alignment * self._alignment
        if keep_at or final or aligned == length:
            return keep_at
        return aligned if aligned > begin else 0

    def _group(self, row: int, cached: int, begin: int, length: int, cut: int = 0) -> tuple[bool, tuple[Segment, ...]]:
        """What rows of one wave have in common: chunked or not, and of each segment its first position, whole chunks and
        last length. A cut makes two segments of a row.
        """
        # Without chunks every row runs from its start; cached blocks stay as they are.
        packed = not cached or not self._chunk_lengths or self._recurrent and not begin
        if packed and not cut:
            lengths = self._lengths
            at = bisect_left(lengths, length)
            if at < len(lengths):
                return False, ((0, 0, lengths[at]),)
        if not cut:
            return True, (self._segment(row, begin, length),)
        return True, (self._segment(row, begin, cut), self._segment(row, cut, length))

    def _segment(self, row: int, begin: int, end: int) -> Segment:
        rest = end - begin
        whole = (rest - 1) // self._chunk
        at = bisect_left(self._chunk_lengths, rest - whole * self._chunk)
        if at == len(self._chunk_lengths) or len(self._chunk_waves[whole > 0, self._chunk_lengths[at]]) == 1:
            raise NoShape(
                row,
                f"no pass of the module holds {rest} tokens from position {begin}: "
                f"its lengths are {self._lengths}, its chunk lengths {self._chunk_lengths}",
            )
        return begin, whole, self._chunk_lengths[at]

    def _waves_of(self, is_chunked: bool, segments: tuple[Segment, ...]) -> tuple[int, ...]:
        """The `smallest_wave` table of rows that are cut alike: sizes for which every pass of theirs has a shape."""
        if len(segments) == 1:
            _, whole, tokens = segments[0]
            return self._chunk_waves[whole > 0, tokens] if is_chunked else self._waves[tokens]
        sizes = [set(self._chunk_waves[whole > 0, tokens][1:]) for _, whole, tokens in segments]
        return smallest_wave(set.intersection(*sizes))

    def _is_batched(self, count: int, waves: tuple[int, ...]) -> bool:
        """Whether the module has a recurrence for all waves of a group; where it has none, rows run one by one."""
        try:
            for _, padded in split(count, waves):
                require_batched(self._forms, padded)
        except NoBatchedRecurrence:
            return False
        return True

    def _routes(self, wave: tuple[PrefillRequest, ...], chunks: tuple[PrefillChunk, ...]) -> tuple[str, ...]:
        return tuple(
            [route(self._forms, chunk.shape.rows, [chunk.real_tokens(request) for request in wave]) for chunk in chunks]
        )

    def _chunks(
        self, is_chunked: bool, rows: int, segments: tuple[Segment, ...], stop: int
    ) -> tuple[PrefillChunk, ...]:
        ends = (*[begin for begin, _, _ in segments[1:]], stop)
        chunks: list[PrefillChunk] = []
        for (begin, whole, tokens), end in zip(segments, ends):
            last = PrefillChunk(self._shapes[is_chunked, rows, tokens], begin + whole * self._chunk, end)
            if whole:
                shape = self._shapes[True, rows, self._chunk]
                starts = range(begin, last.start, self._chunk)
                chunks += [PrefillChunk(shape, start, start + self._chunk) for start in starts]
            chunks.append(last)
        return tuple(chunks)

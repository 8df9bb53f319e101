"""Modelled seconds of any pass of one row or a wave, as a replay meets them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from generator.choosing.times import Times
from generator.cost import Work, time_of
from generator.geometry import Resolved
from generator.matmuls import NoProgram
from generator.pass_time import attention_time, attention_works, microseconds, pass_time
from generator.placement import Programs, choose_programs
from generator.shapes import PassShape, enumerate_shapes
from generator.tiles import tiles


class Prices:
    """Of a model on a board: passes of its module have the module's programs, others those that they would get by themselves."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        shapes = enumerate_shapes(resolved)
        self._own = {(shape.variant, shape.rows, shape.tokens): shape for shape in shapes}
        self._programs = choose_programs(resolved, shapes)
        priced = microseconds(resolved, self._programs, shapes)
        self.to_pack = {(shape.rows, shape.tokens): price for shape, price in priced.items()}  # what rows are packed by
        self._far = max(resolved.context // 2, 1)
        self.seconds = cache(self._seconds)
        self._row_by_row: set[tuple[str, int, int]] = set()

    def ragged(self, rows: int, tokens: int, row_tokens: Iterable[int]) -> float:
        """Of one pass of the module whose rows have so many tokens each and take whole blocks."""
        block = self._resolved.block_size
        squares = sum((-(-length // block) * tiles(block)) ** 2 for length in row_tokens)
        return self._without_attention(rows, tokens) + self._attention(rows, tokens, squares)

    def alone(self, length: int) -> float:
        """Of the pass that a prompt of so many tokens has by itself."""
        lengths = self._resolved.lengths
        return self.seconds("single", 1, lengths[bisect_left(lengths, length)], 0, True)

    @cache
    def _without_attention(self, rows: int, tokens: int) -> float:
        shape = self._own["ragged", rows, tokens]
        whole = self._pass(self._programs, shape, 0).seconds
        return whole - attention_time(self._resolved, self._programs, shape)

    def _attention(self, rows: int, tokens: int, squares: int) -> float:
        rates, total = self._resolved.board.rates, 0.0
        for layers, work, growth in self._attentions(rows, tokens):
            grown = replace(work, cycles=work.cycles + (squares - 1) * growth)
            total += layers * time_of(grown, rates).seconds
        return total

    @cache
    def _attentions(self, rows: int, tokens: int) -> tuple[tuple[int, Work, float], ...]:
        """Layers, their work where the rows' tiles squared are one together, and the cycles by which it grows with each more."""
        shape = self._own["ragged", rows, tokens]
        one, two = (
            attention_works(self._resolved, self._programs, replace(shape, row_squares=squares)) for squares in (1, 2)
        )
        return tuple((layers, work, more.cycles - work.cycles) for (layers, work), (_, more) in zip(one, two))

    def times(self, found: Times, rows: int) -> Times:
        """`found`, which are of passes of so many rows of any length, with those of the module's own lengths as it runs them."""
        resolved = self._resolved
        taken = {name: getattr(found, name).copy() for name in ("regular", "chunked", "growth", "tail")}
        for length in resolved.lengths:
            at = length // found.step - 1
            if at >= len(found.lengths) or (rows > 1 and rows * length > resolved.wave_tokens):
                continue
            if rows == 1 or not resolved.ragged_tokens:
                first, _, tail = self._line("single" if rows == 1 else "batched", rows, length)
                taken["regular"][at], taken["tail"][at] = first + tail, tail
            if not resolved.attention_soft_cap:
                first, growth, tail = self._line("chunked" if rows == 1 else "chunked_batched", rows, length)
                taken["chunked"][at], taken["growth"][at], taken["tail"][at] = first + tail, growth, tail
        return replace(found, **taken)

    def is_row_by_row(self, variant: str, rows: int, tokens: int) -> bool:
        """Whether no program holds so large a wave, once it has been priced."""
        return (variant, rows, tokens) in self._row_by_row

    def _seconds(self, variant: str, rows: int, tokens: int, start: int, last: bool) -> float:
        """Of one pass that begins at `start`, with its tail if it is a prompt's last."""
        first, growth, tail = self._line(variant, rows, tokens)
        return first + start * growth + (tail if last else 0.0)

    @cache
    def _line(self, variant: str, rows: int, tokens: int) -> tuple[float, float, float]:
        """A pass at position 0 without its tail, what it grows by with a token before it, and the tail. Where so large a wave has no program,
        its rows are taken to run one after another.
        """
        resolved = self._resolved
        shape, programs = self._own.get((variant, rows, tokens)), self._programs
        if shape is None:
            chunked = variant.startswith("chunked")
            pages = rows * tokens // resolved.block_size
            reads = resolved.context // resolved.block_size if chunked else 0
            shape = PassShape(variant, rows, tokens, pages, reads, "last", "")
            try:
                programs = choose_programs(resolved, (shape,))
            except NoProgram:
                if rows == 1:
                    raise
                self._row_by_row.add((variant, rows, tokens))
                single = "chunked" if chunked else "single"
                return tuple(rows * part for part in self._line(single, 1, tokens))
        at_start, later = (self._pass(programs, shape, start) for start in (0, self._far if shape.read_pages else 0))
        first = at_start.without_tail
        return first, (later.without_tail - first) / self._far, at_start.tail

    def _pass(self, programs: Programs, shape: PassShape, start: int):
        return pass_time(self._resolved, programs, shape, start)

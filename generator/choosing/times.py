"""Modelled seconds of passes for every length that a module could have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from generator.choosing.rows import Rows
from generator.geometry import Resolved
from generator.pass_time import pass_time
from generator.placement import choose_programs
from generator.shapes import PassShape, read_pages


@dataclass(frozen=True)
class Times:
    """float64 seconds by length, an entry for each of `lengths`, which are the multiples of `step` in turn.

    `regular`: a pass from the start of a prompt. `chunked` + position x `growth`: a chunk that begins there, since attention
    grows with what lies before it. Both are with the tail, which `tail` is alone. `operations`: of one pass.
    """

    step: int
    lengths: np.ndarray
    regular: np.ndarray
    chunked: np.ndarray
    growth: np.ndarray
    tail: np.ndarray
    operations: int

    def last_pass(self, at: np.ndarray, chunked: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Of last passes of the lengths with indices `at`."""
        return np.where(chunked, self.chunked[at] + start * self.growth[at], self.regular[at])

    def whole_chunks(self, chunk: int, begin: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Of all chunks but the last of rows that begin at `begin` and whose last pass begins at `start`."""
        at, count = chunk // self.step - 1, (start - begin) // chunk
        positions = count * begin + chunk * count * (count - 1) / 2  # the sum of where they begin
        return count * (self.chunked[at] - self.tail[at]) + positions * self.growth[at]

    def ideal(self, rest: np.ndarray, chunked: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Of last passes that compute exactly `rest` tokens: the quickest pass of any length that holds them, and between two
        multiples of the step in proportion. Below one step a pass takes what one of a step takes.
        """
        far = self.chunked + self.growth * self.lengths[-1]
        curves = (self.regular, self.chunked, far)
        regular, near, far = (np.interp(rest, self.lengths, _at_least(curve)) for curve in curves)
        return np.where(chunked, near + (far - near) / self.lengths[-1] * start, regular)

    def without_padding(self, rows: Rows, chunk: int) -> np.ndarray:
        """Of rows by themselves: their whole chunks, and last passes of exactly their tokens."""
        whole = self.whole_chunks(chunk, rows.begin, rows.start)
        return whole + self.ideal(rows.rest, rows.chunked, rows.start)


def _at_least(curve: np.ndarray) -> np.ndarray:
    """The least of each entry and all later ones."""
    return np.minimum.accumulate(curve[::-1])[::-1]


def times(resolved: Resolved, longest: int, rows: int = 1) -> Times:
    """Of all multiples of the block up to `longest`, in passes of so many rows."""
    step, chunks = resolved.block_size, not resolved.attention_soft_cap
    lengths = np.arange(step, longest + 1, step)
    far = max(resolved.context // 2, 1)
    found = np.zeros((4, len(lengths)))
    operations = 0
    names = ("single", "chunked") if rows == 1 else ("batched", "chunked_batched")
    for index, length in enumerate(lengths.tolist()):
        regular, chunk = (_shape(resolved, name, rows, length) for name in names)
        programs = choose_programs(resolved, _of_size(resolved, rows * length))
        whole = pass_time(resolved, programs, regular)
        operations = max(operations, whole.operations)
        found[0, index], found[3, index] = whole.seconds, whole.tail
        if chunks:
            at_start, later = (pass_time(resolved, programs, chunk, start).seconds for start in (0, far))
            found[1, index], found[2, index] = at_start, (later - at_start) / far
    return Times(step, lengths, *found, operations)


def _shape(resolved: Resolved, variant: str, rows: int, length: int) -> PassShape:
    reads = read_pages(resolved) if variant.startswith("chunked") else 0
    return PassShape(variant, rows, length, rows * length // resolved.block_size, reads, "last", "")


def _of_size(resolved: Resolved, tokens: int) -> tuple[PassShape, ...]:
    """All passes of so many tokens that a module with every length would have: they share one table of programs and places."""
    variants = (
        ("single", "batched") if resolved.attention_soft_cap else ("single", "batched", "chunked", "chunked_batched")
    )
    rows = [
        wave
        for wave in resolved.waves
        if wave == 1 or tokens <= resolved.wave_tokens and tokens % (wave * resolved.block_size) == 0
    ]
    return tuple(
        _shape(resolved, variant, wave, tokens // wave)
        for variant in variants
        for wave in rows
        if (wave > 1) == variant.endswith("batched")
    )

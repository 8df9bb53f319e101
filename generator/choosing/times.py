"""Modelled seconds of passes for every length that a module could have."""

from __future__ import annotations

from dataclasses import dataclass

from math import lcm

import numpy as np

from generator.choosing.rows import Rows
from generator.geometry import Resolved
from generator.matmuls import NoProgram
from generator.pass_time import pass_time
from generator.placement import Programs, choose_programs
from generator.programs import keeps_rows_equal
from generator.shapes import RAGGED_BLOCKS, PassShape, ragged_size, read_pages

NEVER = 1e9  # seconds of a pass that has no program: no choice takes it, and sums of it stay numbers


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


def length_step(resolved: Resolved) -> int:
    """Tokens that every length is a multiple of: a block, and what a recurrence takes at a time."""
    net = resolved.gated_delta_net
    return resolved.block_size if net is None else lcm(resolved.block_size, net.chunk)


def times(resolved: Resolved, longest: int, rows: int = 1, known: dict[int, Programs] | None = None) -> Times:
    """Of all legal lengths up to `longest`, in passes of so many rows; `regular` is 0 where no such pass has several rows. `known` are
    programs by the tokens of a pass, of which more are put there.
    """
    known = {} if known is None else known
    step, chunks = length_step(resolved), not resolved.attention_soft_cap
    lengths = np.arange(step, longest + 1, step)
    far = max(resolved.context // 2, 1)
    found = np.zeros((4, len(lengths)))
    operations = 0
    names = ("single", "chunked") if rows == 1 else ("batched", "chunked_batched")
    for index, length in enumerate(lengths.tolist()):
        regular, chunk = (_shape(resolved, name, rows, length) for name in names)
        try:
            if rows * length not in known:
                known[rows * length] = choose_programs(resolved, _of_size(resolved, rows * length))
        except NoProgram:
            found[:2, index] = NEVER
            continue
        programs = known[rows * length]
        if rows == 1 or not resolved.ragged_tokens:
            whole = pass_time(resolved, programs, regular)
            operations = max(operations, whole.operations)
            found[0, index], found[3, index] = whole.seconds, whole.tail
        if chunks:
            at_start, later = (pass_time(resolved, programs, chunk, start) for start in (0, far))
            found[1:, index] = at_start.seconds, (later.seconds - at_start.seconds) / far, at_start.tail
    return Times(step, lengths, *found, operations)


def ragged_times(resolved: Resolved) -> Times | None:
    """Of ragged waves of all sizes up to `wave_tokens`, their rows equal; None for a model whose waves have equal rows in any case."""
    step = RAGGED_BLOCKS * resolved.block_size
    if keeps_rows_equal(resolved) or resolved.wave_tokens < step:
        return None
    sizes = np.arange(step, resolved.wave_tokens + 1, step)
    seconds, none = np.zeros(len(sizes)), np.zeros(len(sizes))
    for index, tokens in enumerate(sizes.tolist()):
        shape = _shape(resolved, "ragged", *ragged_size(resolved, tokens))
        try:
            seconds[index] = pass_time(resolved, choose_programs(resolved, (shape,)), shape).seconds
        except NoProgram:
            seconds[index] = NEVER
    return Times(step, sizes, seconds, none, none, none, 0)


def _shape(resolved: Resolved, variant: str, rows: int, length: int) -> PassShape:
    reads = read_pages(resolved) if variant.startswith("chunked") else 0
    return PassShape(variant, rows, length, rows * length // resolved.block_size, reads, "last", "")


def _of_size(resolved: Resolved, tokens: int) -> tuple[PassShape, ...]:
    """All passes of so many tokens that a module with every length would have: they share one table of programs and places."""
    waves = [
        wave
        for wave in resolved.waves
        if wave > 1 and tokens <= resolved.wave_tokens and tokens % (wave * resolved.block_size) == 0
    ]
    sizes = {"single": [1], "batched": [] if resolved.ragged_tokens else waves}
    if not resolved.attention_soft_cap:
        sizes |= {"chunked": [1], "chunked_batched": waves}
    found = [_shape(resolved, variant, rows, tokens // rows) for variant, of in sizes.items() for rows in of]
    if tokens in resolved.ragged_tokens:
        found.append(_shape(resolved, "ragged", *ragged_size(resolved, tokens)))
    return tuple(found)

"""The lengths that a workload runs through in the least modelled time: exact, by dynamic programming over sorted lengths.

A last pass runs in the shortest length that holds it, so that the time of all last passes is a sum over the gaps between
neighbouring lengths: of each, the passes that fall into it, at the time of its upper end. The best choice that ends at a length
therefore extends the best choice that ends at the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from generator.choosing.rows import Asked, Rows
from generator.choosing.times import Times


@dataclass(frozen=True)
class Choice:
    """Lengths for one chunk, which is the last of them, and what a workload comes to under them; seconds are modelled."""

    lengths: tuple[int, ...]
    programs: int
    seconds: float
    ideal_seconds: float
    passes: int
    computed: int
    ragged_tokens: tuple[int, ...] = ()

    @property
    def chunk(self) -> int:
        return self.lengths[-1]

    @property
    def over_ideal(self) -> float:
        return self.seconds / self.ideal_seconds


def programs_of(length: int, waves: Sequence[int], wave_tokens: int, variants: int) -> int:
    """Programs of a length: one for each wave that it may run in, in each variant."""
    return variants * sum(1 for wave in waves if wave == 1 or wave * length <= wave_tokens)


Accept = Callable[[tuple[int, ...]], bool]  # whether lengths are within what is no sum over them


def any_lengths(lengths: tuple[int, ...]) -> bool:
    return True


def choose(
    asked: Asked,
    times: Times,
    chunk: int,
    costs: Sequence[int],
    most: int,
    budget: int,
    accept: Accept = any_lengths,
) -> list[Choice]:
    """For every number of lengths up to `most` the best choice that ends with `chunk`, every prompt by itself; `costs` are the
    programs of each of `times.lengths`, at most `budget` in all. Numbers for which there is none are left out.
    """
    gaps = _gaps(asked.rows, times, chunk // times.step)
    best: dict[int, Choice] = {}
    for grid in grids(costs[: chunk // times.step], budget, accept):
        for lengths, programs in best_lengths(gaps, times.step, grid, most, budget, accept):
            choice, held = evaluate(asked, times, lengths, programs), best.get(len(lengths))
            if held is None or choice.seconds < held.seconds:
                best[len(lengths)] = choice
    return [best[count] for count in sorted(best)]


def grids(costs: Sequence[int], budget: int, accept: Accept) -> Iterator[list[int]]:
    """The costs of all lengths, and where not all that are within the budget are accepted those of every second, fourth and so on, the
    others too dear: what is compiled is less where lengths are multiples of each other, whose waves have as many tokens.
    """
    every = 1
    while every == 1 or (accept is not any_lengths and len(costs) % every == 0):
        yield [cost if at % every == 0 else budget + 1 for at, cost in enumerate(costs, 1)]
        every *= 2


def best_lengths(
    gaps: np.ndarray, step: int, costs: Sequence[int], most: int, budget: int, accept: Accept = any_lengths
) -> list[tuple[tuple[int, ...], int]]:
    """For every number of lengths the quickest and their programs. `gaps` [below, end] are the seconds of what lies between two
    neighbouring lengths, in steps; the last end is always chosen. Where the quickest of all are not accepted, the quickest that are
    among the best for each number of programs.
    """
    if budget < 1:
        return []
    last = len(gaps) - 1
    budget = min(budget, sum(costs[:last]))
    most = min(most, last)
    # best[end][count, programs]: least seconds of all up to `end` steps with exactly so many lengths and programs
    best = np.full((last + 1, most + 1, budget + 1), np.inf)
    came = np.zeros(best.shape, dtype=np.int32)
    best[0, 0, 0] = 0.0
    for end in range(1, last + 1):
        cost = costs[end - 1]
        if cost > budget:
            continue
        before = best[:end, :-1, : budget + 1 - cost] + gaps[:end, end, None, None]
        chosen = before.argmin(axis=0)
        best[end, 1:, cost:] = np.take_along_axis(before, chosen[None], axis=0)[0]
        came[end, 1:, cost:] = chosen
    found = []
    for count in range(1, most + 1):
        for programs in best[last, count].argsort(kind="stable").tolist():
            if not np.isfinite(best[last, count, programs]):
                break
            lengths = _walk(came, costs, last, count, programs, step)
            if accept(lengths):
                found.append((lengths, programs))
                break
    return found


def _walk(came: np.ndarray, costs: Sequence[int], end: int, count: int, programs: int, step: int) -> tuple[int, ...]:
    lengths = []
    while end:
        lengths.append(end * step)
        end, count, programs = int(came[end, count, programs]), count - 1, programs - costs[end - 1]
    return tuple(reversed(lengths))


def _gaps(rows: Rows, times: Times, last: int) -> np.ndarray:
    """Seconds [below, end] of all last passes of more than `below` and at most `end` steps, in passes of `end` steps."""
    at = -(-rows.rest // times.step)

    def up_to(values: np.ndarray) -> np.ndarray:
        return np.cumsum(np.bincount(at, values, last + 1))

    regular = up_to(rows.weight * ~rows.chunked)
    chunked = up_to(rows.weight * rows.chunked)
    starts = up_to(rows.weight * rows.chunked * rows.start)
    ends = np.arange(1, last + 1)
    gaps = np.zeros((last + 1, last + 1))
    for counts, seconds in ((regular, times.regular), (chunked, times.chunked), (starts, times.growth)):
        gaps[:, 1:] += (counts[ends] - counts[:, None]) * seconds[:last]
    return gaps


def evaluate(asked: Asked, times: Times, lengths: tuple[int, ...], programs: int) -> Choice:
    """What a workload comes to under some lengths, the last of which is the chunk."""
    rows, chunk = asked.rows, lengths[-1]
    taken = np.asarray(lengths)[np.searchsorted(lengths, rows.rest)]
    whole = times.whole_chunks(chunk, rows.begin, rows.start)
    chunks = (rows.start - rows.begin) // chunk
    last = times.last_pass(taken // times.step - 1, rows.chunked, rows.start)
    return Choice(
        lengths,
        programs,
        seconds=float(((whole + last) * rows.weight).sum()),
        ideal_seconds=float((times.without_padding(rows, chunk) * rows.weight).sum()),
        passes=int(((chunks + 1) * rows.weight).sum()),
        computed=int(((chunks * chunk + taken) * rows.weight).sum()),
    )

"""The same choice where prompts that arrive together share passes: finer lengths then cost waves that are not filled.

Rows of a call that take the same length, begin at the same position and have as many chunks run as waves, as the runtime's planner
packs them: as many of the largest wave as the rows fill, then the smallest that holds the rest. Which rows fall between two
neighbouring lengths decides which waves they make, so the sum over gaps, and with it the dynamic programming, stays exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from generator.choosing.choose import Accept, Choice, any_lengths, best_lengths
from generator.choosing.rows import cut_each
from generator.choosing.times import Times, times
from generator.choosing.workload import Workload
from generator.geometry import Resolved
from generator.placement import Programs


@dataclass(frozen=True)
class Groups:
    """Rows that could share passes: of each group (axis 0) how many have a rest of at most so many steps (axis 1), whether it is
    chunked, the first positions of its first and last passes, its whole chunks, and how many groups are as this one.
    """

    up_to: np.ndarray
    chunked: np.ndarray
    begin: np.ndarray
    start: np.ndarray
    whole: np.ndarray
    weight: np.ndarray
    ideal_seconds: float


def calls_of(arrivals: np.ndarray, window: float, rows: int) -> np.ndarray:
    """The number of the call of each request: those that arrive within `window` seconds of its first, at most `rows`."""
    found = np.zeros(len(arrivals), dtype=np.int64)
    call, first, count = -1, 0.0, rows
    for index, arrival in enumerate(arrivals.tolist()):
        if index == 0 or count == rows or arrival - first >= window:
            call, first, count = call + 1, arrival, 0
        found[index] = call
        count += 1
    return found


def calls_within(log: Workload, context: int, window: float, rows: int) -> np.ndarray:
    """The same for the prompts of a log that fit the context; of the others, which are in no call, -1."""
    fits = log.lengths <= context
    calls = np.full(len(log.lengths), -1, dtype=np.int64)
    calls[fits] = calls_of(log.arrivals[fits], window, rows)
    return calls


def groups_of(
    log: Workload,
    resolved: Resolved,
    chunk: int,
    calls: np.ndarray,
    alone: Times,
    elsewhere: np.ndarray | None = None,
    every: int = 1,
) -> Groups:
    """The rows of a log's calls by what they must have in common to share passes; of those within the context, `elsewhere` marks the
    ones that run in ragged waves and are in no group. Of more calls than are to be looked at, one in `every` stands for the tokens
    of all.
    """
    fits = log.lengths <= resolved.context
    rows = cut_each(log.lengths[fits], log.cached[fits], np.ones(int(fits.sum()), dtype=np.int64), resolved, chunk)
    here = np.ones(len(rows.rest), dtype=bool) if elsewhere is None else ~elsewhere
    scale = 1.0
    if every > 1:
        kept, tokens = here & (calls[fits] % every == 0), rows.start - rows.begin + rows.rest
        scale, here = tokens[here].sum() / max(tokens[kept].sum(), 1), kept
    keys = np.stack([rows.begin, rows.start, rows.chunked.astype(np.int64), -(-rows.rest // alone.step)])[:, here]
    _, group, size = np.unique(
        np.vstack([calls[fits][here], keys[:3]]), axis=1, return_inverse=True, return_counts=True
    )
    group = group.reshape(-1)
    single = size[group] == 1
    # Rows with nobody beside them are most: equal ones are one group, as often as there are such rows.
    by_itself, weight = np.unique(keys[:, single], axis=1, return_counts=True)
    shared, at = np.unique(group[~single], return_inverse=True)
    count = by_itself.shape[1]
    counts = np.zeros((count + len(shared), chunk // alone.step + 1), dtype=np.int64)
    counts[np.arange(count), by_itself[3]] = 1
    np.add.at(counts, (count + at, keys[3, ~single]), 1)
    common = np.zeros((3, len(shared)), dtype=np.int64)
    common[:, at] = keys[:3, ~single]
    begin, start, chunked = np.concatenate([by_itself[:3], common], axis=1)
    ideal = float(alone.without_padding(rows, chunk).sum())
    weights = scale * np.concatenate([weight, np.ones(len(shared), dtype=np.int64)])
    return Groups(
        np.cumsum(counts, axis=1), chunked.astype(bool), begin, start, (start - begin) // chunk, weights, ideal
    )


def wave_times(resolved: Resolved, longest: int) -> dict[int, Times]:
    """By rows: of every wave of the model, up to the longest length that it may have."""
    found: dict[int, Times] = {}
    known: dict[int, Programs] = {}
    for rows in resolved.waves:
        most = longest if rows == 1 else min(longest, resolved.wave_tokens // rows)
        if most >= resolved.block_size:
            found[rows] = times(resolved, most, rows, known)
    return found


def choose_in_waves(
    groups: Groups,
    by_rows: Mapping[int, Times],
    waves: Sequence[int],
    chunk: int,
    costs: Sequence[int],
    most: int,
    budget: int,
    accept: Accept = any_lengths,
) -> list[Choice]:
    """As `choose.choose`, for rows in `waves`."""
    step, last = by_rows[1].step, chunk // by_rows[1].step
    gaps = gaps_of(groups, {rows: by_rows[rows] for rows in waves if rows in by_rows}, chunk)
    return [
        evaluate(groups, gaps, lengths, programs, step)
        for lengths, programs in best_lengths(gaps[0], step, costs[:last], most, budget, accept)
    ]


def evaluate(groups: Groups, gaps: np.ndarray, lengths: tuple[int, ...], programs: int, step: int) -> Choice:
    """What calls come to under some lengths."""
    ends = [length // step for length in lengths]
    seconds, passes, computed = sum(gaps[:, below, end] for below, end in zip([0, *ends], ends))
    return Choice(lengths, programs, float(seconds), groups.ideal_seconds, int(passes), int(computed))


def gaps_of(
    groups: Groups, by_rows: Mapping[int, Times], chunk: int, lengths: Sequence[int] | None = None
) -> np.ndarray:
    """Seconds, passes and computed tokens (axis 0) of [below, end]: of the rows whose rest is more than `below` and at most `end`
    steps, in passes of `end` steps, with their whole chunks. With `lengths` only of what lies between two of those.
    """
    step, last = by_rows[1].step, chunk // by_rows[1].step
    sizes = sorted(by_rows)
    most = int(groups.up_to[:, -1].max(initial=0))
    positions = groups.whole * groups.begin + chunk * groups.whole * (groups.whole - 1) / 2
    found = np.zeros((3, last + 1, last + 1))
    ends = range(1, last + 1) if lengths is None else [length // step for length in lengths]
    before = dict(zip(ends, [0, *ends]))
    for end in ends:
        below = slice(0, end) if lengths is None else slice(before[end], before[end] + 1)
        fitting = [rows for rows in sizes if end <= len(by_rows[rows].lengths)]
        of_chunks = [rows for rows in fitting if last <= len(by_rows[rows].lengths)]
        for several, usable in ((False, fitting), (True, of_chunks)):
            chosen = (groups.whole > 0) == several
            up_to = groups.up_to[chosen]
            rows = up_to[:, end, None] - up_to[:, below]
            there = rows.any(axis=1)
            if not there.any():
                continue
            chosen, rows = np.flatnonzero(chosen)[there], rows[there]
            used = _used(most, usable)
            waves, tokens = used.sum(axis=1), used @ np.array(usable)
            names = ("regular", "chunked", "growth")
            at = np.array([[getattr(by_rows[one], name)[end - 1] for name in names] for one in usable])
            regular, chunked, growth = (used @ at).T
            is_chunked, start = groups.chunked[chosen, None], groups.start[chosen, None]
            whole, weight = groups.whole[chosen, None], groups.weight[chosen]
            seconds = np.where(is_chunked, chunked[rows] + start * growth[rows], regular[rows])
            if several:
                of_whole = [(by_rows[one].chunked - by_rows[one].tail, by_rows[one].growth) for one in usable]
                bodies, grows = (used @ np.array([part[last - 1] for part in parts]) for parts in zip(*of_whole))
                seconds += whole * bodies[rows] + positions[chosen, None] * grows[rows]
            found[0, below, end] += weight @ seconds
            found[1, below, end] += weight @ (waves[rows] * (whole + 1))
            found[2, below, end] += weight @ (tokens[rows] * (whole * chunk + end * step))
    return found


def _used(most: int, sizes: Sequence[int]) -> np.ndarray:
    """[rows, size]: how many waves of each size so many rows take."""
    used = np.zeros((most + 1, len(sizes)), dtype=np.int64)
    for rows in range(1, most + 1):
        used[rows, -1], rest = divmod(rows, sizes[-1])
        if rest:
            used[rows, next(at for at, size in enumerate(sizes) if size >= rest)] += 1
    return used

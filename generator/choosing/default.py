"""The lengths and waves of a manifest where no log is at hand: those for prompts of log-uniform lengths, each of which counts alike.

The sum of all their times is nearly that of the longest prompts, whose padding is in one of many passes: lengths chosen by it serve
short prompts badly. So the mean of each prompt's time over that without padding is what is least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from generator.choosing.choose import Choice, choose, programs_of
from generator.choosing.limits import most_traces
from generator.choosing.rows import Asked, Rows, cut
from generator.choosing.times import Times, ragged_times, times
from generator.choosing.workload import Workload
from generator.geometry import Resolved

DRAWN = 20000  # lengths that stand for a distribution
MOST_LENGTHS = 9  # where nothing else is said: what more of them gain is under a hundredth on every log looked at
WORTHWHILE = 0.02  # of the mean time over no padding: what one length more must gain


@dataclass(frozen=True)
class Default:
    """The lengths, the tokens of ragged waves where the model takes them, and the waves of equal rows whose programs the trace
    region holds beside both. `over_ideal`: modelled time over passes without padding, in the mean over prompts.
    """

    lengths: tuple[int, ...]
    ragged_tokens: tuple[int, ...]
    waves: tuple[int, ...]
    over_ideal: float


def log_uniform(context: int) -> Workload:
    """A stand-in for a log: lengths up to the context, as many between any two as between twice the two."""
    one = np.ones(DRAWN, dtype=np.int64)
    return Workload(_drawn(1, context), np.zeros(DRAWN, dtype=np.int64), one, None, 0, False)


def _drawn(least: int, most: int) -> np.ndarray:
    """Numbers from `least` to `most`, evenly in their logarithms."""
    return np.ceil(least * (most / least) ** ((np.arange(DRAWN) + 0.5) / DRAWN)).astype(np.int64)


def alike(asked: Asked, times: Times, chunk: int) -> Asked:
    """The same prompts, each weighing one over its time without padding, so that sums of times are sums of ratios."""
    rows = asked.rows
    return replace(asked, rows=replace(rows, weight=rows.weight / times.without_padding(rows, chunk)))


def worthwhile(choices: Sequence[Choice]) -> Choice:
    """Of choices by their number of lengths, the first after which one length more gains too little."""
    for choice, more in zip(choices, choices[1:]):
        if more.seconds >= (1 - WORTHWHILE) * choice.seconds:
            return choice
    return choices[-1]


def variants_of(resolved: Resolved) -> int:
    """Of each length: from the start of a prompt and, unless scores are capped, as a chunk."""
    return 1 if resolved.attention_soft_cap else 2


def choose_default(resolved: Resolved) -> Default:
    """For a model whose context, chunk and waves are known. Lengths come first, then ragged waves: where the trace region does not
    hold them beside every wave of equal rows, the largest of those are left out.
    """
    chunk, variants = resolved.prefill_chunk, variants_of(resolved)
    found = times(resolved, chunk)
    held = most_traces(found.operations, resolved.board)
    asked = alike(cut(log_uniform(resolved.context), resolved, chunk), found, chunk)
    chosen = worthwhile(choose(asked, found, chunk, [variants] * len(found.lengths), MOST_LENGTHS, held))

    ragged = default_ragged(resolved, held - variants * len(chosen.lengths))

    def programs(waves: Sequence[int]) -> int:
        if ragged:  # waves of equal rows are chunks alone
            chunked = sum(programs_of(length, waves, resolved.wave_tokens, 1) for length in chosen.lengths)
            return len(chosen.lengths) + len(ragged) + chunked
        return sum(programs_of(length, waves, resolved.wave_tokens, variants) for length in chosen.lengths)

    running = [wave for wave in resolved.waves if wave == 1 or wave * chosen.lengths[0] <= resolved.wave_tokens]
    while len(running) > 1 and programs(running) > held:
        running.pop()
    return Default(chosen.lengths, ragged, tuple(running), chosen.over_ideal)


def default_ragged(resolved: Resolved, budget: int) -> tuple[int, ...]:
    """At most so many waves that take rows of any lengths: for log-uniform sums of rows up to wave_tokens, each of which counts alike."""
    found = ragged_times(resolved)
    if found is None or budget < 1:
        return ()
    most = int(found.lengths[-1])
    return sizes_for(alike(whole_passes(_drawn(2 * resolved.block_size, most)), found, most), found, budget)


def whole_passes(tokens: np.ndarray) -> Asked:
    """Passes from the start of prompts of so many tokens each."""
    count = len(tokens)
    zeros, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    return Asked(Rows(tokens, zeros, zeros, zeros.astype(bool), ones), count, 0, int(tokens.sum()), 0)


def sizes_for(asked: Asked, found: Times, budget: int) -> tuple[int, ...]:
    """The sizes that serve passes in the least time, the largest of `found` among them, as many as are worth their programs."""
    most = int(found.lengths[-1])
    return worthwhile(choose(asked, found, most, [1] * len(found.lengths), MOST_LENGTHS, budget)).lengths

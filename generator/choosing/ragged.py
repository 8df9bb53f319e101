"""The sizes of ragged waves for the calls of a log, and what packing its rows into them comes to.

Which rows share a pass is the runtime's to say, whose packer is handed in. The sizes are chosen by the sums of what each call
packs, cut into whole waves of the largest: exact where a call takes one wave, as the sums over lengths are; what they come to is
then found by packing every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from generator.choosing import default
from generator.choosing.default import whole_passes
from generator.choosing.prices import Prices
from generator.choosing.rows import cut_each
from generator.choosing.times import Times
from generator.choosing.workload import Workload
from generator.geometry import Resolved

Packer = Callable[[Mapping[tuple[int, int], float], int], Any]  # prices and block size -> what has `pack(lengths)`


@dataclass(frozen=True)
class Together:
    """Rows of a log that may share ragged waves: `lengths` of each call that has several, which requests within the context they
    are, and how much each call stands for.
    """

    lengths: tuple[tuple[int, ...], ...]
    members: np.ndarray
    weight: float = 1.0

    def thinned(self, most: int) -> Together:
        """At most so many of the calls, as evenly spread as there are, which stand for the tokens of all."""
        every = -(-len(self.lengths) // most)
        if every <= 1:
            return self
        kept = self.lengths[::every]
        return replace(self, lengths=kept, weight=sum(map(sum, self.lengths)) / sum(map(sum, kept)))


@dataclass(frozen=True)
class Packed:
    seconds: float = 0.0
    passes: int = 0
    computed: int = 0


def together(log: Workload, resolved: Resolved, chunk: int, calls: np.ndarray) -> Together:
    """Of the requests within the context: those that run from their start in one pass, in a call with another such."""
    fits = log.lengths <= resolved.context
    lengths, cached = log.lengths[fits], log.cached[fits]
    rows = cut_each(lengths, cached, np.ones(len(lengths), dtype=np.int64), resolved, chunk)
    call = calls[fits]
    counts = np.bincount(call[~rows.chunked], minlength=int(call.max(initial=-1)) + 1)
    members = ~rows.chunked & (counts[call] > 1)
    order = np.flatnonzero(members)
    edges = np.flatnonzero(np.diff(call[order])) + 1
    parts = np.split(lengths[order], edges) if len(order) else []
    return Together(tuple(tuple(part.tolist()) for part in parts), members)


def sizes_for(shared: Together, found: Times, block_size: int, budget: int) -> tuple[int, ...]:
    """Tokens of the ragged waves that serve the sums of the calls in the least time, as many as are worth their programs."""
    sums = (sum(-(-length // block_size) * block_size for length in rows) for rows in shared.lengths)
    passes = [tokens for total in sums for tokens in _waves_of(total, int(found.lengths[-1]))]
    return default.sizes_for(whole_passes(np.array(passes, dtype=np.int64)), found, budget)


def _waves_of(tokens: int, largest: int) -> Iterator[int]:
    whole, rest = divmod(tokens, largest)
    yield from [largest] * whole
    if rest:
        yield rest


def pack_all(shared: Together, prices: Prices, block_size: int, packer: Packer) -> Packed:
    """What all calls come to under the lengths and ragged waves of a model."""
    packing = packer(prices.to_pack, block_size)
    seconds, passes, computed = 0.0, 0, 0
    for lengths in shared.lengths:
        for (rows, tokens), members in packing.pack(lengths):
            passes += 1
            computed += rows * tokens
            if rows == 1:
                seconds += prices.seconds("single", 1, tokens, 0, True)
            else:
                seconds += prices.ragged(rows, tokens, [lengths[member] for member in members])
    weight = shared.weight
    return Packed(weight * seconds, round(weight * passes), round(weight * computed))

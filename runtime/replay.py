"""What a module makes of calls: the passes that it would run, found by its own admission and planner, with nothing on a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from types import ModuleType

import numpy as np

from runtime.admission import Admission
from runtime.errors import RowError
from runtime.planner import Planner
from runtime.request import PreparedPrefill
from runtime.slices import SliceCursors


@dataclass(frozen=True)
class Planned:
    """One call: its plans, the rows of it that were refused, and host seconds of admission and planning."""

    plans: tuple[PreparedPrefill, ...]
    refused: tuple[int, ...]
    seconds: float


class Replay:
    """Plans the calls of a log one after another; each row has blocks of its own, as many as it needs."""

    def __init__(self, module: ModuleType, most_delay: float = inf) -> None:
        """most_delay: as of `Prefill`."""
        self._module = module
        self._planner = Planner(module, most_delay)

    def plan(self, lengths: Sequence[int], cached: Sequence[int]) -> Planned:
        """Plans of rows of so many tokens, so many of which are cached; a refused row is left out and the others are planned.

        Blocks are counted row by row and not over a call: which blocks are free is not in a log.
        """
        block = self._module.BLOCK_SIZE
        widest = -(-max(lengths) // block)
        admission = Admission(
            self._module, SliceCursors(), blocks=max(self._module.KEY_VALUE_BLOCKS, len(lengths) * widest)
        )
        tokens = np.zeros((len(lengths), max(lengths)), dtype=np.int32)
        pages = np.arange(len(lengths) * widest, dtype=np.int32).reshape(len(lengths), widest)
        kept = list(range(len(lengths)))
        began = time.perf_counter()
        while kept:
            chosen = ([values[row] for row in kept] for values in (lengths, cached))
            try:
                rows = admission.rows(tokens[kept], pages[kept], *chosen, None, True)
            except RowError as error:
                del kept[error.row]
                continue
            plans = self._planner.plan(rows, "logits")
            seconds = time.perf_counter() - began
            return Planned(plans, tuple(sorted(set(range(len(lengths))) - set(kept))), seconds)
        return Planned((), tuple(range(len(lengths))), time.perf_counter() - began)

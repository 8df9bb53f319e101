"""The frozen values that one call is made of, from the caller's rows to its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.tables import Shape


@dataclass(frozen=True, eq=False)
class PrefillRequest:
    """One row of a call, reduced to what its passes read.

    `tokens` are the ids of positions `begin` .. `length` - 1 and `pages` the blocks of positions 0 .. `length` - 1,
    both own copies, so that a caller may reuse its buffers. `begin` is the first position that is computed: the aligned
    boundary at or below `cached` (below `length` in any case). Nothing below `cached` is ever written.
    """

    row: int
    slot: int
    tokens: np.ndarray
    begin: int
    cached: int
    length: int
    pages: np.ndarray
    final: bool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrefillRequest):
            return NotImplemented
        return (
            (self.row, self.slot, self.begin, self.cached, self.length, self.final)
            == (other.row, other.slot, other.begin, other.cached, other.length, other.final)
            and np.array_equal(self.tokens, other.tokens)
            and np.array_equal(self.pages, other.pages)
        )

    def __hash__(self) -> int:
        return hash((self.row, self.slot, self.begin, self.cached, self.length, self.final))


@dataclass(frozen=True)
class PrefillChunk:
    """One pass over positions `start` .. `start` + `shape.tokens` - 1 of every row, of which those below `stop` are
    real in the longest row."""

    shape: Shape
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop <= self.start + self.shape.tokens:
            raise ValueError(f"positions {self.start} to {self.stop} do not fit a pass of {self.shape.tokens} tokens")


@dataclass(frozen=True)
class PreparedPrefill:
    """Rows that run together: one packed wave, or the chunk sequence of rows with equal starts.

    Every row ends in the last chunk. Rows beyond `len(requests)`, up to the padded rows of the shape, are padding.
    `namespace` is carried for caches that tell adapters or images apart and is never read here.
    """

    requests: tuple[PrefillRequest, ...]
    chunks: tuple[PrefillChunk, ...]
    sampling: str
    final: bool
    namespace: Any = None

    @property
    def source_rows(self) -> tuple[int, ...]:
        return tuple([request.row for request in self.requests])

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple([request.slot for request in self.requests])


@dataclass(frozen=True)
class InvocationResult:
    """What one `PreparedPrefill` left on the device. Whoever holds this value owns `owned` and must release it.

    `output` holds one entry for each padded row (logits [1, 1, rows, vocabulary] or token ids [1, 1, rows]), the first
    `len(source_rows)` of them real, or is None for a slice that is not the last of its prompt.
    """

    source_rows: tuple[int, ...]
    slots: tuple[int, ...]
    sampling: str
    output: Any
    owned: tuple[Any, ...]

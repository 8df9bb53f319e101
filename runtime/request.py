"""The frozen values that one call is made of, from the caller's rows to its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.tables import Shape

LOGITS, ARGMAX, TOP_K = "logits", "argmax", "top_k"
PATHS = (LOGITS, ARGMAX, TOP_K)


@dataclass(frozen=True)
class Sampling:
    """How one row's next token is chosen.

    temperature: 0 takes the likeliest token. top_k: candidates to draw from, None for as many as the module has.
    top_p: the least part of their probability that is kept, above 0 up to 1. seed: makes the draw repeatable.
    log_probabilities: also return the natural logarithm of the chosen token's probability under the unchanged logits.

    presence, frequency and repetition penalties act on decoded tokens. They are carried to the decoder with the
    prompt's history and are not applied to the token that prefill draws.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    log_probabilities: bool = False

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def penalised(self) -> bool:
        return (self.presence, self.frequency, self.repetition) != (0.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class PrefillRequest:
    """One row of a call, reduced to what its passes read.

    `tokens` are the ids of positions `begin` .. `length` - 1 and `pages` the blocks of positions 0 .. `length` - 1,
    both own copies, so that a caller may reuse its buffers. `begin` is the first position that is computed: the aligned
    boundary at or below `cached` (below `length` in any case). Nothing below `cached` is ever written.

    In a module with recurrent state it is the aligned position at or below `cached` whose state the slot holds, or 0;
    `recomputed` says why it is below `cached`, and `keep_at` is the position whose state the caller wants kept, or 0.
    """

    row: int
    slot: int
    tokens: np.ndarray
    begin: int
    cached: int
    length: int
    pages: np.ndarray
    final: bool
    keep_at: int = 0
    recomputed: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrefillRequest):
            return NotImplemented
        return (
            (self.row, self.slot, self.begin, self.cached, self.length, self.final, self.keep_at, self.recomputed)
            == (
                other.row,
                other.slot,
                other.begin,
                other.cached,
                other.length,
                other.final,
                other.keep_at,
                other.recomputed,
            )
            and np.array_equal(self.tokens, other.tokens)
            and np.array_equal(self.pages, other.pages)
        )

    def __hash__(self) -> int:
        return hash((self.row, self.slot, self.begin, self.cached, self.length, self.final))


@dataclass(frozen=True)
class PrefillChunk:
    """One pass over positions `start` .. `start` + `shape.longest_row` - 1 of every row, of which those below `stop` are
    real in the longest row. A pass that is not the last may stop before it is full, where a state is to be kept."""

    shape: Shape
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop <= self.start + self.shape.longest_row:
            raise ValueError(
                f"positions {self.start} to {self.stop} do not fit a pass of {self.shape.longest_row} tokens"
            )

    def real_tokens(self, request: PrefillRequest) -> int:
        """Tokens of a row that this pass computes and counts."""
        return min(request.length, self.stop) - self.start


@dataclass(frozen=True)
class PreparedPrefill:
    """Rows that run together: one packed wave, or the chunk sequence of rows with equal starts.

    Every row ends in the last chunk. Rows beyond `len(requests)`, up to the padded rows of the shape, are padding.
    `sampling` is a path of the module and `choices` has one entry for each row, or none where logits are wanted.
    `history` [rows, longest prompt] is there where a row has penalties: its prompt, -1 from its length on.
    `slot_remap` (old slot -> new slot) stands in the first plan of a call and in no other, since moving twice undoes it.
    `keep_at` is the position whose recurrent state the rows' slots are to hold beside the last one, 0 where the caller
    names none, and `routes` the form of the recurrence in each chunk, empty for modules without one.
    `namespace` is carried for caches that tell adapters or images apart and is never read here.
    """

    requests: tuple[PrefillRequest, ...]
    chunks: tuple[PrefillChunk, ...]
    sampling: str
    final: bool
    choices: tuple[Sampling, ...] = ()
    history: np.ndarray | None = field(default=None, compare=False)
    slot_remap: tuple[tuple[int, int], ...] = ()
    keep_at: int = 0
    routes: tuple[str, ...] = ()
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
    `len(source_rows)` of them real, or is None for a slice that is not the last of its prompt. Row i of `output` belongs
    to `source_rows[i]` and to `slots[i]`. `log_probabilities` [1, 1, rows, 1] is there where a row asked for it. What a
    trace or the runtime keeps is never in `owned`. `routes` are those of the plan.
    """

    source_rows: tuple[int, ...]
    slots: tuple[int, ...]
    sampling: str
    output: Any
    owned: tuple[Any, ...]
    log_probabilities: Any = None
    choices: tuple[Sampling, ...] = ()
    routes: tuple[str, ...] = ()


def result(prepared: PreparedPrefill, output: Any, owned: tuple[Any, ...], scored: Any = None) -> InvocationResult:
    """What a plan left: its output and log-probabilities, if there are any, and the tensors that go with them."""
    rows, slots = prepared.source_rows, prepared.slots
    if output is None:
        return InvocationResult(rows, slots, prepared.sampling, None, owned, routes=prepared.routes)
    return InvocationResult(rows, slots, prepared.sampling, output, owned, scored, prepared.choices, prepared.routes)

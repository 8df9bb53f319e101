"""Recurrent states on the device: from where they are held into the rows that passes work on, and back once a plan is through.

Every copy is an operation between passes that allocates nothing, so that it may run between replays. Held states lie at
addresses of their own and only a table says which slot refers to which: no trace knows a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from runtime.backend import ttnn
from runtime.positions import ZERO, Held, Positions
from runtime.request import PrefillChunk, PrefillRequest, PreparedPrefill
from runtime.slices import Moves
from runtime.stats import DISPATCH, Stats
from runtime.tables import held_states, state_slots, states


class RowStates(NamedTuple):
    """Of one row of a plan: its slot, the held state that it begins with, and what the slot is to hold afterwards."""

    slot: int
    source: int
    after: Held


def boundary(prepared: PreparedPrefill, request: PrefillRequest, alignment: int) -> int:
    """The aligned position whose state is kept beside the one at the end of a row.

    Where the caller names none, that is the end of a slice that ends aligned, and elsewhere where the last pass begins.
    """
    if prepared.keep_at:
        return prepared.keep_at
    if not prepared.final and not request.length % alignment:
        return request.length
    return prepared.chunks[-1].start


class States:
    """The states of one runtime. Of a module without recurrent layers there are none, and nothing here does anything."""

    def __init__(self, module: ModuleType, stores: SimpleNamespace, stats: Stats) -> None:
        self._alignment: int = module.ALIGNMENT
        self._parts = tuple([part.name for part in states(module)])
        self._stores = stores
        self._stats = stats
        self._rows: tuple[RowStates, ...] = ()
        self._pending: dict[int, Held] = {}
        self.positions = Positions(state_slots(module), held_states(module), module.ALIGNMENT)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def begin(self, prepared: PreparedPrefill) -> None:
        """Check a plan against what its slots hold now, and choose where its new states will lie. Touches no device."""
        self._rows, self._pending = (), {}
        if not self._parts:
            return
        for request in prepared.requests:
            self.positions.recheck(request.row, request.slot, request.cached, request.length, request.begin)
        free = iter(self.positions.free())
        self._rows = tuple([self._planned(prepared, request, free) for request in prepared.requests])
        self._pending = {row.slot: row.after for row in self._rows}

    def _planned(self, prepared: PreparedPrefill, request: PrefillRequest, free: Any) -> RowStates:
        source = self.positions.source(request.slot, request.begin)
        kept, end_at = boundary(prepared, request, self._alignment), next(free)
        boundary_at = end_at if kept == request.length else source if kept == request.begin else next(free)
        return RowStates(request.slot, source, Held(request.length, kept, end_at, boundary_at))

    def load(self, prepared: PreparedPrefill) -> None:
        """The state that each row begins with, and the zero state into rows of padding."""
        if not self._parts:
            return
        sources = [row.source for row in self._rows]
        sources += [ZERO] * (prepared.chunks[0].shape.rows - len(sources))
        with self._stats.phase(DISPATCH):
            for row, source in enumerate(sources):
                self._load(row, source)

    def reach(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> None:
        """Keep the states of the rows whose boundary lies where a pass is about to begin."""
        with_boundary = [
            (row, states.after.boundary_at)
            for row, states in enumerate(self._rows)
            if states.after.boundary == chunk.start != prepared.requests[row].begin
        ]
        self._keep(with_boundary)

    def finish(self) -> None:
        """Keep the states at the end of every row, after the last pass."""
        self._keep([(row, states.after.end_at) for row, states in enumerate(self._rows)])

    def commit(self) -> None:
        """The plan is through: its slots hold its states. What a slot held before is given up."""
        self.positions.put(self._pending)
        self._rows, self._pending = (), {}

    def forget(self, slot: int) -> None:
        """The slot's sequence is gone, also for a plan that is under way."""
        self.positions.forget(slot)
        self._pending.pop(slot, None)

    def move(self, moves: Moves) -> None:
        self.positions.move(moves)

    def compile(self) -> None:
        """Run each kind of copy once, before traces live. Writes a row of the passes and a held state that is free."""
        if self._parts:
            self._load(0, ZERO)
            self._store(0, self.positions.free()[-1])

    def _keep(self, rows: list[tuple[int, int]]) -> None:
        if not rows:
            return
        with self._stats.phase(DISPATCH):
            for row, place in rows:
                self._store(row, place)

    def _load(self, row: int, place: int) -> None:
        for held, worked_on in self._pairs(row, place):
            self._copy(held, worked_on)

    def _store(self, row: int, place: int) -> None:
        for held, worked_on in self._pairs(row, place):
            self._copy(worked_on, held)

    def _pairs(self, row: int, place: int) -> Iterator[tuple[Any, Any]]:
        """Of each part of each layer, the held tensor at a place and the one of a row that passes work on."""
        for part in self._parts:
            for held, of_rows in zip(getattr(self._stores.slots[place], part), getattr(self._stores, part)):
                yield held, of_rows[row]

    def _copy(self, source: Any, target: Any) -> None:
        """In the type of the target: a state that is held narrower than it is worked on is widened and narrowed on the way."""
        ttnn.copy(source, target)
        self._stats.copied()

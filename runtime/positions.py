"""Where the recurrent state of each slot stands: which two positions it holds, and which held states those lie in.

A slot holds the state at the end of what it has seen and the one at the aligned position before it, since a pass can only
begin at an aligned one. Held states are never written again while a slot refers to them: new ones are written beside them and
take their place at once, so that a plan that fails changes nothing, and two slots may refer to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.errors import StatePosition, StateSlotError
from runtime.slices import Moves, came_from, moved

ZERO = 0  # the held state that every prompt begins with

# Why tokens whose keys and values are cached are computed again.
NO_STATE = "no state held"  # the slot holds none: nothing is skipped
EXACT = "whole prompt cached"  # the last token still has to be computed, from a state before it
INSIDE = "cached length not aligned"  # from the boundary below it


@dataclass(frozen=True)
class Held:
    """Tokens that the states at the end and at the boundary have seen, and where each lies among the held states."""

    end: int
    boundary: int
    end_at: int
    boundary_at: int

    def at(self, position: int) -> int:
        return self.end_at if position == self.end else self.boundary_at


class Positions:
    def __init__(self, slots: int, states: int, alignment: int) -> None:
        """slots: sequences that may hold state. states: held states there are, the zero state among them."""
        self._slots = slots
        self._states = states
        self._alignment = alignment
        self._held: dict[int, Held] = {}

    def __getitem__(self, slot: int) -> Held | None:
        return self._held.get(slot)

    def begin(self, row: int, slot: int, cached: int, length: int, moves: Moves = ()) -> tuple[int, str]:
        """The first position that a row computes, and why it is not `cached`, if it is not.

        That is the largest held aligned position that leaves a token to compute, where the slot holds the state at
        `cached`, and 0 where it holds none. `moves` have not been made yet and are looked through.
        """
        if not cached:
            return 0, ""
        held = self._held.get(came_from(slot, moves))
        if held is None:
            return 0, NO_STATE
        if cached not in (held.end, held.boundary):
            also = "" if held.boundary == held.end else f" and at {held.boundary}"
            raise StatePosition(
                row,
                f"slot {slot} holds the state at {held.end}{also}; a start of {cached} is neither: start at "
                f"{held.end}, or call reset({slot}) and the whole prompt is computed",
            )
        usable = [
            position
            for position in (held.end, held.boundary)
            if position <= min(cached, length - 1) and not position % self._alignment
        ]
        begin = max(usable, default=0)
        return begin, "" if begin == cached else EXACT if cached == length else INSIDE

    def recheck(self, row: int, slot: int, cached: int, length: int, begin: int) -> None:
        """Refuse a plan that other plans have overtaken since it was made."""
        now, _ = self.begin(row, slot, cached, length)
        if now != begin:
            raise StatePosition(
                row,
                f"its plan begins at {begin} and the state of slot {slot} now makes it begin at {now}; prepare the call "
                f"again",
            )

    def source(self, slot: int, begin: int) -> int:
        """The held state that a row begins with."""
        return self._held[slot].at(begin) if begin else ZERO

    def require(self, slot: int) -> Held:
        """What a slot holds; StateSlotError where that is nothing."""
        self.require_slot(slot)
        if slot not in self._held:
            raise StateSlotError(f"slot {slot} holds no state; those that do: {sorted(self._held) or 'none'}")
        return self._held[slot]

    def require_slot(self, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise StateSlotError(
                f"slot {slot} is not one of 0 to {self._slots - 1}"
                if self._slots
                else f"slot {slot} has no state: the module has no recurrent layers"
            )

    def free(self) -> list[int]:
        """Held states that no slot refers to, in a fixed order."""
        used = {ZERO} | {place for held in self._held.values() for place in (held.end_at, held.boundary_at)}
        return [place for place in range(self._states) if place not in used]

    def put(self, states: Mapping[int, Held]) -> None:
        """What these slots hold from now on, all at once."""
        self._held |= states

    def share(self, source: int, target: int) -> None:
        """`target` holds what `source` holds. Nothing is copied: held states are not written again."""
        held = self.require(source)
        self.require_slot(target)
        self._held[target] = held

    def forget(self, slot: int) -> None:
        self._held.pop(slot, None)

    def move(self, moves: Moves) -> None:
        """All moves at once: a state goes with its sequence, and what lay at its new place is forgotten."""
        if moves:
            self._held = moved(self._held, moves)

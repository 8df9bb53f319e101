"""How far each slot's prompt has come, for engines that cut prompts themselves.

A slot is *open* from its first committed slice that is not the last until the last one. While it is open, the next
slice must start exactly at the cursor. Where long prompts are turned by other rotary tables than short ones, it must
also stay on the side of the keys that are there: the first slice chooses by its own end. A slice that failed half way
may have written some of its blocks: its slot stays dirty, and refuses everything, until the caller resets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from runtime.errors import DirtySlot, RequestError, RotarySwitch, SliceOrder
from runtime.request import PrefillRequest

Moves = tuple[tuple[int, int], ...]


class SliceCursors:
    def __init__(self, rotary_switch: int | None = None) -> None:
        """rotary_switch: tokens of the longest prompt that the first rotary tables turn, None with one set of them."""
        self._switch = rotary_switch
        self._committed: dict[int, int] = {}
        self._dirty: dict[int, tuple[int, int]] = {}

    @staticmethod
    def moves(slot_remap: Any) -> Moves:
        """A caller's map of old slot -> new slot, checked: integers, and no two sequences to one slot."""
        if slot_remap is None:
            return ()
        if not isinstance(slot_remap, Mapping):
            raise RequestError(f"slot_remap is {type(slot_remap).__name__}, not a mapping of old slot to new slot")
        if not all(
            isinstance(slot, Integral) and not isinstance(slot, bool) and slot >= 0
            for move in slot_remap.items()
            for slot in move
        ):
            raise RequestError(f"slot_remap is {dict(slot_remap)}; slots are integers from 0 on")
        moves = tuple((int(old), int(new)) for old, new in slot_remap.items())
        if len({new for _, new in moves}) < len(moves):
            raise RequestError(f"slot_remap {dict(moves)} moves two slots to one")
        return moves

    def check(self, row: int, slot: int, start: int, end: int, moves: Moves = ()) -> None:
        """Refuse a start that is not the cursor of an open slot, and an end on the other side of the switch. A slot
        that is not open starts wherever its cache allows. `moves` have not been made yet and are looked through.
        """
        slot = came_from(slot, moves)
        if slot in self._dirty:
            begun, end = self._dirty[slot]
            raise DirtySlot(
                row,
                f"slot {slot} failed within its slice {begun} to {end}; call reset({slot}) and begin the prompt again",
            )
        committed = self._committed.get(slot)
        if committed is not None and start != committed:
            kind = "leaves a gap after" if start > committed else "repeats a part of"
            raise SliceOrder(
                row,
                f"a slice from {start} {kind} slot {slot}, which is committed up to {committed}; "
                f"start at {committed}, or call reset({slot}) to begin another prompt",
            )
        if committed is not None and self._switch is not None and committed <= self._switch < end:
            raise RotarySwitch(
                row,
                f"a slice to {end} makes slot {slot} longer than {self._switch} tokens, from where on all keys are "
                f"turned otherwise than the {committed} that it holds; call reset({slot}) and begin the prompt again, "
                f"whole or with a first slice that ends past {self._switch}",
            )

    def begin(self, requests: tuple[PrefillRequest, ...], moves: Moves = ()) -> None:
        """Make the moves of the plan, check again, since other slices may have run since the plan was made, and mark what
        is about to be written.
        """
        self.move(moves)
        self.recheck(requests)
        self.mark(requests)

    def mark(self, requests: tuple[PrefillRequest, ...]) -> None:
        """What is about to be written may end half written."""
        for request in requests:
            if not request.final or request.slot in self._committed:
                self._dirty[request.slot] = (request.cached, request.length)

    def move(self, moves: Moves) -> None:
        if moves:
            self._committed = moved(self._committed, moves)
            self._dirty = moved(self._dirty, moves)

    def recheck(self, requests: tuple[PrefillRequest, ...]) -> None:
        for request in requests:
            self.check(request.row, request.slot, request.cached, request.length)

    def commit(self, requests: tuple[PrefillRequest, ...]) -> None:
        """Every pass of these rows was submitted."""
        for request in requests:
            self._dirty.pop(request.slot, None)
            if request.final:
                self._committed.pop(request.slot, None)
            else:
                self._committed[request.slot] = request.length

    def reset(self, slot: int) -> None:
        """Forget the slot's sequence, whatever state it is in."""
        self._committed.pop(slot, None)
        self._dirty.pop(slot, None)


def came_from(slot: int, moves: Moves) -> int:
    """Where what a slot will hold lies until the moves are made; -1 for a slot that only gives."""
    if not moves:
        return slot
    return ({old: -1 for old, _ in moves} | {new: old for old, new in moves}).get(slot, slot)


def moved(state: dict[int, Any], moves: Moves) -> dict[int, Any]:
    """All moves at once: what a slot held goes with it, and what lay at its new place is forgotten."""
    touched = {slot for move in moves for slot in move}
    kept = {slot: value for slot, value in state.items() if slot not in touched}
    return kept | {new: state[old] for old, new in moves if old in state}

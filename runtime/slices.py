"""How far each slot's prompt has come, for engines that cut prompts themselves.

A slot is *open* from its first committed slice that is not the last until the last one. While it is open, the next
slice must start exactly at the cursor. A slice that failed half way may have written some of its blocks: its slot stays
dirty, and refuses everything, until the caller resets it.
"""

from __future__ import annotations

from runtime.errors import DirtySlot, SliceOrder
from runtime.request import PrefillRequest


class SliceCursors:
    def __init__(self) -> None:
        self._committed: dict[int, int] = {}
        self._dirty: dict[int, tuple[int, int]] = {}

    def check(self, row: int, slot: int, start: int) -> None:
        """Refuse a start that is not the cursor of an open slot. A slot that is not open starts wherever its cache
        allows.
        """
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

    def begin(self, requests: tuple[PrefillRequest, ...]) -> None:
        """Check again, since other slices may have run since the plan was made, and mark what is about to be
        written.
        """
        for request in requests:
            self.check(request.row, request.slot, request.cached)
        for request in requests:
            if not request.final or request.slot in self._committed:
                self._dirty[request.slot] = (request.cached, request.length)

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

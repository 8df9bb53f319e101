"""Who may use which slot of recurrent state: one lease for each sequence, given back exactly once however the sequence ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

from runtime.errors import StateSlotError


class StateSlots:
    """The free slots of one runtime, lowest first. A module without recurrent layers has none: its leases hold None."""

    def __init__(self, count: int, forget: Callable[[int], None]) -> None:
        """forget: called with each slot that comes back, so that no state outlives its sequence."""
        self._count = count
        self._forget = forget
        self._free = set(range(count))
        self._taken_out: set[int] = set()

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(sorted(self._free))

    def acquire(self) -> Lease:
        """A slot for a sequence, fresh. Raises StateSlotError where all are taken."""
        if not self._count:
            return Lease(None, self)
        if not self._free:
            raise StateSlotError(
                f"all {self._count} slots of recurrent state are taken; free one, or wait until one is"
            )
        slot = min(self._free)
        self._free.remove(slot)
        return Lease(slot, self)

    def adopt(self, slot: int) -> Lease:
        """A new lease of a slot that was taken out of its old one, with what it holds."""
        if slot not in self._taken_out:
            raise StateSlotError(
                f"slot {slot} was not taken out of a lease; those that were: {sorted(self._taken_out) or 'none'}"
            )
        self._taken_out.remove(slot)
        return Lease(slot, self)

    def give_back(self, slot: int) -> None:
        """The end of a lease, and nothing else calls it."""
        self._forget(slot)
        self._free.add(slot)

    def take_out(self, slot: int) -> None:
        self._taken_out.add(slot)


class Lease:
    """A sequence's slot, the same for as long as the sequence lives.

    It ends with the first of `free`, the end of a `with` block, and the last reference to it; whatever comes after has no
    effect. `take` leaves nothing to free.
    """

    def __init__(self, slot: int | None, slots: StateSlots) -> None:
        self.slot = slot
        self._slots = slots
        self._end = None if slot is None else weakref.finalize(self, slots.give_back, slot)
        if self._end is not None:
            self._end.atexit = False

    @property
    def held(self) -> bool:
        """Whether there is a slot to give back."""
        return self._end is not None and self._end.alive

    def free(self) -> None:
        """Give the slot back. Does nothing where that, or `take`, came before."""
        if self._end is not None:
            self._end()

    def take(self) -> int | None:
        """The slot, with nothing left to free: it now belongs to the caller, as where a sequence migrates to an owner who
        will `adopt` it.
        """
        if self._end is not None:
            if self._end.detach() is None:
                raise StateSlotError(f"slot {self.slot} was given back or taken before; acquire another one")
            self._slots.take_out(self.slot)
        return self.slot

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

"""Who owns which device tensor. Every acquired tensor is released exactly once, by its scope or by whoever it was moved
to.

The library frees a tensor on its last reference, so two things keep memory after a failure: a release that itself
failed, and the frames of the failure's traceback. The first becomes an orphan, which blocks new work until `cleanup()`
has retried it; the second are cleared before the error goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from traceback import clear_frames
from types import TracebackType
from typing import Any

from runtime.backend import ttnn
from runtime.errors import CleanupFailed, CleanupRequired


class Ownership:
    """The orphans of one runtime, and the scopes that may add to them."""

    def __init__(self) -> None:
        self._orphans: list[Any] = []

    @property
    def orphans(self) -> int:
        """Tensors whose release failed and that are still waiting for `cleanup()`."""
        return len(self._orphans)

    def scope(self) -> Scope:
        return Scope(self)

    def require_clean(self) -> None:
        """Refuse new work while a release is outstanding."""
        if self._orphans:
            raise CleanupRequired(
                f"cleanup is required: {len(self._orphans)} device tensors could not be released; "
                f"call cleanup() and try again"
            )

    def release(self, tensors: Iterable[Any]) -> list[BaseException]:
        """Release each tensor once. One that fails becomes an orphan; its error is returned and the others are still
        released.
        """
        failures: list[BaseException] = []
        for tensor in tensors:
            try:
                _free(tensor)
            except Exception as error:
                self._orphans.append(tensor)
                failures.append(error)
        return failures

    def cleanup(self, before: Iterable[Any] = (), after: Iterable[Any] = ()) -> None:
        """Release `before`, retry every orphan that still holds memory, release `after`. One that fails does not stop
        the others: it is an orphan, and CleanupFailed is raised at the end with all errors.
        """
        orphans, self._orphans = self._orphans, []
        # A result whose release failed is both an orphan and unread.
        things = list({id(thing): thing for thing in (*before, *orphans, *after) if thing.is_allocated()}.values())
        failures = self.release(things)
        if failures:
            raise CleanupFailed(
                f"{len(failures)} of {len(things)} device tensors still could not be released: {failures[0]}",
                tuple(failures),
            )


def _free(thing: Any) -> None:
    """A tensor, or what knows how to release itself, as a recorded trace does."""
    if hasattr(thing, "give_back"):
        thing.give_back()
    else:
        ttnn.deallocate(thing)


class Scope:
    """Owns the tensors acquired within a `with` block. What was not moved out is released at its end, also on failure.

    An error leaves the block as the same object, with the errors of failed releases attached as `cleanup_failures`.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._owned: dict[int, Any] = {}

    def __enter__(self) -> Scope:
        return self

    def own(self, tensor: Any) -> Any:
        """Take a tensor over; the same object twice is one tensor."""
        self._owned[id(tensor)] = tensor
        return tensor

    def release(self, *tensors: Any) -> None:
        """Release before the block ends. A tensor that fails belongs to the orphans, not to the scope any more."""
        for tensor in tensors:
            del self._owned[id(tensor)]
        failures = self._ownership.release(tensors)
        if failures:
            attach(failures[0], failures[1:])
            raise failures[0]

    def move(self, *tensors: Any) -> tuple[Any, ...]:
        """Release everything else and, when that succeeded, give these tensors to the caller, who must release them."""
        kept = {id(tensor) for tensor in tensors}
        self.release(*[tensor for identity, tensor in reversed(self._owned.items()) if identity not in kept])
        return tuple([self._owned.pop(id(tensor)) for tensor in tensors])

    def disown(self, tensor: Any) -> Any:
        """Give up one tensor: whoever takes it must release it."""
        return self._owned.pop(id(tensor))

    def move_all(self) -> None:
        """Give up everything: whoever kept a reference must release it."""
        self._owned.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owned = tuple(reversed(self._owned.values()))
        if error is None:
            self.release(*owned)
        else:
            self._owned.clear()
            attach(error, self._ownership.release(owned))


def attach(error: BaseException, failures: Iterable[BaseException]) -> None:
    """Add the errors of failed releases to the error that caused them. Their frames are let go of, as the error's own
    are.
    """
    added = tuple(failures)
    for failure in added:
        forget_frames(failure)
    error.cleanup_failures = (*getattr(error, "cleanup_failures", ()), *added)


def forget_frames(error: BaseException) -> None:
    """Clear the locals of every finished frame that an error and the errors behind it hold: they keep tensors alive."""
    pending: list[BaseException | None] = [error]
    met: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in met:
            continue
        met.add(id(current))
        clear_frames(current.__traceback__)
        pending += [current.__cause__, current.__context__]

"""Who allocated what since the first trace was captured: the memory that a replay may write over.

Memory that was live before the first capture is safe, because no recording could use it as scratch. Whatever comes
later, outside a recording, may lie on some trace's scratch; it is noted here with the line that allocated it, until it
is freed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .storage import Buffer


@dataclass
class Allocation:
    """One buffer. `trace_id` is the recording that it was made in, or None.

    `operations` and `replays` are how many had run before it.
    """

    buffer: Buffer
    operation: str
    file: str
    line: int
    trace_id: int | None
    operations: int
    replays: int
    read: bool = False  # the host took its values since they were last written

    def describe(self, operations: int, replays: int) -> str:
        """The tensor, where it was made and how long ago, given the counts of now."""
        return (
            f"the tensor {self.buffer.spec!r} at address {self.buffer.address}, allocated by {self.operation} "
            f"at {self.file}:{self.line} "
            f"({operations - self.operations} operations and {replays - self.replays} replays ago)"
        )


class TraceMemory:
    """Filled from the first `begin_trace_capture` on and emptied with the release of the last trace."""

    def __init__(self) -> None:
        self.first_outside: Allocation | None = None  # even if it was freed since
        self._live: dict[int, Allocation] = {}

    def allocated(self, allocation: Allocation) -> None:
        self._live[id(allocation.buffer)] = allocation
        if allocation.trace_id is None and self.first_outside is None:
            self.first_outside = allocation

    def freed(self, buffer: Buffer) -> None:
        self._live.pop(id(buffer), None)

    def was_read(self, buffer: Buffer) -> None:
        self._mark(buffer, True)

    def was_written(self, buffer: Buffer) -> None:
        self._mark(buffer, False)

    def _mark(self, buffer: Buffer, read: bool) -> None:
        allocation = self._live.get(id(buffer))
        if allocation is not None:
            allocation.read = read

    def outside(self, traces: Collection[int]) -> list[Allocation]:
        """What is live and belongs to none of these traces: transients, and outputs of traces that are gone."""
        return [allocation for allocation in self._live.values() if allocation.trace_id not in traces]

    def clear(self) -> None:
        self.first_outside = None
        self._live.clear()

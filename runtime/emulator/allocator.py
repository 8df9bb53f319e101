"""Memory of one kind (DRAM or L1), allocated in lock-step over its banks: one address means the same place in every
bank.

First fit in address order, upwards from the bottom in DRAM and downwards from the top in L1, which is what the
library was seen to do on mock devices; the addresses agree with it.
"""

from __future__ import annotations

import bisect
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import EmulatorError

if TYPE_CHECKING:
    from .storage import Buffer


@dataclass(frozen=True)
class MemoryView:
    """Bytes of one bank, and how many banks there are."""

    num_banks: int
    total_bytes_per_bank: int
    total_bytes_allocated_per_bank: int
    total_bytes_free_per_bank: int
    largest_contiguous_bytes_free_per_bank: int
    peak_bytes_allocated_per_bank: int


class BankAllocator:
    """Hands out address ranges of `bank_bytes` from `base` on, identical in all `banks`."""

    def __init__(
        self,
        kind: str,
        *,
        banks: int,
        bank_bytes: int,
        base: int,
        page_alignment: int,
        size_alignment: int,
        from_top: bool,
    ):
        self.kind = kind
        self.banks = banks
        self.bank_bytes = bank_bytes
        self.base = base
        self.page_alignment = page_alignment
        self.size_alignment = size_alignment
        self.from_top = from_top
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.allocations = 0  # ever made: tells whether anything was allocated since a moment
        self._free: list[tuple[int, int]] = [(base, bank_bytes)]  # (start, bytes), ascending, never adjacent
        self._live: dict[int, tuple[int, weakref.ref[Buffer]]] = {}

    def per_bank_bytes(self, pages: int, page_bytes: int) -> int:
        """What a buffer takes of every bank: its pages are dealt round robin and each is padded to the alignment."""
        aligned_page = -(-page_bytes // self.page_alignment) * self.page_alignment
        return -(-(-(-pages // self.banks) * aligned_page) // self.size_alignment) * self.size_alignment

    def allocate(self, operation: str, pages: int, page_bytes: int, buffer: Buffer) -> int:
        """Address of a new range, or EmulatorError with the figures of the bank."""
        size = self.per_bank_bytes(pages, page_bytes)
        order = range(len(self._free))
        for index in reversed(order) if self.from_top else order:
            start, length = self._free[index]
            if length < size:
                continue
            address = start + length - size if self.from_top else start
            rest = length - size
            if rest:
                self._free[index] = (start if self.from_top else start + size, rest)
            else:
                del self._free[index]
            self.allocated_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
            self.allocations += 1
            if size:
                self._live[address] = (size, weakref.ref(buffer))
            return address
        view = self.view()
        raise EmulatorError(
            operation,
            f"out of {self.kind} memory: a buffer of {pages * page_bytes} B over {self.banks} banks needs {size} B in "
            f"each bank of {self.bank_bytes} B, of which {view.total_bytes_allocated_per_bank} B are allocated and "
            f"{view.total_bytes_free_per_bank} B free, "
            f"{view.largest_contiguous_bytes_free_per_bank} B of them in one piece",
        )

    def release(self, address: int, size: int) -> None:
        if size == 0:
            return
        del self._live[address]
        self.allocated_bytes -= size
        index = bisect.bisect_left(self._free, (address, 0))
        start, end = address, address + size
        if index < len(self._free) and self._free[index][0] == end:
            end += self._free.pop(index)[1]
        if index > 0 and sum(self._free[index - 1]) == start:
            index -= 1
            start = self._free.pop(index)[0]
        self._free.insert(index, (start, end - start))

    def live(self) -> list[tuple[int, int, Buffer]]:
        """(address, bytes in each bank, buffer) of everything allocated now, by address."""
        found = ((address, size, reference()) for address, (size, reference) in sorted(self._live.items()))
        return [(address, size, buffer) for address, size, buffer in found if buffer is not None]

    def lowest_address(self) -> int | None:
        return min(self._live) if self._live else None

    def view(self) -> MemoryView:
        return MemoryView(
            num_banks=self.banks,
            total_bytes_per_bank=self.bank_bytes,
            total_bytes_allocated_per_bank=self.allocated_bytes,
            total_bytes_free_per_bank=self.bank_bytes - self.allocated_bytes,
            largest_contiguous_bytes_free_per_bank=max((length for _, length in self._free), default=0),
            peak_bytes_allocated_per_bank=self.peak_bytes,
        )

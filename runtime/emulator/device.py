"""The emulated device: its memories, its compiled programs, its counters, and the switches that tests use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .allocator import BankAllocator, MemoryView
from .configs import BufferType, CoreCoord
from .dtypes import round_to
from .errors import EmulatorError
from .storage import Buffer, TensorSpec
from .trace_memory import Allocation, TraceMemory

if TYPE_CHECKING:
    from runtime.tables import Board

    from .trace import Trace

PRECISIONS = ("declared", "float32")
TRACE_REGION_GRANULE = 4096  # the library rounds each bank's share of the trace region up to this
PACKAGE = str(Path(__file__).parent)


class Arch(Enum):
    WORMHOLE_B0 = 2
    BLACKHOLE = 3


@dataclass(frozen=True)
class Operation:
    """One device operation as it was called: its outputs, and the first frame outside the emulator that asked for it.

    One that a replay ran again has the frame of its capture. It equals the operation of an eager run of the same lines.
    """

    name: str
    outputs: tuple[TensorSpec, ...]
    file: str
    line: int
    replayed: bool = field(default=False, compare=False)


def caller() -> tuple[str, int]:
    """File and line of the first frame outside the emulator."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@dataclass
class Counters:
    operations: int = 0  # as called: a replay counts once, in `replays`
    allocations: int = 0  # buffers ever allocated, of any memory
    uploads: int = 0
    upload_bytes: int = 0
    reads: int = 0
    read_bytes: int = 0
    double_frees: int = 0
    replays: int = 0
    destroyed_tensors: int = 0  # live tensors that a replay wrote over
    compiles_under_trace: int = 0  # programs compiled while a trace was live: their binaries may land on its scratch


class Device:
    """One chip of `board`. `precision` "float32" keeps every declared type and check and only leaves the rounding out.

    `before_operation(name)` runs before every device call (operations, transfers, trace calls) and may raise: a fault injected
    there leaves the device as it was. `check_representable` compares each result with its own rounding.

    `strict_traces` refuses what corrupts a trace or is corrupted by one: an allocation between two captures, a tensor
    made after the first capture that is still wanted at a replay, and a program compiled while a trace lives (but
    within `compiling()`). Off, a replay destroys what lies on its memory, and `counters` tells how often that was and
    how many programs were compiled.
    """

    def __init__(self, board: Board, *, precision: str, device_id: int, trace_region_size: int):
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        self.board = board
        self.precision = precision
        self.device_id = device_id
        self.trace_region_size = trace_region_size
        columns, rows = board.grid
        share = -(-(-(-trace_region_size // board.dram_banks)) // TRACE_REGION_GRANULE) * TRACE_REGION_GRANULE
        self._allocators = {
            BufferType.DRAM: BankAllocator(
                "DRAM",
                banks=board.dram_banks,
                bank_bytes=board.dram_bank_bytes - share,
                base=2**20 + 2 * board.dram_alignment,
                page_alignment=board.dram_alignment,
                size_alignment=board.dram_alignment,
                from_top=False,
            ),
            BufferType.L1: BankAllocator(
                "L1",
                banks=columns * rows,
                bank_bytes=board.l1_bank_bytes,
                base=board.l1_limit - board.l1_bank_bytes,
                page_alignment=16,
                size_alignment=board.dram_alignment,
                from_top=True,
            ),
        }
        self.programs: dict[Any, Any] = {}
        self.counters = Counters()
        self.check_representable = False
        self.before_operation: Callable[[str], None] | None = None
        self.traces: dict[int, Trace] = {}
        self.recording: Trace | None = None
        self.trace_count = 0
        self.strict_traces = True
        self.trace_memory = TraceMemory()
        self.random = torch.Generator().manual_seed(0)
        self.row_random: dict[int, torch.Generator] = {}  # rows of a draw that were seeded by themselves
        self.open = True
        self._may_compile = False
        self._log: list[Operation] | None = None

    @property
    def capturing(self) -> bool:
        return self.recording is not None

    @property
    def tracing(self) -> bool:
        """From the first capture to the release of the last trace."""
        return self.recording is not None or bool(self.traces)

    def arch(self) -> Arch:
        return Arch[self.board.architecture.upper()]

    def compute_with_storage_grid_size(self) -> CoreCoord:
        return CoreCoord(*self.board.grid)

    def dram_grid_size(self) -> CoreCoord:
        return CoreCoord(self.board.dram_banks, 1)

    def id(self) -> int:
        return self.device_id

    def num_program_cache_entries(self) -> int:
        return len(self.programs)

    def allocator(self, kind: BufferType) -> BankAllocator:
        return self._allocators[kind]

    def memory_view(self, kind: BufferType = BufferType.DRAM) -> MemoryView:
        return self._allocators[kind].view()

    def reset_peak(self) -> None:
        for allocator in self._allocators.values():
            allocator.peak_bytes = allocator.allocated_bytes

    def live_tensors(self) -> list[Buffer]:
        """Everything allocated now, DRAM before L1, by address: what a leak test compares."""
        return [buffer for allocator in self._allocators.values() for _, _, buffer in allocator.live()]

    def round(self, values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        if self.precision == "float32" or not spec.is_float:
            return values
        return round_to(values, spec.dtype)

    def check_program_memory(self, name: str, program_bytes: int) -> None:
        """A program's buffers grow upwards on every core from where its tensors may begin; tensors come down from the
        top.
        """
        end = self.board.l1_limit - self.board.l1_bank_bytes + program_bytes
        if end > self.board.l1_limit:
            raise EmulatorError(
                name,
                f"the program's buffers of {program_bytes} B end at {end} B on each core, beyond the "
                f"{self.board.l1_limit} B of L1; take smaller blocks",
            )
        lowest = self._allocators[BufferType.L1].lowest_address()
        if lowest is not None and end > lowest:
            raise EmulatorError(
                name,
                f"the program's buffers end at {end} B on each core and would run into the L1 tensor at {lowest} B",
            )

    def compile(self, key: Any, program: Any) -> None:
        """Keep a program under its key, which begins with the name of its operation."""
        if self.traces:
            if self.strict_traces and not self._may_compile:
                raise EmulatorError(
                    key[0],
                    f"a new program may not be compiled while {len(self.traces)} traces are live, because its binary "
                    "may land on their memory; run every shape once before the first capture, or release the traces",
                )
            self.counters.compiles_under_trace += 1
        self.programs[key] = program

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Let programs be compiled while traces live: for a test of what that costs, never for a runtime."""
        before, self._may_compile = self._may_compile, True
        try:
            yield
        finally:
            self._may_compile = before

    def allocated(self, buffer: Buffer, operation: str) -> None:
        """What every new buffer reports. The line that made it is looked up only while a trace lives."""
        self.counters.allocations += 1
        if self.tracing:
            trace_id = None if self.recording is None else self.recording.trace_id
            counts = (self.counters.operations, self.counters.replays)
            self.trace_memory.allocated(Allocation(buffer, operation, *caller(), trace_id, *counts))

    def freed(self, buffer: Buffer) -> None:
        self.trace_memory.freed(buffer)

    def enter(self, name: str) -> None:
        """What every device call does first."""
        if not self.open:
            raise EmulatorError(name, f"device {self.device_id} is closed")
        if self.before_operation is not None:
            self.before_operation(name)

    @contextmanager
    def record_operations(self) -> Iterator[list[Operation]]:
        """Collect every device operation of the block. Nested blocks are refused: which one would own an entry?"""
        if self._log is not None:
            raise EmulatorError("record_operations", "operations are being recorded already")
        log: list[Operation] = []
        self._log = log
        try:
            yield log
        finally:
            self._log = None

    def note(self, name: str, outputs: tuple[TensorSpec, ...], captured_at: tuple[str, int] | None = None) -> None:
        """Count and log an operation; one that a replay runs again comes with the line that was captured."""
        if captured_at is None:
            self.counters.operations += 1
        if self._log is not None:
            self._log.append(Operation(name, outputs, *(captured_at or caller()), replayed=captured_at is not None))


def open_device(*, device_id: int = 0, board: Board, precision: str = "declared", trace_region_size: int = 0) -> Device:
    """A fresh device with empty memory."""
    return Device(board, precision=precision, device_id=device_id, trace_region_size=trace_region_size)


def close_device(device: Device) -> None:
    device.open = False
    device.traces.clear()
    device.trace_memory.clear()
    device.programs.clear()


def synchronize_device(device: Device, cq_id: int | None = None) -> None:
    device.enter("synchronize_device")

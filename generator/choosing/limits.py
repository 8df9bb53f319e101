"""What a choice of lengths may cost: programs and the traces that hold them."""

from __future__ import annotations

from generator.targets import Board

# Unverified: those of the runtime, which estimates the same of a module that is warm (`runtime.estimate`).
TRACE_BYTES_PER_OPERATION = 4096
TRACE_BYTES_PER_OPERATION_AND_CORE = 160


def trace_bytes(operations: int, board: Board) -> int:
    """Estimated bytes of the trace of a pass of so many device operations."""
    return operations * (TRACE_BYTES_PER_OPERATION + TRACE_BYTES_PER_OPERATION_AND_CORE * board.cores)


def most_traces(operations: int, board: Board) -> int:
    """Traces that the region kept for them holds, at least one."""
    return max(1, board.trace_region_bytes // trace_bytes(operations, board))

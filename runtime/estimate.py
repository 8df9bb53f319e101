"""How many bytes of the trace region a module's traces will take, known before any is captured."""

from __future__ import annotations

from types import ModuleType

from runtime.errors import NotCompiled, TraceRegionTooSmall
from runtime.registry import Registry, name
from runtime.tables import Shape

# Unverified: measured on no board, and a mock device reports 0. A recorded operation is a launch command with, for each
# core, addresses and run-time arguments. Sized so that a model of 600 operations on 64 cores takes 8.6 MB for each
# shape, within the 20 to 50 MB that the library's public demonstrations of such models reserve for a few shapes.
BYTES_PER_OPERATION = 4096
BYTES_PER_OPERATION_AND_CORE = 160


def trace_bytes(module: ModuleType, operations: int) -> int:
    """Estimated bytes of a recording of so many device operations on the module's board."""
    columns, rows = module.BOARD.grid
    return operations * (BYTES_PER_OPERATION + BYTES_PER_OPERATION_AND_CORE * columns * rows)


def estimates(module: ModuleType, registry: Registry) -> dict[Shape, int]:
    """Estimated bytes of each shape's trace, from the operations that warm-up counted. Raises NotCompiled before it."""
    uncounted = sum(not registry.is_counted(shape) for shape in module.TRACES)
    if uncounted:
        raise NotCompiled(f"{uncounted} of {len(module.TRACES)} shapes are not compiled; call warm_up() first")
    return {shape: trace_bytes(module, registry.operations(shape)) for shape in module.TRACES}


def require_room(module: ModuleType, registry: Registry, region_bytes: int) -> None:
    """Refuse a region that the estimate says is too small, with both numbers and the largest trace."""
    expected = estimates(module, registry)
    total = sum(expected.values())
    if total > region_bytes:
        largest = max(expected, key=expected.__getitem__)
        raise TraceRegionTooSmall(
            f"{len(expected)} traces need about {total} B (unverified estimate; the largest is {name(largest)} with "
            f"{expected[largest]} B) and the trace region has {region_bytes} B; "
            f"open the device with trace_region_size={total} or more"
        )

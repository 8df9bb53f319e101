"""Which `ttnn` this process is bound to: the library, or the emulator where there is none.

Bound once, at import. The environment variable PREFILL_BACKEND ("ttnn" or "emulator") decides; without it the library
is taken where it can be imported.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from runtime.errors import BackendUnavailable
from runtime.tables import Board

VARIABLE = "PREFILL_BACKEND"
NAMES = ("ttnn", "emulator")
SHOWN = 400  # characters of what the library says when it opens no device


def _bind() -> tuple[str, Any]:
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in NAMES:
        raise BackendUnavailable(f"{VARIABLE} must be one of {', '.join(NAMES)}, got {wanted!r}")
    if wanted != "emulator":
        try:
            return "ttnn", importlib.import_module("ttnn")
        except ImportError as error:
            if wanted == "ttnn":
                raise BackendUnavailable(
                    f"{VARIABLE}=ttnn, but ttnn cannot be imported ({error}); install it (in a clone "
                    "`make .venv-device/.ready`, elsewhere pip install 'prefill-codegen[device]') or unset it"
                ) from error
    return "emulator", importlib.import_module("runtime.emulator")


name, ttnn = _bind()


def open_device(board: Board, *, precision: str = "declared", device_id: int = 0, trace_region_size: int = 0) -> Any:
    """Open one chip that must be `board`. `precision` "float32" (no rounding) exists on the emulator only.

    `trace_region_size` is in bytes. Raises BackendUnavailable when the library opens none
    or the chip that was found is another one than the board.
    """
    if name == "emulator":
        return ttnn.open_device(
            device_id=device_id, board=board, precision=precision, trace_region_size=trace_region_size
        )
    if precision != "declared":
        raise ValueError(
            f"precision {precision!r} needs the emulator: a device stores the declared dtypes ({VARIABLE}=emulator)"
        )
    try:
        device = ttnn.open_device(device_id=device_id, trace_region_size=trace_region_size)
    except RuntimeError as error:
        raise BackendUnavailable(
            f"ttnn does not open device {device_id}: {' '.join(str(error).split())[:SHOWN]}; end the process that holds "
            "it, or name another one: `tt-smi -ls` lists the devices that are there"
        ) from error
    found = (str(device.arch()).rsplit(".", 1)[-1].lower(), _pair(device.compute_with_storage_grid_size()))
    if found != (board.architecture, board.grid):
        ttnn.close_device(device)
        raise BackendUnavailable(
            f"device {device_id} is {found[0]} with {found[1][0]}x{found[1][1]} worker cores, but the module was built "
            f"for {board.name}: {board.architecture} with {board.grid[0]}x{board.grid[1]}; build it for the target "
            "that is there"
        )
    return device


def trace_region(device: Any) -> int:
    """Bytes that the device was opened with for traces (the library rounds each bank's share up)."""
    if name == "emulator":
        return device.trace_region_size
    view = ttnn.get_memory_view(device, ttnn.BufferType.TRACE)
    return view.num_banks * view.total_bytes_per_bank


def count_operations(device: Any, work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work` returns, and how many device operations it launched."""
    if name == "emulator":
        before = device.counters.operations
        return work(), device.counters.operations - before
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NORMAL)
    try:
        result = work()
    finally:
        captured = ttnn.graph.end_graph_capture()
    return result, sum(node["node_type"] == "program_execution" for node in captured)


def close_device(device: Any) -> None:
    ttnn.close_device(device)


def _pair(grid: Any) -> tuple[int, int]:
    return int(grid.x), int(grid.y)

"""The process that holds one mock device: reads modules as JSON lines and answers with JSON lines, the last of each an
`end`."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from runtime.backend import ttnn
from runtime.legality.check import check_module


def dram_alignment(device: Any) -> int:
    """Bytes between two tensors of one four-byte element: pages start at multiples of the alignment."""
    first, second = (
        ttnn.empty(
            (1,), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG
        )
        for _ in range(2)
    )
    return second.buffer_address() - first.buffer_address()


def opened_board(device: Any) -> dict[str, Any]:
    """The numbers of a board as the library reports them for the open device, under the names that modules use."""
    grid = device.compute_with_storage_grid_size()
    dram = ttnn.get_memory_view(device, ttnn.BufferType.DRAM)
    l1 = ttnn.get_memory_view(device, ttnn.BufferType.L1)
    return {
        "architecture": device.arch().name.lower(),
        "grid": [grid.x, grid.y],
        "dram_banks": dram.num_banks,
        "dram_bank_bytes": dram.total_bytes_per_bank,
        "dram_alignment": dram_alignment(device),
        "l1_bank_bytes": l1.total_bytes_per_bank,
    }


def serve() -> None:
    """Answer until the input ends. The first line describes the device. What the library prints goes to standard error,
    and so do the emitted lines that were running when a fault in it ends the process."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()

    def say(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    say({"doing": "opening the device"})
    device = ttnn.open_device(device_id=0)
    opened = opened_board(device)
    say({"end": {"board": opened}})
    for line in sys.stdin:
        check_module(device, opened, **json.loads(line), say=say)
    ttnn.close_device(device)


if __name__ == "__main__":
    serve()

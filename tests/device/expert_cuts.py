"""Run as a process of its own on a mock device: writes which experts the library runs on this board, as lines of JSON.

Every line is [hidden, width, columns, rows, weights, biased, accepted], sizes in elements.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from typing import Any

import ttnn

HIDDEN, WIDTHS = (1024, 2880, 4096, 8192), (96, 768, 2880, 3584, 7168, 14336)
GRIDS = ((4, 4), (8, 6), (8, 8), (11, 10))
SLOTS = 64


def accepted(device: Any, hidden: int, width: int, grid: tuple[int, int], dtype: Any, biased: bool) -> bool:
    def made(shape: tuple[int, ...], kind: Any, layout: Any = ttnn.TILE_LAYOUT) -> Any:
        return ttnn.empty(shape, dtype=kind, layout=layout, device=device)

    gate, down = made((hidden, width), dtype), made((width, hidden), dtype)
    number = made((1, 1), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    options: dict[str, Any] = {}
    if biased:
        options["activation"] = ttnn.RoutedExpertActivation.SwiGluOai
        for role, columns in (("gate", width), ("up", width), ("down", hidden)):
            options[f"{role}_biases"] = [made((1, columns), ttnn.bfloat16)]
    try:
        ttnn.experimental.deepseek_prefill.moe_fused_swiglu(
            made((SLOTS, hidden), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT),
            [gate],
            [gate],
            [down],
            number,
            number,
            dtype=ttnn.bfloat16,
            core_grid=ttnn.CoreCoord(*grid),
            output=made((SLOTS, hidden), ttnn.bfloat16),
            expert_region_offsets=number,
            read_x_at_offset=True,
            **options,
        )
    except RuntimeError:
        return False
    return True


def record(path: str) -> None:
    device = ttnn.open_device(device_id=0)
    size = device.compute_with_storage_grid_size()
    with open(path, "w") as lines:
        for hidden, width, grid, biased in product(HIDDEN, WIDTHS, GRIDS, (False, True)):
            if grid[0] > size.x or grid[1] > size.y:
                continue
            for name in ("bfloat4_b", "bfloat8_b", "bfloat16"):
                found = accepted(device, hidden, width, grid, getattr(ttnn, name), biased)
                print(json.dumps([hidden, width, *grid, name, biased, found]), file=lines)
    ttnn.close_device(device)


if __name__ == "__main__":
    record(sys.argv[1])

"""Run as a process of its own on a mock device: writes the outcome of every conformance case as JSON to the path given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ttnn

from tests.support.emulator_cases import CASES, factory, outcome


def record(path: Path) -> None:
    device = ttnn.open_device(device_id=0)

    def create(shape, dtype, layout, memory_config, values):
        return ttnn.empty(shape, dtype=dtype, layout=layout, device=device, memory_config=memory_config)

    make = factory(ttnn, create)
    path.write_text(json.dumps({name: outcome(ttnn, case, make) for name, case in CASES.items()}))
    ttnn.close_device(device)


if __name__ == "__main__":
    record(Path(sys.argv[1]))

"""The process that holds one mock device: reads jobs as JSON lines, answers each with one JSON line."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import ttnn

from tests.device.legality import opened_board, run_module


def serve() -> None:
    """Answer until the input ends. The first line describes the device. What the library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    device = ttnn.open_device(device_id=0)

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer(opened_board(device))
    for line in sys.stdin:
        answer(asdict(run_module(device, **json.loads(line))))
    ttnn.close_device(device)


if __name__ == "__main__":
    serve()

"""Run as a process of its own on a mock device: answers with the outcome of each conformance case or generated call.

Arguments: what to run ("cases", "calls", "every third call", or the name of a rule about crashes), the number to begin with,
and the file that lines of JSON [name, outcome] are added to. A call is announced with null before it runs, so that a process
that ends tells which call ended it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ttnn

from tests.support import emulator_cases, generated_cases
from tests.support.generated_arguments import CALLS
from tests.support.generated_rules import CRASHES, described_by

Outcome = tuple[str, Callable[[], str]]


def cases(device: Any) -> Iterator[Outcome]:
    """The cases written by hand."""

    def create(shape, dtype, layout, memory_config, values):
        return ttnn.empty(shape, dtype=dtype, layout=layout, device=device, memory_config=memory_config)

    make = emulator_cases.factory(ttnn, create)
    for name, case in emulator_cases.CASES.items():
        yield name, lambda case=case: emulator_cases.outcome(ttnn, case, make)


def calls(device: Any, step: int = 1) -> Iterator[Outcome]:
    """Every `step`-th of the generated calls but those known to end the process."""
    make = generated_cases.on_namespace(ttnn, device, lambda tensor, operand: None)
    for number, (name, call) in enumerate(CALLS.items()):
        if number % step and not name.startswith("found"):
            continue
        if not described_by(CRASHES, call):
            yield name, lambda call=call: generated_cases.outcome(ttnn, call, make)


def crash(device: Any, rule: str) -> Iterator[Outcome]:
    """The calls that a rule says can end the process."""
    make = generated_cases.on_namespace(ttnn, device, lambda tensor, operand: None)
    for name, call in CALLS.items():
        if CRASHES[rule].describes(call):
            yield name, lambda call=call: generated_cases.outcome(ttnn, call, make)


def record(what: str, first: int, path: str) -> None:
    device = ttnn.open_device(device_id=0)
    runs = {"cases": cases, "calls": calls, "every third call": lambda device: calls(device, 3)}
    outcomes = crash(device, what) if what in CRASHES else runs[what](device)
    with open(path, "a") as answers:
        for number, (name, run) in enumerate(outcomes):
            if number < first:
                continue
            print(json.dumps([name, None]), file=answers, flush=True)
            print(json.dumps([name, run()]), file=answers)
    ttnn.close_device(device)


if __name__ == "__main__":
    record(sys.argv[1], int(sys.argv[2]), sys.argv[3])

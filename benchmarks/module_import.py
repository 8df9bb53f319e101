"""How long importing an emitted module takes beyond the libraries that it imports."""

from __future__ import annotations

import sys

from benchmarks.measure import PROJECT, Figure, run_command

REPEATS = 3
LIMIT_MILLISECONDS = 50
PROGRAM = """
import importlib, sys, time
import runtime.backend, runtime.tables
start = time.perf_counter()
importlib.import_module(sys.argv[1])
print(1000 * (time.perf_counter() - start))
"""


def import_milliseconds(module: str) -> float:
    return float(run_command([sys.executable, "-c", PROGRAM, module]).output)


def measure() -> list[Figure]:
    """The slowest module stands for all: each sample is the longest import of one round over every module."""
    paths = (path for path in PROJECT.glob("generated/*/*.py") if path.stem != "__init__")
    modules = sorted(f"generated.{path.parent.name}.{path.stem}" for path in paths)
    rounds = tuple(max(import_milliseconds(module) for module in modules) for _ in range(REPEATS))
    return [Figure(f"import of the slowest of {len(modules)} modules", "ms", rounds, LIMIT_MILLISECONDS)]

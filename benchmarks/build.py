"""How long a build of all modules takes, from nothing and when nothing changed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import CODEGEN, Figure, run_command

FULL_REPEATS, UNCHANGED_REPEATS = 3, 5
FULL_LIMIT_SECONDS, UNCHANGED_LIMIT_SECONDS = 20, 0.5


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / str(index) for index in range(FULL_REPEATS)]
        full = [run_command([CODEGEN, "build", "--all", "--output", output]) for output in outputs]
        unchanged = [run_command([CODEGEN, "build", "--all", "--output", outputs[0]]) for _ in range(UNCHANGED_REPEATS)]
    return [
        Figure("full build of all modules", "s", tuple(run.seconds for run in full), FULL_LIMIT_SECONDS),
        Figure("build with no change", "s", tuple(run.seconds for run in unchanged), UNCHANGED_LIMIT_SECONDS),
    ]

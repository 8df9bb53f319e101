"""Figures, and ways to time commands and functions."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
CODEGEN = Path(sys.executable).with_name("codegen")


@dataclass(frozen=True)
class Figure:
    """One measured quantity. `samples` are in `unit`; `limit` is the most that the least sample may be, None where none is promised."""

    name: str
    unit: str
    samples: tuple[float, ...]
    limit: float | None = None

    @property
    def least(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def met(self) -> bool:
        return self.limit is None or self.least <= self.limit


@dataclass(frozen=True)
class Finished:
    """A command that succeeded: wall-clock and processor seconds, peak resident bytes of its process, standard output."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def run_command(command: Sequence[str | Path]) -> Finished:
    """Run a command in the project's folder to its end. Raises RuntimeError with its output where it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with status {process.returncode}:\n{output[-4000:]}")
    kibibyte = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss
    return Finished(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * kibibyte, output)


def seconds_of(function: Callable[[], object], repeats: int) -> tuple[float, ...]:
    """Wall-clock seconds of each of `repeats` calls, after one call that is not counted."""
    function()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        samples.append(time.perf_counter() - start)
    return tuple(samples)

"""How long the command line takes to answer."""

from __future__ import annotations

from benchmarks.measure import CODEGEN, Figure, run_command, seconds_of

REPEATS = 10
LIMIT_MILLISECONDS = 150


def measure() -> list[Figure]:
    figures = []
    for argument in ("--help", "list"):
        seconds = seconds_of(lambda: run_command([CODEGEN, argument]), REPEATS)
        samples = tuple(1000 * value for value in seconds)
        figures.append(Figure(f"codegen {argument}", "ms", samples, LIMIT_MILLISECONDS))
    return figures

"""Peak memory of verifying a whole model."""

from __future__ import annotations

from benchmarks.measure import CODEGEN, Figure, run_command

LIMIT_GIGABYTES = 2


def measure() -> list[Figure]:
    finished = run_command([CODEGEN, "verify", "smollm2-135m"])
    return [
        Figure("peak memory of verify, smollm2-135m", "GB", (finished.peak_bytes / 1e9,), LIMIT_GIGABYTES),
        Figure("time of verify, smollm2-135m", "s", (finished.seconds,)),
    ]

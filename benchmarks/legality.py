"""How long the check of a large module on the real library's mock device takes."""

from __future__ import annotations

import json
import sys

from benchmarks.measure import PROJECT, Figure, run_command

MODEL, TARGET = "llama-3.1-8b", "n150"
REPEATS = 3
LIMIT_SECONDS = 15.0


def measure() -> list[Figure]:
    """Nothing where the environment with the library has not been set up: its Python is another one."""
    command = PROJECT / ".venv-device" / "bin" / "codegen"
    if not command.exists():
        print("no .venv-device: `make test-device` sets it up; codegen legal is not measured", file=sys.stderr)
        return []
    runs = [run_command([command, "legal", MODEL, "--target", TARGET, "--json"]) for _ in range(REPEATS)]
    passes = len(json.loads(runs[0].output)["shapes"])
    name = f"codegen legal {MODEL} --target {TARGET}, {passes} passes"
    return [Figure(name, "s", tuple(run.seconds for run in runs), LIMIT_SECONDS)]

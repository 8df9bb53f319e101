"""Run benchmarks, print their figures as a table and write them to benchmarks/results/.

    python -m benchmarks.run [NAME...]      names as in BENCHMARKS; all where none is given

Exit status 1 where a figure misses its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    build,
    command_line,
    first_token,
    host_time,
    hybrid,
    legality,
    module_import,
    prefill,
    shapes,
    verify_memory,
    workloads,
)
from benchmarks.measure import Figure

BENCHMARKS = {
    "command-line": command_line.measure,
    "build": build.measure,
    "import": module_import.measure,
    "prefill": prefill.measure,
    "hybrid": hybrid.measure,
    "host-time": host_time.measure,
    "workloads": workloads.measure,
    "memory": verify_memory.measure,
    "legality": legality.measure,
    "shapes": shapes.measure,
    "first-token": first_token.measure,
}
RESULTS = Path(__file__).parent / "results" / "figures.json"


def machine() -> dict[str, object]:
    return {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}


def table(figures: list[Figure]) -> str:
    lines = [f"{'figure':<52} {'least':>9} {'median':>9} {'limit':>7}  unit  runs"]
    for figure in figures:
        limit = "-" if figure.limit is None else f"{figure.limit:g}"
        missed = "" if figure.met else "   MISSED"
        lines.append(
            f"{figure.name:<52} {figure.least:>9.3f} {figure.median:>9.3f} {limit:>7}  {figure.unit:<4}  "
            f"{len(figure.samples)}{missed}"
        )
    return "\n".join(lines)


def record(figures: list[Figure]) -> dict[str, object]:
    rows = [{**asdict(figure), "least": figure.least, "median": figure.median, "met": figure.met} for figure in figures]
    return {"machine": machine(), "figures": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the project's figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args().names
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    for name in names or BENCHMARKS:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        figures += BENCHMARKS[name]()
    print(table(figures))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record(figures), indent=1) + "\n")
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())

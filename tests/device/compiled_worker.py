"""Every pass of a module on a mock device of the real library: prints how many targets the library had compiled after each."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from runtime.backend import open_device
from runtime.legality.check import Checked
from runtime.legality.emitted import load


def compiled(path: Path) -> list[int]:
    module = load(str(path), path.read_text(encoding="utf-8"))
    checked, kernels = Checked(open_device(module.BOARD), str(path), module), Path(os.environ["TT_METAL_CACHE"])
    counts = []
    for shape in module.TRACES:
        _, refusals = checked.run(shape)
        if refusals:
            raise SystemExit(f"{shape} was refused: {refusals[0]}")
        counts.append(len({linked.parent for linked in kernels.glob("*/kernels/*/*/*/*.elf")}))
    return counts


if __name__ == "__main__":
    print(json.dumps(compiled(Path(sys.argv[1]))))

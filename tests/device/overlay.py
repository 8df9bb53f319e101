"""The folder and the environment in which the installed device library opens a mock device."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tests.device.boards import MockBoard, cluster_descriptor
from tests.device.stand_in import compiler_script

PROJECT = Path(__file__).resolve().parents[2]


def library_folder() -> Path | None:
    """The installed `ttnn` package, found without importing it; None where there is none."""
    found = importlib.util.find_spec("ttnn")
    return Path(found.origin).parent if found and found.origin else None


def make_overlay(library: Path, folder: Path) -> Path:
    """A root folder that points into the installed library but has the stand-in compiler: the library itself stays untouched."""
    root = folder / "root"
    compiler = root / "runtime" / "sfpi" / "compiler" / "bin" / "riscv-tt-elf-g++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(compiler_script())
    compiler.chmod(0o755)
    for part in ("tt_metal", "ttnn", "runtime/hw"):
        (root / part).symlink_to(library / part)
    return root


def mock_environment(board: MockBoard, library: Path, folder: Path) -> dict[str, str]:
    """Fill the empty `folder` for one board and return the environment of a process that works on its mock device.

    The library reads these variables once, so a process serves one board.
    """
    descriptor = folder / "cluster.yaml"
    descriptor.write_text(cluster_descriptor(board))
    return {
        **os.environ,
        "PREFILL_BACKEND": "ttnn",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
        "TT_METAL_RUNTIME_ROOT": str(make_overlay(library, folder)),
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(descriptor),
        "TT_METAL_CACHE": str(folder / "kernels"),
        "TT_METAL_LOGS_PATH": str(folder / "logs"),
        "TT_METAL_LOGGER_LEVEL": "off",
        "TT_METAL_DISABLE_BACKTRACE": "1",
        "LOGURU_LEVEL": "ERROR",
    }

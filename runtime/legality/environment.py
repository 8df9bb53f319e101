"""The folder and the environment in which the installed device library opens a mock device, or why it would not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from runtime.legality.boards import BOARDS, cluster_descriptor
from runtime.legality.errors import CannotCheck
from runtime.legality.stand_in import ANSWER, compiler_script

PROJECT = Path(__file__).resolve().parents[2]
VERSION = "0.81.1"  # the library that figures, refusals and rules of this package were taken from
PYTHONS = ("3.10", "3.12")


def library_folder() -> Path | None:
    """The installed `ttnn` package, found without importing it; None where there is none."""
    found = importlib.util.find_spec("ttnn")
    return Path(found.origin).parent if found and found.origin else None


def installed_version() -> str | None:
    """Version of the installed `ttnn`, None where its metadata are missing."""
    try:
        return metadata.version("ttnn")
    except metadata.PackageNotFoundError:
        return None


def require_library() -> Path:
    """The installed library. Raises CannotCheck where there is none or it is another version than the recorded one."""
    folder = library_folder()
    if folder is None:
        here = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise CannotCheck(
            f"ttnn is not installed for this {here}; it is published for Python {' and '.join(PYTHONS)} on Linux "
            "x86-64. In a clone, `make .venv-device/.ready` makes an environment that has it: run .venv-device/bin/codegen "
            "legal there. Elsewhere: pip install 'prefill-codegen[device]'"
        )
    found = installed_version()
    if found != VERSION:
        raise CannotCheck(
            f"ttnn {found or 'of an unknown version'} is installed and modules are checked against {VERSION}, whose "
            f"rules and figures are recorded; pip install ttnn=={VERSION}"
        )
    return folder


def make_overlay(library: Path, folder: Path) -> Path:
    """A root folder that points into the installed library but has the stand-in compiler: the library itself stays
    untouched."""
    root = folder / "root"
    compiler = root / "runtime" / "sfpi" / "compiler" / "bin" / "riscv-tt-elf-g++"
    try:
        compiler.parent.mkdir(parents=True)
        compiler.write_text(compiler_script())
        compiler.chmod(0o755)
        for part in ("tt_metal", "ttnn", "runtime/hw"):
            (root / part).symlink_to(library / part)
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCheck(_no_stand_in(compiler, str(error))) from error
    if said != ANSWER:
        raise CannotCheck(_no_stand_in(compiler, f"it answers {said!r} instead of {ANSWER!r}"))
    return root


def _no_stand_in(compiler: Path, reason: str) -> str:
    return (
        f"the stand-in for the kernel compiler does not run at {compiler}: {reason}; name a folder that can be written "
        "and whose files may be executed, for example TMPDIR=$HOME codegen legal ..."
    )


def descriptor_text(board: str, descriptor: Path | None) -> str:
    """The cluster descriptor of a board: the user's own file, or the project's where there is none."""
    if descriptor is not None:
        try:
            text = descriptor.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotCheck(
                f"the cluster descriptor {descriptor} cannot be read ({reason}); name a YAML file of one chip with "
                "--cluster-descriptor FILE, or leave the option out to use the project's own"
            ) from error
        if not text.strip():
            raise CannotCheck(
                f"the cluster descriptor {descriptor} is empty; leave --cluster-descriptor out to use the project's own"
            )
        return text
    if board not in BOARDS:
        raise CannotCheck(
            f"no mock board is known for the target {board} (known: {', '.join(sorted(BOARDS))}); name the cluster "
            "descriptor of one chip of it with --cluster-descriptor FILE"
        )
    return cluster_descriptor(BOARDS[board])


def mock_environment(board: str, library: Path, folder: Path, descriptor: Path | None = None) -> dict[str, str]:
    """Fill the empty `folder` for one board and return the environment of a process that works on its mock device.

    The library reads these variables once, so a process serves one board. Settings of the same library that the
    caller's environment holds are for another device and left out. Raises CannotCheck.
    """
    cluster = folder / "cluster.yaml"
    text = descriptor_text(board, descriptor)
    try:
        cluster.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotCheck(f"{cluster} cannot be written ({error.strerror}); name another folder with TMPDIR") from error
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TT_METAL_")}
    return {
        **kept,
        "PREFILL_BACKEND": "ttnn",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
        "TT_METAL_RUNTIME_ROOT": str(make_overlay(library, folder)),
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(cluster),
        "TT_METAL_CACHE": str(folder / "kernels"),
        "TT_METAL_LOGS_PATH": str(folder / "logs"),
        "TT_METAL_LOGGER_LEVEL": "off",
        "TT_METAL_DISABLE_BACKTRACE": "1",
        "LOGURU_LEVEL": "ERROR",
    }

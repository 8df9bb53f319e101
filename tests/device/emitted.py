"""The committed emitted modules that have a mock device, and alterations of them that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.legality.boards import BOARDS
from runtime.legality.command import Job, verdict
from runtime.legality.environment import PROJECT
from runtime.legality.process import MockDevice

WRONG_SUBBLOCKS = """
for program in MATMULS.values():
    if hasattr(program, "out_subblock_w"):
        program.out_subblock_w = 5
    else:
        program.subblock_w = 5
"""


def emitted_modules() -> list[Path]:
    return sorted(path for path in PROJECT.glob("generated/*/*.py") if path.stem in BOARDS)


def job_of(path: Path) -> Job:
    return Job(path.parent.name, path.stem, path, str(path.relative_to(PROJECT)))


def module_of(model: str, board: str) -> Path:
    return PROJECT / "generated" / model / f"{board}.py"


def smallest_module(board: str) -> Path:
    return module_of("smollm2_135m", board)


def appended(path: Path, statements: str, *, passes: str = "TRACES") -> str:
    """The module with statements at its end, before anything runs; `passes` narrows its table."""
    return f"{path.read_text()}\n\n{statements}\nTRACES = tuple({passes})\n"


def checked(device: MockDevice, path: Path, source: str) -> dict[str, Any]:
    """The verdict on `source` in the place of the module at `path`."""
    job = job_of(path)
    return verdict(job, source, device.check(job.shown, source))


def described(refusals: list[dict[str, Any]]) -> str:
    """Refusals for the message of a failing test."""
    return "\n".join(
        "{file}:{line} in {function}, {shape}: {code}\n    {by}: {message}".format(**one) for one in refusals
    )

"""The committed emitted modules that have a mock device."""

from __future__ import annotations

from pathlib import Path

from tests.device.boards import BOARDS
from tests.device.overlay import PROJECT


def emitted_modules() -> list[Path]:
    return sorted(path for path in PROJECT.glob("generated/*/*.py") if path.stem in BOARDS)


def smallest_module(board: str) -> Path:
    """The module of the smallest model, which the tests alter to see each fault caught."""
    return PROJECT / "generated" / "smollm2_135m" / f"{board}.py"

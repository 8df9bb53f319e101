"""One mock device for each board, started when a test first asks for it and closed at the end."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runtime.legality.command import check
from runtime.legality.environment import library_folder, mock_environment
from runtime.legality.process import MockDevice
from tests.conftest import pytest_terminal_summary, report  # noqa: F401  what tests report is printed at the end
from tests.device.emitted import emitted_modules, job_of


@pytest.fixture(scope="session")
def library() -> Path:
    """The installed library."""
    found = library_folder()
    if found is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    return found


@pytest.fixture(scope="session")
def mock_device(library: Path) -> Iterator[Callable[[str], MockDevice]]:
    """A function from a board's name to its mock device. A device whose process died is started again."""
    devices: dict[str, MockDevice] = {}

    def device(board: str) -> MockDevice:
        if board not in devices or not devices[board].alive:
            devices[board] = MockDevice(board, library)
        return devices[board]

    yield device
    for opened in devices.values():
        opened.close()


@pytest.fixture(scope="session")
def verdicts(library: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The verdict on every committed module by its folder and board; a board that a module does not state as the
    library reports it ends the check."""
    return {(one["model"], one["target"]): one for one in check([job_of(path) for path in emitted_modules()])}


@pytest.fixture(scope="session")
def host_library(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The library in this process, for what needs no device: conversions of host tensors and golden functions."""
    folder = tmp_path_factory.mktemp("host")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in mock_environment("n150", library, folder).items():
            if name.startswith(("TT_METAL_", "LOGURU_")):
                patch.setenv(name, value)
        yield importlib.import_module("ttnn")

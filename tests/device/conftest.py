"""One mock device for each board, started when a test first asks for it and closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.device.mock import MockDevice
from tests.device.overlay import library_folder


@pytest.fixture(scope="session")
def mock_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MockDevice]]:
    """A function from a board's name to its mock device. A device whose process died is started again."""
    library = library_folder()
    if library is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    devices: dict[str, MockDevice] = {}

    def device(board: str) -> MockDevice:
        if board not in devices or devices[board].process.poll() is not None:
            devices[board] = MockDevice(board, library, tmp_path_factory.mktemp(board) / "mock")
        return devices[board]

    yield device
    for opened in devices.values():
        opened.close()

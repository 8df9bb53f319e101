"""The mock device itself: a stand-in compiler without child processes, and boards that open with their real grids."""

from __future__ import annotations

import signal
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from tests.device.emitted import smallest_module
from tests.device.mock import MockDevice, WorkerDied
from tests.device.overlay import library_folder
from tests.device.stand_in import TEXT_ADDRESS, compiler_script, executable_image


@pytest.mark.parametrize(
    ("board", "architecture", "grid"), [("n150", "wormhole_b0", [8, 8]), ("p150", "blackhole", [11, 10])]
)
def test_a_board_opens_with_its_grid(mock_device, board: str, architecture: str, grid: list[int]) -> None:
    opened = mock_device(board).board

    assert (opened["architecture"], opened["grid"]) == (architecture, grid)


def test_the_stand_in_links_the_image_byte_for_byte(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(compiler_script())
    compiler.chmod(stat.S_IRWXU)
    arguments = {"cwd": tmp_path, "check": True, "env": {"PATH": ""}}  # no command but the shell's own can be found
    subprocess.run([compiler, "-c", "-o", "a.o", "a.cc", "-MF", "a.d"], **arguments)
    subprocess.run([compiler, "-O2", "a.o", "-o", "a.elf"], **arguments)

    assert (tmp_path / "a.elf").read_bytes() == executable_image()
    assert (tmp_path / "a.o").read_bytes() == b""
    assert (tmp_path / "a.d").read_text() == "a.o:\n"
    assert struct.unpack_from("<I", executable_image(), 24) == (TEXT_ADDRESS,)


@pytest.fixture
def library() -> Path:
    found = library_folder()
    if found is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    return found


def test_a_device_that_cannot_open_says_why(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.device.overlay.compiler_script", lambda: "#!/bin/sh\nexit 1\n")

    with pytest.raises(WorkerDied, match="(?s)n150: the process ended with status 1 while opening the device.*version"):
        MockDevice("n150", library, tmp_path / "mock")


def test_a_device_that_hangs_is_ended(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = MockDevice("n150", library, tmp_path / "mock")
    device.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("tests.device.mock.ANSWER_SECONDS", 0.1)

    with pytest.raises(WorkerDied, match="n150: the process was ended after 0.1 s without an answer while generated/"):
        device.run(smallest_module("n150"))
    assert device.process.poll() is not None

"""A process is bound to one backend, chosen by an environment variable."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import runtime.emulator as emulator
from runtime import backend
from runtime.errors import BackendUnavailable
from tests.support.emulated import N150

PROJECT = Path(__file__).parents[2]


def bound(wanted: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PREFILL_BACKEND"}
    if wanted is not None:
        environment["PREFILL_BACKEND"] = wanted
    hide = "import sys; sys.modules['ttnn'] = None"
    script = f"{hide}\nfrom runtime import backend; print(backend.name, backend.ttnn.__name__)"
    return subprocess.run(
        [sys.executable, "-c", script], env={**environment, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )


@pytest.mark.parametrize("wanted", (None, "emulator"))
def test_the_emulator_is_taken_where_the_library_is_missing(wanted: str | None) -> None:
    assert bound(wanted).stdout.split() == ["emulator", "runtime.emulator"]


@pytest.mark.parametrize(
    ("wanted", "message"), (("ttnn", "cannot be imported"), ("gpu", "must be one of ttnn, emulator, got 'gpu'"))
)
def test_a_backend_that_is_not_there_is_refused(wanted: str, message: str) -> None:
    result = bound(wanted)
    assert result.returncode != 0 and message in result.stderr


def test_verifying_on_a_device_without_the_library_is_one_message_and_exit_code_two() -> None:
    hide = "import sys; sys.modules['ttnn'] = None"
    script = f"{hide}\nfrom generator.cli import main; main(['verify', 'smollm2-135m', '--device', '0'])"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and run.stderr.count("\n") == 1
    assert "ttnn cannot be imported" in run.stderr and "make .venv-device/.ready" in run.stderr


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for the library, which opens an 8 x 8 wormhole and notes what is closed."""
    closed: list[object] = []
    fake = SimpleNamespace(
        closed=closed,
        open_device=lambda *, device_id, trace_region_size: emulator.open_device(
            device_id=device_id, board=N150, trace_region_size=trace_region_size
        ),
        close_device=closed.append,
    )
    monkeypatch.setattr(backend, "name", "ttnn")
    monkeypatch.setattr(backend, "ttnn", fake)
    return fake


def test_the_right_chip_is_opened(library: SimpleNamespace) -> None:
    device = backend.open_device(N150, device_id=3, trace_region_size=4096)

    assert (device.id(), device.trace_region_size, library.closed) == (3, 4096, [])


@pytest.mark.parametrize("other", (replace(N150, architecture="blackhole"), replace(N150, grid=(8, 7))))
def test_another_chip_than_the_boards_is_closed_and_refused(library: SimpleNamespace, other) -> None:
    with pytest.raises(
        BackendUnavailable, match=r"is wormhole_b0 with 8x8 worker cores, but the module was built for n150"
    ):
        backend.open_device(other)
    assert len(library.closed) == 1


def test_a_device_that_is_taken_is_refused_with_what_the_library_says(library: SimpleNamespace) -> None:
    def taken(**options: int) -> None:
        raise RuntimeError("TT_FATAL @ a.cpp:1\ninfo:\nlock is held")

    library.open_device = taken
    with pytest.raises(
        BackendUnavailable, match=r"does not open device 2: .* lock is held; end the process that holds it"
    ):
        backend.open_device(N150, device_id=2)


def test_only_the_emulator_leaves_rounding_out(library: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="needs the emulator"):
        backend.open_device(N150, precision="float32")

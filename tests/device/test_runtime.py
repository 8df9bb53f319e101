"""The runtime's own calls on the real library: what a trace needs is compiled before, kept, refreshed and released."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from runtime.legality.boards import BOARDS
from runtime.legality.environment import PROJECT, library_folder, mock_environment
from tests.device.emitted import module_of

# The smallest module and one with recurrent layers -> least and most operations of a trace over the first layers.
MODULES = {"smollm2_135m": (20, 60), "qwen3_5_9b": (80, 150)}


@pytest.fixture(scope="module", params=[(model, board) for model in MODULES for board in BOARDS], ids="-".join)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model, board = request.param
    library = library_folder()
    if library is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    folder = tmp_path_factory.mktemp(f"runtime-{model}-{board}") / "mock"
    folder.mkdir()
    environment = mock_environment(board, library, folder)
    command = [sys.executable, "-m", "tests.device.runtime_worker", str(module_of(model, board))]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) | {"range": MODULES[model]}


def test_s000_40_nothing_is_compiled_after_warm_up(report: dict[str, Any]) -> None:
    """Fault B03, on the library's own program cache: seeds, all endings and copies of states included."""
    assert report["compiled_after_warm_up"] == 0


def test_calls_of_every_ending_leave_no_device_memory_behind(report: dict[str, Any]) -> None:
    assert report["held_after_calls"] == 0 and report["orphans"] == 0


def test_every_shape_is_captured_and_its_inputs_are_refreshed_in_place(report: dict[str, Any]) -> None:
    assert report["captured"] == report["shapes"] > 0 and report["refreshed"] == 3


def test_b12_the_operations_of_a_trace_are_counted_on_the_library_too(report: dict[str, Any]) -> None:
    """The first layers: what the emulator counts for the same functions, in the same order of magnitude and the same for all lengths."""
    least, most = report["range"]
    counts: dict[str, set[int]] = {}
    for name, operations in report["operations"].items():
        counts.setdefault(name.split()[0], set()).add(operations)
    assert {len(found) for found in counts.values()} == {1} and all(
        least < min(found) < most for found in counts.values()
    )
    assert report["region"] >= 100_000_000

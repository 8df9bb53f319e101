"""What is recorded at two layers and scaled is what the library says of a whole pass, at full depth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.legality.boards import BOARDS
from runtime.legality.environment import PROJECT, mock_environment
from tests.device.emitted import smallest_module


@pytest.fixture(scope="module", params=BOARDS)
def pairs(
    request: pytest.FixtureRequest, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp(f"depth-{request.param}")
    command = [sys.executable, "-m", "tests.device.full_depth", str(smallest_module(request.param))]
    environment = mock_environment(request.param, library, folder)
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_scaled_operations_and_peak_memory_are_those_of_the_full_depth(pairs: list[dict[str, Any]]) -> None:
    assert len(pairs) == 4
    for pair in pairs:
        assert pair["scaled"] == pair["full"], pair["pass"]


def test_the_peak_of_buffers_and_tensors_on_one_core_is_what_the_library_extracts(pairs: list[dict[str, Any]]) -> None:
    for pair in pairs:
        assert pair["l1_peak"] == pair["library_l1_peak"] > 0, pair["pass"]


def test_tensors_in_l1_count_beside_the_buffers_of_every_operation_that_they_live_through(pairs) -> None:
    """A body that keeps 400 KiB on every core."""
    for pair in pairs:
        assert pair["l1_peak_with_a_tensor"] == pair["library_l1_peak_with_a_tensor"] > pair["l1_peak"], pair["pass"]
        assert pair["buffer_peak_with_a_tensor"] == pair["l1_peak"], pair[
            "pass"
        ]  # which the head needs, after the tensor is gone

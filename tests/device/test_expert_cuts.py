"""What the generator and the emulator say of an expert's buffers, against what the library accepts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from generator import experts
from generator.tiles import tiles
from runtime.emulator.dtypes import DataType
from runtime.emulator.operations import expert_buffers
from runtime.legality.environment import PROJECT, mock_environment
from tests.support.emulated_calls import BOARDS

NEAR = 32768  # bytes below the limit in which the bound may refuse what the library takes


@pytest.mark.parametrize("board", BOARDS)
def test_nothing_that_the_library_refuses_is_said_to_fit(
    board: str, library: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    (tmp_path / "mock").mkdir()
    answers = tmp_path / "cuts.jsonl"
    subprocess.run(
        [sys.executable, "-m", "tests.device.expert_cuts", str(answers)],
        cwd=PROJECT,
        env=mock_environment(board, library, tmp_path / "mock"),
        check=True,
        capture_output=True,
        timeout=300,
    )
    room = BOARDS[board].l1_bank_bytes
    asked = fitting = 0
    for hidden, width, columns, rows, dtype, biased, accepted in map(json.loads, answers.read_text().splitlines()):
        sizes = (tiles(hidden), tiles(width), (columns, rows))
        emulated = expert_buffers.buffer_bytes(*sizes, DataType[dtype.upper()], biased)
        asked += 1
        if isinstance(emulated, str):
            assert not accepted, (emulated, hidden, width, columns, rows)
            continue
        assert emulated == experts.buffer_bytes(*sizes, dtype, biased)
        if accepted:
            assert emulated <= room + NEAR, (hidden, width, columns, rows, dtype, biased)
        else:
            assert emulated > room, (hidden, width, columns, rows, dtype, biased)
        fitting += accepted
    assert 0.1 < fitting / asked < 0.95
    report(f"experts on {board}: {asked} geometries, {fitting} fit; none is said to that does not")

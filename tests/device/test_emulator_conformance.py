"""The record of what the library accepts, which the emulator is held to, is what the library answers here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.boards import BOARDS
from tests.device.overlay import PROJECT, library_folder, mock_environment

RECORD = json.loads((PROJECT / "tests" / "support" / "ttnn_outcomes.json").read_text())


@pytest.mark.parametrize("board", ("n150", "p150"))
def test_the_library_answers_as_recorded(board: str, tmp_path: Path) -> None:
    library = library_folder()
    if library is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    folder = tmp_path / "mock"
    folder.mkdir()
    answers = tmp_path / "outcomes.json"
    subprocess.run(
        [sys.executable, "-m", "tests.device.operation_outcomes", str(answers)],
        cwd=PROJECT,
        env=mock_environment(BOARDS[board], library, folder),
        check=True,
        capture_output=True,
        timeout=300,
    )

    expected = RECORD["n150"] | RECORD.get(f"{board} where it differs", {})
    found = json.loads(answers.read_text())
    different = {name: (expected.get(name), found[name]) for name in found if found[name] != expected.get(name)}
    assert not different, "\n".join(f"{name}: recorded {old}, now {new}" for name, (old, new) in different.items())

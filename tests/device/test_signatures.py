"""The committed table of signatures is the installed library's, and judges calls as the library does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from generator import signature_changes
from generator.signatures import RECORDED, read, written
from runtime.legality.environment import PROJECT, mock_environment

# One form of a slice wants four starts, ends and steps; a signature says no more than that it takes numbers.
SIZED = "ttnn.slice("


def test_the_committed_table_is_what_the_installed_library_says(library: Path) -> None:
    import ttnn

    from generator.record_signatures import record

    installed = record(ttnn, metadata.version("ttnn"))
    assert not (differences := signature_changes.report(read(), installed)), differences
    assert written(installed) == RECORDED.read_text(encoding="utf-8"), "python -m generator.record_signatures writes it"


def test_what_the_table_refuses_the_library_refuses_and_the_other_way_round(
    library: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.signature_calls"],
        cwd=PROJECT,
        env=mock_environment("n150", library, tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    report(
        f"signatures: {found['calls']} calls of {found['operations']} operations, {found['refused']} refused by both"
    )
    assert found["operations"] >= 60 and found["refused"] > 3000
    assert found["only_recorded"] == []
    assert [call for call in found["only_library"] if not call.startswith(SIZED)] == []

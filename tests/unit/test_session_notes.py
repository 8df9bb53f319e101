"""The end of a test session says what the golden suite took, in one process and in several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import PEAK, golden_line
from tests.support.building import REPOSITORY

TEST = "def test_{}():\n    kept = bytearray({})\n"


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_session_of_golden_tests_ends_with_time_and_peak_memory(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "unit").mkdir()
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (tmp_path / "golden" / "test_a.py").write_text(TEST.format("a", 300_000_000), encoding="utf-8")
    (tmp_path / "golden" / "test_b.py").write_text(TEST.format("b", 1), encoding="utf-8")
    (tmp_path / "unit" / "test_c.py").write_text(TEST.format("c", 600_000_000), encoding="utf-8")

    def line(*paths: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *paths]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        return [one for one in run.stdout.split("\n") if one.startswith("golden suite")]

    (alone,) = line("golden")
    found = re.fullmatch(
        r"golden suite: 2 tests in \d+ s; peak memory (\S+) GB in one of (\d) process(?:es)?, (\S+) GB in all", alone
    )
    assert found and int(found[2]) <= max(1, len(options)) and 0.3 <= float(found[1]) < 0.6 <= 2 * float(found[3])
    (mixed,) = line(".")
    assert ", other tests among them; " in mixed
    assert line("unit") == []


def test_processes_are_told_apart_and_the_time_is_from_first_to_last() -> None:
    def report(start: float, process: int, peak: float) -> SimpleNamespace:
        return SimpleNamespace(
            start=start, stop=start + 5, user_properties=[("count of x", 1), (PEAK, (process, peak))]
        )

    reports = [report(100, 1, 1e9), report(160, 1, 2e9), report(90, 2, 0.5e9)]
    assert golden_line(reports, alone=True) == (
        "golden suite: 3 tests in 75 s; peak memory 2.00 GB in one of 2 processes, 2.50 GB in all"
    )

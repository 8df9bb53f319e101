"""Every file is as black writes it, with the line length of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "generator", "runtime", "tests")


def test_every_file_is_formatted() -> None:
    command = [sys.executable, "-m", "black", "--check", *FOLDERS]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, f"run `black {' '.join(FOLDERS)}`:\n{done.stderr}"

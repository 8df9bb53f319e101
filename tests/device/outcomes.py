"""What the library answers to many calls: run in processes of their own, because a call can end one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from runtime.legality.environment import PROJECT, mock_environment

ENDED = "the process ended"
SECONDS = 300  # far beyond any need: a call that hangs must not hang the tests


def library_outcomes(what: str, board: str, library: Path, folder: Path, most_ends: int = 10) -> dict[str, str]:
    """Outcomes by name of what `operation_outcomes` calls `what`; ENDED for a call that ended or hung its process.

    The calls behind such a one run in another process. Raises RuntimeError after `most_ends` of them, or where a process
    ends before its first call.
    """
    folder.mkdir(parents=True)
    environment = mock_environment(board, library, folder)
    answers, errors = folder / "outcomes.jsonl", folder / "errors.txt"
    found: dict[str, str] = {}
    while True:
        before = len(found)
        command = [sys.executable, "-m", "tests.device.operation_outcomes", what, str(before), str(answers)]
        with errors.open("w") as complaints:
            process = subprocess.Popen(
                command, cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL, stderr=complaints
            )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        lines = answers.read_text().splitlines() if answers.exists() else []
        found = {name: outcome or ENDED for name, outcome in map(json.loads, lines)}
        if status == 0:
            return found
        ends = [name for name, outcome in found.items() if outcome == ENDED]
        if len(found) == before or len(ends) >= most_ends:
            raise RuntimeError(f"{board}: {len(ends)} calls ended their process: {ends}\n{errors.read_text()[-2000:]}")

"""A mock device as the tests see it: a process of its own for each board, asked to run emitted modules."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.device.boards import BOARDS
from tests.device.overlay import PROJECT, mock_environment

ANSWER_SECONDS = 300  # far beyond any module's need: a library that hangs must not hang the tests


class WorkerDied(RuntimeError):
    """The process of a mock device ended or hung instead of answering."""


class MockDevice:
    """The mock device of one board. `board` holds the numbers that the library reports for it."""

    def __init__(self, board: str, library: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.name = board
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.device.worker"],
                cwd=PROJECT,
                env=mock_environment(BOARDS[board], library, folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.board = self._answer("opening the device")

    def run(self, path: Path, source: str | None = None) -> dict[str, Any]:
        """Run the module at `path`, or `source` in its place, and return the fields of `legality.Report`."""
        text = path.read_text() if source is None else source
        name = str(path.relative_to(PROJECT))
        self.process.stdin.write(json.dumps({"path": name, "source": text}) + "\n")
        self.process.stdin.flush()
        return {"module": name, **self._answer(name)}

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def _answer(self, doing: str) -> dict[str, Any]:
        answered, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        if answered and (line := self.process.stdout.readline()):
            return json.loads(line)
        if not answered:
            self.process.kill()
        status = self.process.wait()
        end = f"ended with status {status}" if answered else f"was ended after {ANSWER_SECONDS} s without an answer"
        raise WorkerDied(f"{self.name}: the process {end} while {doing}:\n{self.errors.read_text()[-2000:]}")


def describe(report: dict[str, Any]) -> str:
    """All refusals of a run: module, shape, emitted line and the library's own message. Empty where there are none."""
    return "\n".join(
        f"{report['module']}:{refusal['line']} in {refusal['function']}, pass {refusal['shape']}: {refusal['code']}\n"
        f"    {refusal['message']}"
        for refusal in report["refusals"]
    )

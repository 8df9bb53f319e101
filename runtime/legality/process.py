"""A mock device as its user sees it: a process of its own for each board, asked to check emitted modules."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.legality.environment import mock_environment
from runtime.legality.errors import CannotCheck

ANSWER_SECONDS = 120  # far beyond what any step needs: a library that hangs must not hang its user
FAULT_SECONDS = 10  # for a hanging process to say where it is
SHOWN = 600  # characters of what a process left behind

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')

Progress = Callable[[str], None]


@dataclass
class Outcome:
    """What the check of one module said: a report for each pass that ran and everything that was refused. `board` is
    what the module states; `mismatch` what the open device denies of it, and then nothing ran."""

    shapes: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    board: dict[str, Any] = field(default_factory=dict)
    mismatch: dict[str, list[Any]] = field(default_factory=dict)


class Ended(RuntimeError):
    """The process ended or hung instead of answering. `errors` is what it wrote, with the lines that were running."""

    def __init__(self, doing: str, how: str, errors: str) -> None:
        super().__init__(f"the process {how} while {doing}")
        self.doing, self.how, self.errors = doing, how, errors


class MockDevice:
    """The mock device of one board. `opened` holds the numbers that the library reports for it.

    Raises CannotCheck where it does not open. After a fault of the library `alive` is False and a new one is needed.
    """

    def __init__(self, board: str, library: Path, descriptor: Path | None = None) -> None:
        self.board, self.descriptor = board, descriptor
        self._read = bytearray()
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="codegen-legal-")
        except OSError as error:
            raise CannotCheck(f"no temporary folder can be made ({error}); name another one with TMPDIR") from error
        try:
            folder = Path(self._folder.name)
            environment = mock_environment(board, library, folder, descriptor)
            self._errors = folder / "errors.txt"
            with self._errors.open("w") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "runtime.legality.worker"],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                )
            self.opened = self._opened()
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def check(self, path: str, source: str, progress: Progress = lambda text: None) -> Outcome:
        """Check the module of text `source`; `path` names it in what is refused. A fault of the library is a refusal
        too."""
        outcome = Outcome()

        def hear(said: dict[str, Any]) -> None:
            if "shape" in said:
                outcome.shapes.append(said["shape"])
            if "refusal" in said:
                outcome.refusals.append(said["refusal"])

        try:
            self._send({"path": path, "source": source})
            end = self._until_end("", hear, progress)
        except BrokenPipeError:
            outcome.refusals.append(_fault(self._ended("starting", "ended"), path))
        except Ended as ended:
            outcome.refusals.append(_fault(ended, path))
        else:
            outcome.board, outcome.mismatch = end.get("board", {}), end.get("mismatch", {})
        return outcome

    def close(self) -> None:
        """End the process and remove its folder. May be called twice."""
        process = getattr(self, "process", None)
        if process is not None:
            try:
                process.stdin.close()
                process.wait(timeout=FAULT_SECONDS)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> MockDevice:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _opened(self) -> dict[str, Any]:
        try:
            return self._until_end("starting", lambda said: None, lambda text: None)["board"]
        except Ended as ended:
            source = f"the cluster descriptor {self.descriptor}" if self.descriptor else f"the mock board {self.board}"
            advice = (
                "leave --cluster-descriptor out to use the project's own descriptor"
                if self.descriptor
                else "pip install --force-reinstall ttnn makes the library whole; a process that holds the device must end"
            )
            raise CannotCheck(
                f"ttnn does not open {source}: {ended}; the library says: {last_words(ended.errors)}; {advice}"
            ) from ended

    def _send(self, job: dict[str, str]) -> None:
        waiting = memoryview(json.dumps(job).encode() + b"\n")
        while waiting:
            waiting = waiting[self.process.stdin.write(waiting) :]

    def _until_end(self, doing: str, hear: Callable[[dict[str, Any]], None], progress: Progress) -> dict[str, Any]:
        """Answers up to the one that ends them, which is returned. Raises Ended."""
        while True:
            line = self._line()
            if line is None:
                self.process.send_signal(signal.SIGABRT)  # says where it hangs
                raise self._ended(doing, f"was ended after {ANSWER_SECONDS} s without an answer")
            if not line:
                raise self._ended(doing, "ended")
            said = json.loads(line)
            if "end" in said:
                return said["end"]
            if "doing" in said:
                doing = said["doing"]
                progress(doing)
            hear(said)

    def _line(self) -> bytes | None:
        """The next line; empty where the process has ended, None where it does not answer. Read past any buffer, since
        one that held a line would hide it from `select`."""
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return b""
            self._read += more
        line, _, rest = bytes(self._read).partition(b"\n")
        self._read = bytearray(rest)
        return line

    def _ended(self, doing: str, how: str) -> Ended:
        try:
            status = self.process.wait(timeout=FAULT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if how == "ended":
            by = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            how = f"was ended {by}" if status < 0 else f"ended {by}"
        return Ended(doing, how, self._errors.read_text(errors="replace"))


def last_words(errors: str) -> str:
    """The end of what a process wrote, on one line: an exception with its message, or whatever came last."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if re.match(r"\w*(Error|Exception)\b.*:", line)]
    return " ".join(lines[starts[-1] :] if starts else lines[-6:])[:SHOWN] or "nothing"


def _fault(ended: Ended, path: str) -> dict[str, Any]:
    """The refusal that a fault amounts to, with the emitted line that the process was in where it could still tell."""
    frames = (found for found in _FRAME.finditer(ended.errors) if found["file"] == path)
    frame = next(frames, None)
    said = last_words(ended.errors)
    words = "" if frame or said == "nothing" else f": {said}"
    return {
        "pass_name": ended.doing,
        "function": frame["function"] if frame else "",
        "line": int(frame["line"]) if frame else 0,
        "message": f"the process of the library {ended.how}{words}",
        "by": "ttnn",
        "entry": "",
    }

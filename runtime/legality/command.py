"""From modules to verdicts: every module on the mock device of its target, one device open at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.legality.blame import code_at, entry_line
from runtime.legality.environment import VERSION, descriptor_text, require_library
from runtime.legality.errors import CannotCheck
from runtime.legality.process import MockDevice, Outcome

JSON_VERSION = 1
SHOWN = 500  # characters of the library's own message

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One module: `path` is the file, `shown` how it is named in what is printed."""

    model: str
    target: str
    path: Path
    shown: str


def check(
    jobs: Sequence[Job], descriptor: Path | None = None, progress: Progress = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The verdict on every module, targets in the order in which they first come: one JSON object for each, see
    `verdict`.

    `descriptor` describes one chip in place of the project's own boards. Raises CannotCheck before anything runs for
    what is missing, and where a board is not the one that a module was built for. A fault of the library ends the
    check of one module; the next starts on a new device.
    """
    sources = {job: source_of(job) for job in jobs}
    for target in dict.fromkeys(job.target for job in jobs):
        descriptor_text(target, descriptor)
    library = require_library()
    device: MockDevice | None = None
    try:
        for job in in_order_of_targets(jobs):
            if device is None or device.board != job.target or not device.alive:
                if device is not None:
                    device.close()
                device = MockDevice(job.target, library, descriptor)
            outcome = device.check(
                job.shown, sources[job], lambda doing, job=job: progress(f"{job.model} on {job.target}: {doing}")
            )
            if outcome.mismatch:
                raise CannotCheck(wrong_board(job, outcome, descriptor))
            yield verdict(job, sources[job], outcome)
    finally:
        if device is not None:
            device.close()


def in_order_of_targets(jobs: Iterable[Job]) -> list[Job]:
    """Jobs of one target together, since a device is opened for each change."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.target, []).append(job)
    return [job for group in groups.values() for job in group]


def source_of(job: Job) -> str:
    try:
        return job.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        build = f"codegen build {job.model} --target {job.target}"
        if not job.path.exists():
            raise CannotCheck(f"{job.shown} is not built yet; `{build}` writes it") from error
        raise CannotCheck(f"{job.shown} cannot be read ({error}); `{build} --force` writes it anew") from error


def wrong_board(job: Job, outcome: Outcome, descriptor: Path | None) -> str:
    listed = "; ".join(f"{name} {stated}, the device has {found}" for name, (stated, found) in outcome.mismatch.items())
    where = f"the device of {descriptor}" if descriptor else f"the mock device of {job.target}"
    advice = (
        f"name a descriptor of {outcome.board['name']} or check a module that was built for this board"
        if descriptor
        else f"correct the board's manifest and `codegen build {job.model} --target {job.target}`"
    )
    return f"{where} is not the board of {job.shown}, which states {listed}; {advice}"


def verdict(job: Job, source: str, outcome: Outcome) -> dict[str, Any]:
    """What is printed of one module: `shapes` holds a report for each pass that ran, `refusals` everything that speaks
    against it."""
    refusals = [refused(job, source, one) for one in outcome.refusals]
    return {
        "version": JSON_VERSION,
        "model": job.model,
        "target": job.target,
        "ttnn_version": VERSION,
        "passed": bool(outcome.shapes) and not refusals,
        "shapes": outcome.shapes,
        "refusals": refusals,
    }


def refused(job: Job, source: str, one: dict[str, Any]) -> dict[str, Any]:
    """A refusal as it is printed: where in which file, on which code, for which pass. `keys` is filled by who knows
    manifests."""
    line = one["line"] or entry_line(source, one["entry"])
    message = one["message"].strip()
    return {
        "shape": one["pass_name"],
        "file": job.shown,
        "line": line,
        "function": one["function"],
        "code": code_at(source, line),
        "by": one["by"],
        "message": message if len(message) <= SHOWN else f"{message[:SHOWN]}...",
        "keys": [],
    }

"""What `codegen build` says about the modules it looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from generator.build import Result

STATES = {"edited": "edited by hand", "same bytes": "inputs changed"}  # where the status itself does not say it
MOST_REASONS = 4  # on one line; the JSON form has all


def _effect(result: Result, mode: str | None) -> str:
    """What happens to a stale file, or would: `mode` is None for a build."""
    if mode == "check":
        return "stale"
    if result.after is None:
        verb = ("remove", "removed")
    elif result.writes:
        verb = ("write", "wrote")
    else:
        verb = ("leave", "left") if result.status == "extra" else ("record", "recorded")
    return f"would {verb[0]}" if mode == "dry-run" else verb[1]


def _why(result: Result) -> str:
    shown = list(result.reasons[:MOST_REASONS])
    if len(result.reasons) > len(shown):
        shown.append(f"and {len(result.reasons) - len(shown)} more")
    return f" ({'; '.join(shown)})" if shown else ""


def lines(results: Sequence[Result], mode: str | None) -> Iterator[str]:
    """One line for each stale file with the reasons, then the count."""
    stale = [result for result in results if result.stale]
    for result in stale:
        yield f"{_effect(result, mode)}: {result.path}: {STATES.get(result.status, result.status)}{_why(result)}"
    outcome = "built" if mode is None else "stale"
    noun = "module" if len(results) == 1 else "modules"
    yield f"{len(results)} {noun}, {len(results) - len(stale)} up to date, {len(stale)} {outcome}"


def diffs(results: Sequence[Result]) -> Iterator[str]:
    """The difference that a build makes to each stale file; a line of words where it does not touch the file."""
    for result in results:
        if result.stale:
            yield result.diff() or f"# {_effect(result, 'dry-run')}: {result.path}{_why(result)}\n"


def data(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same as plain data, fresh modules included."""
    return [
        {"path": one.path, "model": one.model, "target": one.target, "status": one.status, "reasons": one.reasons}
        for one in results
    ]

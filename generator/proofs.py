"""proofs.json: what was shown of each emitted module, by which command, on what, and of which bytes.

It lies beside codegen.lock and is written by the commands that prove, never by hand. A proof counts for as long as the module
has the bytes that it had then. Imports nothing slow: listing is quick.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from generator.errors import Diagnostic, ManifestError

NAME = "proofs.json"
VERSION = 1
KINDS = ("legal", "logic", "precision")
COMMANDS = {"legal": "legal", "logic": "verify", "precision": "verify"}  # which command proves what
FULL_SIZE, TWIN = "full size", "twin"
NONE, PROVEN, STALE = "none", "proven", "stale"


@dataclass(frozen=True)
class Proof:
    """One thing that was shown of one module.

    `command` shows it again. `on` begins with FULL_SIZE or TWIN, and names the weights after a comma where there were any.
    `measured` holds numbers by name: passes or comparisons, and the worst of them. `module` is the digest of the module then,
    `ran` that of the text that ran, which is another for a twin.
    """

    command: str
    on: str
    measured: Mapping[str, float]
    module: str
    ran: str

    @property
    def size(self) -> str:
        """FULL_SIZE or TWIN."""
        return self.on.partition(",")[0]

    def state(self, digest: str | None) -> str:
        """PROVEN of a module of this digest, or STALE."""
        return PROVEN if self.module == digest else STALE


Record = dict[str, dict[str, Proof]]  # by the module's path below the output folder, by kind


def read(output: Path) -> Record:
    """The record of an output folder; an empty one where there is none. Raises ManifestError for one that is none."""
    path = output / NAME
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION or data.keys() != {"version", "modules"}:
            raise ValueError("another version or other tables")
        return {name: _parsed(kinds) for name, kinds in data["modules"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        rule = f"is no record of proofs of version {VERSION} ({error})"
        hint = f"restore it, or delete it and prove again: {again()}"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)]) from None


def _parsed(kinds: Mapping[str, Any]) -> dict[str, Proof]:
    found = {kind: Proof(**one) for kind, one in kinds.items()}
    texts = [value for one in found.values() for value in (one.command, one.on, one.module, one.ran)]
    numbers = [value for one in found.values() for value in one.measured.values()]
    if not found.keys() <= set(KINDS) or not all(isinstance(text, str) for text in texts):
        raise ValueError("an unknown kind, or an entry that is no string")
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
        raise ValueError("what was measured is no number")
    return found


def text(record: Record) -> str:
    """Stable text: sorted keys, a newline at the end."""
    modules = {name: {kind: asdict(proof) for kind, proof in kinds.items()} for name, kinds in record.items() if kinds}
    return json.dumps({"version": VERSION, "modules": modules}, indent=1, sort_keys=True) + "\n"


def record(output: Path, module: str, shown: Mapping[str, Proof | None]) -> None:
    """Write what was shown of one module, whole or not at all, beside what others write meanwhile.

    None stands for what was tried and failed: nothing is recorded of it, and what an earlier run recorded is withdrawn. Modules
    that are gone are left out. Raises ManifestError.
    """
    from generator.publish import write_new

    with _alone(output):
        found = read(output)
        kept = {kind: proof for kind, proof in {**found.get(module, {}), **shown}.items() if proof is not None}
        present = {name: kinds for name, kinds in {**found, module: kept}.items() if (output / name).exists()}
        write_new(output / NAME, text(present).encode())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else writes the record meanwhile; the system lets go when the process ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def again() -> str:
    """The commands that prove everything anew."""
    return " and ".join(f"`codegen {command} --all --record`" for command in dict.fromkeys(COMMANDS.values()))

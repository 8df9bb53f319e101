"""codegen.lock: what was published, from which inputs. It is how a later build knows stale from fresh and edited from ours."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from generator.errors import Diagnostic, ManifestError

NAME = "codegen.lock"
PENDING = "codegen.lock.pending"  # the next lock, while files are being replaced
VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One published module: digests of everything it was made from (`sources`: templates and generator) and of its own bytes."""

    model: str
    target: str
    manifest: str
    board: str
    sources: str
    tools: str
    output: str


@dataclass(frozen=True)
class Lock:
    """All published modules by path; `sources` gives the templates and generator files of the newest one, to name changes."""

    sources: dict[str, str] = field(default_factory=dict)
    modules: dict[str, Entry] = field(default_factory=dict)

    def text(self) -> str:
        """Stable text: sorted keys, one entry a line group, a newline at the end."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1, sort_keys=True) + "\n"


def _parse(path: Path) -> Lock:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION or data.keys() != {"version", "sources", "modules"}:
            raise ValueError("another version or other tables")
        found = Lock(dict(data["sources"].items()), {name: Entry(**entry) for name, entry in data["modules"].items()})
        values = [
            *found.sources.values(),
            *(value for entry in found.modules.values() for value in vars(entry).values()),
        ]
        if not all(isinstance(value, str) for value in values):
            raise ValueError("an entry is no string")
        for name in found.modules:
            if not re.fullmatch(r"\w+/\w+\.py", name):  # files are written and removed by these names
                raise ValueError(f"{name!r} is no module of the folder")
        return found
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        rule = f"is no lock file of version {VERSION} ({error})"
        hint = "restore it, or delete it and build with --force"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)]) from None


def read(output: Path) -> Lock:
    """The lock of an output folder; an empty one where there is none."""
    path = output / NAME
    return _parse(path) if path.exists() else Lock()


def read_pending(output: Path) -> Lock:
    """The lock of a publication that did not finish; an empty one where the last one did."""
    path = output / PENDING
    return _parse(path) if path.exists() else Lock()

"""codegen.lock: what was published, from which inputs. It is how a later build knows stale from fresh and edited from ours."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from generator.errors import Diagnostic, ManifestError, shown

NAME = "codegen.lock"
PENDING = "codegen.lock.pending"  # the next lock, while files are being replaced
VERSION = 2


def module_path(model: str, target: str, twin: bool) -> str:
    """Where a module lies below the output folder."""
    folder = model.replace(".", "_").replace("-", "_") + ("_twin" if twin else "")
    return f"{folder}/{target}.py"


@dataclass(frozen=True)
class Entry:
    """One published module: digests of everything it was made from (`sources`: templates and generator) and of its own bytes.

    `changed` is the day (YYYY-MM-DD, UTC) of the build that found another manifest or board than the one before it, or
    templates or a generator that make another text of the module: what had changed of its inputs, and not only beside them.
    """

    model: str
    target: str
    manifest: str
    board: str
    sources: str
    tools: str
    output: str
    changed: str

    def since(self, before: Entry | None, day: str) -> Entry:
        """The entry with its day: that of `before` where what it was made from is the same, else `day`."""
        same = before is not None and all(getattr(self, name) == getattr(before, name) for name in MADE_FROM)
        return replace(self, changed=before.changed if same else day)


MADE_FROM = ("manifest", "board", "output")


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


def today() -> str:
    """The day in UTC, of SOURCE_DATE_EPOCH where that is set, so that a build can be repeated to the byte. Raises
    ManifestError for one that is no number of seconds.
    """
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        seconds = time.time() if stated is None else int(stated)
        return time.strftime("%Y-%m-%d", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        rule, hint = "must be whole seconds since 1970", "correct it, or leave it unset to take the clock's"
        raise ManifestError([Diagnostic("environment", None, "SOURCE_DATE_EPOCH", shown(stated), rule, hint)]) from None


def read(output: Path) -> Lock:
    """The lock of an output folder; an empty one where there is none."""
    path = output / NAME
    return _parse(path) if path.exists() else Lock()


def read_pending(output: Path) -> Lock:
    """The lock of a publication that did not finish; an empty one where the last one did."""
    path = output / PENDING
    return _parse(path) if path.exists() else Lock()

"""Put files into the output folder: all of them or, for a reader of the lock, none.

New content is first written beside its destination and then renamed over it; a pending lock, written before the first rename
and itself renamed last, lets a later build recognise the files of a publication that was cut short.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from generator import lock
from generator.errors import Diagnostic, ManifestError


def _refuse(path: Path, rule: str, hint: str) -> ManifestError:
    return ManifestError([Diagnostic(str(path), None, "", "", rule, hint)])


def check_writable(output: Path) -> None:
    """Refuse an output folder that cannot take files, before anything is rendered."""
    if output.exists() and not output.is_dir():
        raise _refuse(output, "the output folder is a file", "name a folder with --output")
    nearest = next(path for path in (output, *output.resolve().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise _refuse(output, f"{nearest} cannot be written", "change its permissions or name another with --output")


def _staged(path: Path, content: bytes) -> str:
    """A finished, synced temporary file beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(name, 0o644)
    return name


def publish(output: Path, files: dict[str, bytes], removed: list[str], new_lock: lock.Lock) -> None:
    """Write `files` (by path below `output`), delete `removed`, and record `new_lock`.

    Raises ManifestError, with nothing changed under its final name, where a file cannot be written.
    """
    text = new_lock.text().encode()
    staged: list[tuple[str, Path]] = []
    try:
        for name, content in files.items():
            staged.append((_staged(output / name, content), output / name))
        staged.append((_staged(output / lock.PENDING, text), output / lock.PENDING))
    except OSError as error:
        for temporary, _ in staged:
            os.unlink(temporary)
        place = Path(error.filename or output)
        raise _refuse(place, f"cannot be written ({error.strerror})", "nothing was published; free the path") from None
    os.replace(*staged.pop())
    for temporary, path in staged:
        os.replace(temporary, path)
    for name in removed:
        (output / name).unlink(missing_ok=True)
    os.replace(output / lock.PENDING, output / lock.NAME)

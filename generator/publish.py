"""Put files into the output folder: all of them or, for a reader of the lock, none.

New content is first written beside its destination and then renamed over it; a pending lock, which is the first file renamed
and is itself renamed into the lock last, lets a later build recognise the files of a publication that was cut short.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from generator import lock
from generator.errors import Diagnostic, ManifestError


def _refuse(path: Path, rule: str, hint: str) -> ManifestError:
    return ManifestError([Diagnostic(str(path), None, "", "", rule, hint)])


def _nearest(folder: Path) -> Path:
    """The folder itself, or what there is of the way to it."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def check_folder(output: Path, option: str = "--output") -> None:
    """Refuse a file where a folder is meant; `option` is how another one is named."""
    nearest = _nearest(output)
    if not nearest.is_dir():
        raise _refuse(output, f"{nearest} is a file and no folder", f"name a folder with {option}")


def check_writable(output: Path, option: str = "--output") -> None:
    """Refuse a folder that cannot take files, before anything is rendered."""
    check_folder(output, option)
    nearest = _nearest(output)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _refuse(output, f"{nearest} cannot be written", f"change its permissions or name another with {option}")


def check_file(path: Path) -> None:
    """Refuse what no file can take the place of, before the work for it is done."""
    if path.exists() and not path.is_file():
        raise _refuse(path, "is there and no file", "name a file")
    nearest = _nearest(path.parent)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise _refuse(path, f"{nearest} is no folder that can be written", "name a file in one that can")


def _staged(path: Path, content: bytes) -> str:
    """A finished, synced temporary file beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
    except BaseException:
        os.unlink(name)
        raise
    return name


def write_new(path: Path, content: bytes) -> None:
    """One file by itself, whole or not at all, in place of what stands there, or of what a link there names. Raises ManifestError."""
    path = path.resolve()
    try:
        temporary = _staged(path, content)
        try:
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise _refuse(path, f"cannot be written ({error.strerror})", "free the path and try again") from None


def publish(output: Path, files: dict[str, bytes], removed: list[str], new_lock: lock.Lock) -> None:
    """Write `files` (by path below `output`), delete `removed` and the folders that it leaves empty, and record `new_lock`.

    Raises ManifestError where a file cannot be written: with nothing changed while new content was still being laid beside
    the old, otherwise with every file either old or new and the pending lock left for the next build.
    """
    files = {lock.PENDING: new_lock.text().encode(), **files}
    made = {folder for name in files for folder in (output / name).parents if not folder.exists()}
    staged: list[tuple[str, Path]] = []
    renamed = 0
    try:
        for name, content in files.items():
            staged.append((_staged(output / name, content), output / name))
        for temporary, path in staged:
            os.replace(temporary, path)
            renamed += 1
        for name in removed:
            (output / name).unlink(missing_ok=True)
            with suppress(OSError):
                (output / name).parent.rmdir()
        os.replace(output / lock.PENDING, output / lock.NAME)
    except OSError as error:
        place = Path(error.filename2 or error.filename or output)
        outcome = "the rest was not published" if renamed else "nothing was published"
        raise _refuse(
            place, f"cannot be written ({error.strerror})", f"{outcome}; free the path and build again"
        ) from None
    finally:
        for temporary, _ in staged[renamed:]:
            os.unlink(temporary)
        for folder in sorted(made, reverse=True):
            with suppress(OSError):
                folder.rmdir()  # only those that stayed empty

"""The files of a manifest directory: what is there, and the text of one. Imports nothing slow: listing is quick."""

from __future__ import annotations

from pathlib import Path

from generator.errors import Diagnostic, ManifestError, did_you_mean

MODELS = "models"
TARGETS = "targets"
BUILT_IN = Path(__file__).parent / "manifests"


def names(manifests: Path, kind: str = MODELS) -> tuple[str, ...]:
    """Names of all models (or targets) in a manifest directory, sorted; none where the directory is missing."""
    return tuple(sorted(path.stem for path in (manifests / kind).glob("*.toml")))


def find(manifests: Path, kind: str, name: str) -> Path:
    """The file of a name. Raises ManifestError for one that is not there, with the closest that is."""
    known = names(manifests, kind)
    if name not in known:
        noun = "model" if kind == MODELS else "target"
        rule = f"no {noun} of this name in the directory"
        raise ManifestError(
            [Diagnostic(str(manifests / kind), None, noun, f'"{name}"', rule, did_you_mean(name, known))]
        )
    return manifests / kind / f"{name}.toml"


def read(path: Path) -> str:
    """The text of a file. Raises ManifestError where it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise ManifestError(
            [Diagnostic(str(path), line, "", byte, "a TOML file is UTF-8", "save it as UTF-8")]
        ) from None
    except OSError as error:
        rule = f"cannot be read ({error.strerror})"
        hint = "name a file" if path.is_dir() else "check the path and its permissions"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)]) from None

"""What a build reads, as digests: the difference to what was recorded decides whether anything has to be rendered again."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent
TEMPLATES = PACKAGE.parent / "templates"
TOOLS = ("black", "jinja2", "libcst")
# Files of the generator that no emitted byte depends on: they decide, write and tell, and may change without a rebuild.
FOLDERS_AROUND_THE_TEXT = ("choosing", "importing")
AROUND_THE_TEXT = frozenset(
    f"{name}.py"
    for name in (
        "benching build cli dump explain inputs listing lock options proofs proving publish record_signatures report "
        "signature_changes subjects"
    ).split()
) | {
    path.relative_to(PACKAGE).as_posix()
    for folder in FOLDERS_AROUND_THE_TEXT
    for path in (PACKAGE / folder).rglob("*.py")
}


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sources() -> dict[str, str]:
    """Digest of every template and of every file of the generator behind a text, by a path that is the same everywhere."""
    return _sources(TEMPLATES)


@cache
def _sources(templates: Path) -> dict[str, str]:
    found = {f"templates/{path.relative_to(templates).as_posix()}": path for path in templates.rglob("*.jinja")}
    behind = (path.relative_to(PACKAGE) for path in (*PACKAGE.rglob("*.py"), PACKAGE / "signatures.json"))
    found |= {
        f"generator/{path.as_posix()}": PACKAGE / path for path in behind if path.as_posix() not in AROUND_THE_TEXT
    }
    return {name: digest(found[name].read_bytes()) for name in sorted(found)}


@cache
def tools() -> str:
    """Versions of the libraries that shape the text; a new one makes a build render again, not differ."""
    from importlib import metadata  # slow, and a listing needs only digests

    return ", ".join(f"{name} {metadata.version(name)}" for name in TOOLS)

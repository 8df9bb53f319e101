"""What a build reads, as digests: the difference to what was recorded decides whether anything has to be rendered again."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parent
TEMPLATES = PACKAGE.parent / "templates"
TOOLS = ("black", "jinja2", "libcst")


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@cache
def sources(templates: Path = TEMPLATES) -> dict[str, str]:
    """Digest of every template and of every file of the generator, by a path that does not depend on where they lie."""
    found = {f"templates/{path.relative_to(templates).as_posix()}": path for path in templates.rglob("*.jinja")}
    found |= {f"generator/{path.relative_to(PACKAGE).as_posix()}": path for path in PACKAGE.rglob("*.py")}
    return {name: digest(found[name].read_bytes()) for name in sorted(found)}


@cache
def tools() -> str:
    """Versions of the libraries that shape the text; a new one makes a build render again, not differ."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in TOOLS)

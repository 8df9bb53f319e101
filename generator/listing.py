"""What `codegen list` and `codegen show` print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from generator import catalog
from generator.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from generator.geometry import Resolved
    from generator.shapes import PassShape

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GIB = 2**30
MOST_SHOWN = 32  # numbers of a list


COLUMNS = ("name", "family", "targets")


def rows(manifests: Path) -> list[dict[str, str]]:
    """Name, family and targets of every manifest, read without checking it; a broken one says so in its family column."""
    found = []
    for name in catalog.names(manifests):
        try:
            data = tomllib.loads(catalog.read(catalog.find(manifests, catalog.MODELS, name)))
            family, targets = str(data["family"]), " ".join(data["target"])
        except (ValueError, KeyError, TypeError, ManifestError):
            family, targets = "(broken: codegen show says why)", ""
        found.append(dict(zip(COLUMNS, (name, family, targets))))
    return found


def outline(manifests: Path, name: str) -> tuple[list[str], dict[str, str] | None]:
    """Targets of a model and the package that carries its weights, read without the checks of a build and what they import.

    A manifest that is not even so far in order is read with all of them, which say what is wrong with it.
    """
    try:
        data = tomllib.loads(catalog.read(catalog.find(manifests, catalog.MODELS, name)))
        weights = data.get("weights")
        return list(data["target"]), weights and {key: weights[key] for key in ("package", "file")}
    except (ValueError, KeyError, TypeError, AttributeError):
        from generator import manifest

        loaded = manifest.load(manifests, name).manifest
        return list(loaded.target), loaded.weights and dict(loaded.weights)


def table(found: Sequence[dict[str, str]]) -> str:
    """Rows below their headings, in columns as wide as their widest entry."""
    cells = [COLUMNS, *(tuple(row.values()) for row in found)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def describe(resolved: Resolved, shapes: Sequence[PassShape]) -> str:
    """One resolved model in words: numbers with where they came from, memory, and the closed set of passes."""
    lines = [f"{resolved.name} on {resolved.target} (geometry {resolved.digest})", ""]
    for field, key in resolved.keys.items():
        value = resolved
        for part in field.split("."):
            value = getattr(value, part, None)
        if isinstance(value, (int, float, str, tuple)):
            reason = resolved.derivations.get(field, key)
            text = f"({len(value)} numbers)" if isinstance(value, tuple) and len(value) > MOST_SHOWN else str(value)
            lines.append(f"  {field:<30} {text:<28} {reason}")
    memory = resolved.memory
    lines += ["", "  memory of one device, GiB"]
    for name in ("weights", "rotary_tables", "key_value", "activation_peak", "captured_rows", "trace_region", "total", "capacity"):
        lines.append(f"  {name:<30} {getattr(memory, name) / GIB:10.3f}")
    lines += ["", "  variant     rows  tokens  fill pages  read pages  digest"]
    for shape in shapes:
        lines.append(
            f"  {shape.variant:<10} {shape.rows:>5} {shape.tokens:>7} {shape.fill_pages:>11} {shape.read_pages:>11}  {shape.digest}"
        )
    return "\n".join(lines) + "\n"

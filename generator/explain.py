"""Which template line and which manifest keys are behind a line of an emitted module."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import catalog
from generator.errors import shown
from generator.source_map import Origin

if TYPE_CHECKING:
    from generator.build import Result
    from generator.pipeline import Emitted

_EXPRESSION = re.compile(r"\{\{(.*?)\}\}|\{%\s*for\s.*?\sin\s(.*?)%\}")
_FIELD = re.compile(r'\bmodel\.([a-z_]+(?:\.[a-z_]+)*)|because\("([a-z_.]+)"\)')

# Values that the templates take from tables of the generator, by the resolved fields that the tables are made from.
TABLE_FIELDS = {
    "shape": ("lengths", "waves", "wave_tokens", "ragged_tokens", "block_size", "context"),
    "shape_lines": ("lengths", "waves", "wave_tokens", "ragged_tokens"),
    "shapes": ("lengths", "waves", "wave_tokens", "ragged_tokens"),
    "microseconds": ("lengths", "ragged_tokens"),
    "matmuls": ("lengths", "waves", "wave_tokens", "ragged_tokens"),
    "attentions": ("lengths", "waves", "ragged_tokens", "attention_chunk"),
    "choice": ("lengths", "waves", "ragged_tokens", "attention_chunk", "hidden", "intermediate"),
    "token_tiles": ("lengths", "waves", "wave_tokens", "ragged_tokens"),
    "row": ("family",),
    "factors": ("rope.short_factors", "rope.long_factors"),
    "rope_number": ("rope",),
    "fidelity": ("dtypes.weights", "dtypes.key_value"),
}


@dataclass(frozen=True)
class Explanation:
    """A line of an emitted module, the template line behind it, and the manifest keys that its values came from."""

    text: str
    origin: Origin | None
    template_text: str
    keys: tuple[str, ...]


def _fields(template_line: str) -> list[str]:
    """Resolved fields that a template line reads, directly or through a table."""
    fields: list[str] = []
    for expression in _EXPRESSION.findall(template_line):
        text = "".join(expression)
        for plain, reason in _FIELD.findall(text):
            fields.append(plain or reason)
        for name, behind in TABLE_FIELDS.items():
            if re.search(rf"\b{name}\b(?!\()", text) and f"model.{name}" not in text:
                fields += behind
    return list(dict.fromkeys(fields))


def _keys(emitted: Emitted, fields: list[str]) -> list[str]:
    """Manifest keys of resolved fields; a derived field names the keys it was derived from."""
    keys: list[str] = []
    for field in fields:
        key = emitted.resolved.keys.get(field) or emitted.resolved.keys.get(field.split(".")[0])
        if key:
            keys += [part.strip() for part in key.split(",")]
    return list(dict.fromkeys(keys))


def explain(emitted: Emitted, line: int, templates: Path) -> Explanation:
    """Line `line` (from 1) of an emitted module. A line without a mark of its own belongs to the nearest one above it."""
    text = emitted.text.split("\n")[line - 1]
    index = line - 1
    while index > 0 and emitted.origins[index] is None:
        index -= 1
    origin = emitted.origins[index] if index < len(emitted.origins) else None
    if origin is None:
        return Explanation(text, None, "", ())
    template_text = (templates / origin.template).read_text(encoding="utf-8").split("\n")[origin.line - 1].strip()
    return Explanation(text, origin, template_text, tuple(_keys(emitted, _fields(template_text))))


def keys_behind(result: Result) -> list[str]:
    """Manifest keys behind the built lines that differ from the file on disk."""
    from generator.inputs import TEMPLATES

    if result.emitted is None:
        return []
    before, after = result.before.splitlines(), result.emitted.text.splitlines()
    keys: list[str] = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            for line in range(start + 1, min(max(end, start + 1), len(after)) + 1):
                keys += explain(result.emitted, line, TEMPLATES).keys
    return list(dict.fromkeys(keys))


def key_places(manifests: Path, model: str, keys: Iterable[str]) -> list[dict[str, str]]:
    """For each dotted key its file:line and its value there; a key left out of the file is told as its default."""
    from generator import manifest

    path = catalog.find(manifests, catalog.MODELS, model)
    file = manifest.load(manifests, model)
    places = []
    for key in keys:
        value = file.manifest.model_dump()
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) and part in value else None
        stated = tuple(key.split(".")) in file.source.lines
        place = f"{shown_path(path)}:{file.source.line(key.split('.'))}" + ("" if stated else " (default)")
        places.append({"key": key, "place": place, "value": shown(value)})
    return places


def shown_path(path: Path) -> str:
    """A path as the reader would type it: from the current folder where it lies below, absolute elsewhere."""
    relative = os.path.relpath(path)
    return str(path.absolute()) if relative.startswith(os.pardir) else relative

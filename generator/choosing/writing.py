"""A choice as it is written into a manifest: values of a few keys of one target's table, and nothing else of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from generator.manifest import ModelFile

Value = Union[int, Sequence[int]]


def rewritten(text: str, file: ModelFile, target: str, values: Mapping[str, Value], reason: str) -> str:
    """The text of a manifest with other `values` of keys in [target.TARGET], each line with the reason as its comment."""
    lines = text.split("\n")
    places = {key: file.source.line(("target", target, key)) - 1 for key in values}
    for key, first in sorted(places.items(), key=lambda place: -place[1]):  # from below, so that numbers of lines hold
        last = _last_line(lines, first)
        head, _, _ = lines[first].partition("=")
        ending = "\r" if lines[last].endswith("\r") else ""
        lines[first : last + 1] = [f"{head}= {_toml(values[key])} # {reason}{ending}"]
    return "\n".join(lines)


def _toml(value: Value) -> str:
    return str(value) if isinstance(value, int) else f"[{', '.join(map(str, value))}]"


def _last_line(lines: Sequence[str], first: int) -> int:
    """Where the value that begins on a line ends: an array of integers may take several."""
    depth = 0
    for index in range(first, len(lines)):
        code = lines[index].split("#")[0]
        depth += code.count("[") - code.count("]")
        if depth <= 0:
            return index
    return first

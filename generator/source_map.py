"""From a line of an emitted module back to the template line that made it.

Every line of a template that can become a line of code gets a marker before rendering. Markers look like comments, so the
rewriting passes carry them along; they are taken off before formatting, and the formatter's changes of line breaks are
followed token by token, since it never reorders or renames.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

OPEN, CLOSE = "\ue000", "\ue001"
_MARKER = re.compile(rf"[ \t]*#?{OPEN}(?P<template>[^:{CLOSE}]+):(?P<line>\d+){CLOSE}")
_TEMPLATE_ONLY = re.compile(r"^\s*(\{%.*%\}|\{#.*#\})\s*$")
_LAYOUT_TOKENS = {"(", ")", ","}


@dataclass(frozen=True)
class Origin:
    """A line of a template, counted from 1."""

    template: str
    line: int


def mark(template: str, source: str) -> str:
    """The template source with a marker at the end of each line that can become code."""
    marked = []
    in_docstring = False
    for number, line in enumerate(source.split("\n"), 1):
        quotes = line.count('"""')
        opens_or_inside = in_docstring or quotes == 1
        if not line.strip() or _TEMPLATE_ONLY.match(line):
            marked.append(line)
        elif opens_or_inside and not (in_docstring and quotes):
            marked.append(f"{line}{OPEN}{template}:{number}{CLOSE}")
        else:
            marked.append(f"{line}  #{OPEN}{template}:{number}{CLOSE}")
        if quotes % 2:
            in_docstring = not in_docstring
    return "\n".join(marked)


def unmark(code: str) -> tuple[str, list[Origin | None]]:
    """Code without markers, and for each of its lines the template line it came from (None where unknown)."""
    lines, origins = [], []
    for line in code.split("\n"):
        found = _MARKER.search(line)
        bare = _MARKER.sub("", line)
        if found and not bare.strip():
            continue  # a line that held nothing but the marker of a removed construct
        lines.append(bare)
        origins.append(Origin(found["template"], int(found["line"])) if found else None)
    return "\n".join(lines), origins


def _significant(code: str) -> list[tokenize.TokenInfo]:
    skipped = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token for token in tokens if token.type not in skipped and token.string not in _LAYOUT_TOKENS]


def follow(code: str, origins: list[Origin | None], formatted: str) -> list[Origin | None]:
    """Origins for the lines of `formatted`, which is `code` as the formatter left it."""
    result: list[Origin | None] = [None] * formatted.count("\n")
    for before, after in zip(_significant(code), _significant(formatted), strict=True):
        for offset in range(after.end[0] - after.start[0] + 1):
            line = after.start[0] + offset - 1
            source = before.start[0] + offset - 1
            if result[line] is None and source < len(origins):
                result[line] = origins[source]
    return result

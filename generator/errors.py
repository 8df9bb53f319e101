"""What is said to someone whose input is refused: one diagnostic for each mistake, all of a file together."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One mistake in one file.

    `line` counts from 1 and is None where no line can be named (an unreadable file). `key` is dotted, `value` is as the
    file's author would write it; both are empty where the mistake has none. `hint` is the nearest legal value or the
    next thing to do.
    """

    path: str
    line: int | None
    key: str
    value: str
    rule: str
    hint: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        subject = f"{self.key} = {self.value}" if self.key and self.value else self.key or self.value
        message = f"{place}: {subject}: {self.rule}" if subject else f"{place}: {self.rule}"
        return f"{message}; {self.hint}" if self.hint else message


class ManifestError(Exception):
    """Input is refused and nothing was written; `diagnostics` holds every mistake found, in file order."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=lambda one: (one.path, one.line or 0)))
        super().__init__("\n".join(str(one) for one in self.diagnostics))


def shown(value: object) -> str:
    """A value as its author would write it in TOML, on one line, escaped, and cut where it is long."""
    if isinstance(value, (bool, str)):
        text = json.dumps(value).replace("\x7f", "\\u007f")  # a JSON string of ASCII characters is a TOML string too
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(shown(item) for item in value) + "]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key} = {shown(item)}" for key, item in value.items()) + "}"
    else:
        text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def did_you_mean(name: str, known: Iterable[str], *, list_all: bool = True) -> str:
    """The hint for a name that is not among `known`: the closest; all of them where none is close or `list_all`."""
    choices = sorted(known)
    close = difflib.get_close_matches(name.lower(), choices, n=1)
    listed = f"known: {', '.join(choices)}" if choices else "none is known"
    if not close:
        return listed
    return f'did you mean "{close[0]}"? ({listed})' if list_all else f'did you mean "{close[0]}"?'

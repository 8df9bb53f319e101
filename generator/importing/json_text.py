"""Strict JSON with the line of every key: what Python's own reader lets pass is refused here, with the place."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from generator.errors import Diagnostic, ManifestError, shown
from generator.schema import dotted
from generator.toml_source import Key, Source

MOST_BYTES = 2 * 2**20  # published configurations have a few thousand bytes; the largest list every quantised layer
DEEPEST = 32
MOST_DIGITS = 18
WORDS = {"true": True, "false": False, "null": None}

BLANK = re.compile(r"[ \t\r\n]*")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
WORD = re.compile(r"-?[A-Za-z]+")


def read_object(text: str, path: str) -> tuple[dict[str, Any], Source]:
    """The object that a JSON text is, and the line of each of its keys and elements, which counts from 1.

    Raises ManifestError for text that is no JSON, no object, nested over DEEPEST, with a key twice in one object, with NaN or
    an infinity, or with a number too large to be meant.
    """
    reader = _Reader(text, path)
    value = reader.document()
    if not isinstance(value, dict):
        raise ManifestError([Diagnostic(path, 1, "", shown(value), "is no JSON object", "name a model's config.json")])
    return value, Source((), reader.lines)


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self.at = 0
        self.lines: dict[Key, int] = {}
        self.counted_at, self.counted_line = 0, 1

    def here(self) -> int:
        """The line of the current position. Positions only grow, so each character is counted once."""
        self.counted_line += self.text.count("\n", self.counted_at, self.at)
        self.counted_at = self.at
        return self.counted_line

    def refusal(self, key: Key, value: str, rule: str, hint: str) -> ManifestError:
        return ManifestError([Diagnostic(self.path, self.here(), dotted(key), value, rule, hint)])

    def unexpected(self, wanted: str) -> ManifestError:
        found = shown(self.text[self.at]) if self.at < len(self.text) else "the end of the text"
        return self.refusal((), "", f"is no JSON ({wanted} expected, not {found})", "correct this line first")

    def skip(self) -> None:
        self.at = BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches nothing at least

    def next_is(self, character: str) -> bool:
        self.skip()
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def document(self) -> Any:
        value = self.value((), 0)
        self.skip()
        if self.at < len(self.text):
            raise self.unexpected("the end of the text")
        return value

    def value(self, key: Key, depth: int) -> Any:
        self.skip()
        self.lines[key] = self.here()
        if depth > DEEPEST:
            raise self.refusal(key, "", f"is nested over {DEEPEST} deep", "a configuration goes three or four deep")
        if self.next_is("{"):
            return self.members(key, depth)
        if self.next_is("["):
            return self.elements(key, depth)
        if self.text.startswith('"', self.at):
            return self.string()
        if number := NUMBER.match(self.text, self.at):
            return self.number(key, number)
        word = WORD.match(self.text, self.at)
        if word is None:
            raise self.unexpected("a value")
        if word.group() not in WORDS:
            finite = word.group() in ("NaN", "Infinity", "-Infinity")
            rule = "must be finite" if finite else "is no JSON value"
            raise self.refusal(key, shown(word.group())[1:-1], rule, "write a plain number" if finite else "quote it")
        self.at = word.end()
        return WORDS[word.group()]

    def number(self, key: Key, match: re.Match[str]) -> int | float:
        if not (match.group(1) or match.group(2)):
            digits = match.group().lstrip("-")
            if len(digits) > MOST_DIGITS:
                rule = f"has {len(digits)} digits, over the {MOST_DIGITS} that any size of a model has"
                raise self.refusal(key, f"{match.group()[:20]}...", rule, "correct it")
            self.at = match.end()
            return int(match.group())
        value = float(match.group())
        if math.isinf(value):
            raise self.refusal(key, shown(match.group())[1:-1], "is over what a float holds", "correct it")
        self.at = match.end()
        return value

    def string(self) -> str:
        match = STRING.match(self.text, self.at)
        if match is None:
            raise self.unexpected("a string that ends on its line, with escapes of JSON")
        self.at = match.end()
        return json.loads(match.group())

    def members(self, key: Key, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.next_is("}"):
            return found
        while True:
            self.skip()
            if not self.text.startswith('"', self.at):
                raise self.unexpected("a key in double quotes")
            line = self.here()
            name = self.string()
            if name in found:
                first = self.lines[(*key, name)]
                rule = f"stands twice in one object, first on line {first}"
                raise self.refusal((*key, name), "", rule, "keep one of them")
            if not self.next_is(":"):
                raise self.unexpected('":"')
            found[name] = self.value((*key, name), depth + 1)
            self.lines[(*key, name)] = line
            if self.next_is("}"):
                return found
            if not self.next_is(","):
                raise self.unexpected('"," or "}"')

    def elements(self, key: Key, depth: int) -> list[Any]:
        found: list[Any] = []
        if self.next_is("]"):
            return found
        while True:
            found.append(self.value((*key, len(found)), depth + 1))
            if self.next_is("]"):
                return found
            if not self.next_is(","):
                raise self.unexpected('"," or "]"')

"""Where in a TOML file a key stands: a small scanner of our own, because tomllib gives values without lines.

The scanner never judges a file (tomllib does); on text that is no TOML it keeps what it has read so far.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple["str | int", ...]

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^\s,\]}#][^,\]}#\r\n]*")
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


class _Stop(Exception):
    """The text stopped being TOML here."""


@dataclass(frozen=True)
class Source:
    """The keys of one file with their lines, which count from 1.

    `definitions` holds every table header, array element and key with a value, in file order; a path that stands there
    twice was defined twice. Paths are tuples of names, with integers for the elements of arrays.
    """

    definitions: tuple[tuple[Key, int], ...]
    lines: dict[Key, int]

    def line(self, key: Sequence[str | int]) -> int:
        """The line of a key; for one that is missing, the line of the innermost table or array around it, or 1."""
        path = tuple(key)
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def first_duplicate(self) -> tuple[Key, int, int] | None:
        """The first key defined twice: its path and both lines."""
        seen: dict[Key, int] = {}
        for path, line in self.definitions:
            if path in seen:
                return path, seen[path], line
            seen[path] = line
        return None


def scan(text: str) -> Source:
    """Read the keys of a TOML text."""
    scanner = _Scanner(text)
    try:
        scanner.document()
    except (_Stop, IndexError, ValueError, RecursionError):
        pass  # a broken file is tomllib's to report; the lines read so far still help it
    return Source(tuple(scanner.definitions), scanner.lines)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n") + "\n"  # as tomllib counts lines
        self.at = 0
        self.definitions: list[tuple[Key, int]] = []
        self.lines: dict[Key, int] = {}
        self.array_tables: dict[Key, int] = {}
        self.counted_at, self.counted_line = 0, 1

    def here(self) -> int:
        """The line of the current position. Positions only grow, so each character is counted once."""
        self.counted_line += self.text.count("\n", self.counted_at, self.at)
        self.counted_at = self.at
        return self.counted_line

    def define(self, path: Key, line: int) -> None:
        self.definitions.append((path, line))
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def document(self) -> None:
        table: Key = ()
        while self.skip(newlines=True):
            if self.text.startswith("[", self.at):
                table = self.header()
            else:
                self.pair(table)

    def skip(self, newlines: bool) -> bool:
        """Pass white space, and with `newlines` also line ends and comments; False at the end of the text."""
        blank = " \t\n" if newlines else " \t"
        while self.at < len(self.text):
            if self.text[self.at] in blank:
                self.at += 1
            elif newlines and self.text[self.at] == "#":
                self.at = self.text.index("\n", self.at)
            else:
                return True
        return False

    def take(self, expected: str) -> None:
        if not self.text.startswith(expected, self.at):
            raise _Stop
        self.at += len(expected)

    def header(self) -> Key:
        line = self.here()
        is_array = self.text.startswith("[[", self.at)
        self.take("[[" if is_array else "[")
        path = self.inside_array_tables(self.key())
        self.take("]]" if is_array else "]")
        if is_array:
            index = self.array_tables.get(path, 0)
            self.array_tables[path] = index + 1
            path = (*path, index)
        self.define(path, line)
        self.lines[path] = line  # a dotted header above may have named this table only in passing
        return path

    def inside_array_tables(self, names: Key) -> Key:
        """[a.b] below [[a]] belongs to the last element of a."""
        path: Key = ()
        for position, name in enumerate(names):
            path = (*path, name)
            if position < len(names) - 1 and path in self.array_tables:
                path = (*path, self.array_tables[path] - 1)
        return path

    def pair(self, table: Key) -> None:
        line = self.here()
        path = (*table, *self.key())
        self.take("=")
        self.define(path, line)
        self.value(path)

    def key(self) -> Key:
        names: list[str] = []
        while True:
            self.skip(newlines=False)
            if self.text[self.at] == '"':
                names.append(self.basic_string())
            elif self.text[self.at] == "'":
                names.append(self.literal_string())
            else:
                match = BARE_KEY.match(self.text, self.at)
                if match is None:
                    raise _Stop
                names.append(match.group())
                self.at = match.end()
            self.skip(newlines=False)
            if self.text[self.at] != ".":
                return tuple(names)
            self.at += 1

    def value(self, path: Key) -> None:
        self.skip(newlines=False)
        first = self.text[self.at]
        if first == "[":
            self.array(path)
        elif first == "{":
            self.inline_table(path)
        elif self.text.startswith(('"""', "'''"), self.at):
            self.multiline_string(self.text[self.at : self.at + 3])
        elif first == '"':
            self.basic_string()
        elif first == "'":
            self.literal_string()
        else:
            match = SCALAR.match(self.text, self.at)
            if match is None:
                raise _Stop
            self.at = match.end()

    def array(self, path: Key) -> None:
        self.take("[")
        index = 0
        while self.skip(newlines=True) and self.text[self.at] != "]":
            self.define((*path, index), self.here())
            self.value((*path, index))
            index += 1
            self.skip(newlines=True)
            if self.text[self.at] != "]":
                self.take(",")
        self.take("]")

    def inline_table(self, path: Key) -> None:
        self.take("{")
        while self.skip(newlines=True) and self.text[self.at] != "}":
            self.pair(path)
            self.skip(newlines=True)
            if self.text[self.at] != "}":
                self.take(",")
        self.take("}")

    def basic_string(self) -> str:
        self.take('"')
        characters: list[str] = []
        while self.text[self.at] != '"':
            if self.text[self.at] == "\n":
                raise _Stop
            characters.append(self.escaped() if self.text[self.at] == "\\" else self.text[self.at])
            self.at += 1
        self.at += 1
        return "".join(characters)

    def escaped(self) -> str:
        """The character that an escape stands for; leaves the position on the escape's last character."""
        self.at += 1
        letter = self.text[self.at]
        digits = {"x": 2, "u": 4, "U": 8}.get(letter)
        if digits is None:
            return ESCAPES.get(letter, letter)
        code = self.text[self.at + 1 : self.at + 1 + digits]
        self.at += digits
        try:
            return chr(int(code, 16))
        except (ValueError, OverflowError):
            raise _Stop from None

    def literal_string(self) -> str:
        self.take("'")
        end = self.text.index("'", self.at)
        literal = self.text[self.at : end]
        if "\n" in literal:
            raise _Stop
        self.at = end + 1
        return literal

    def multiline_string(self, quote: str) -> None:
        self.take(quote)
        while not self.text.startswith(quote, self.at):
            if self.at >= len(self.text):
                raise _Stop
            self.at += 2 if quote == '"""' and self.text[self.at] == "\\" else 1
        self.at += 3
        extra = 0
        while extra < 2 and self.text.startswith(
            quote[0], self.at
        ):  # up to two quotes may stand before the closing three
            self.at += 1
            extra += 1

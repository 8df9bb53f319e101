"""Where a key stands in a TOML file: each key of any document has the line it was written on."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.toml_source import scan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = '''# a comment with key = 1 and [header]
title = "quotes \\" and # no comment" # one
"a.b" = 'literal # too'
site."x y".z = 3
long = """
not = "a key"
[nor.this]
"""\t# after
raw = \'\'\'
"""\'\'\'
[outer]
list = [ # first
  1, [2, 3],
  { deep = 4,  pair.of = 5 },
]
inline = { one = 1, two = { three = 3 } }
when = 1979-05-27 07:32:00

[outer.inner]
last = +inf
[[rows]]
id = 0
[rows.sub]
id = 1
[[rows]]
id = 2
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("title",), 2),
        (("a.b",), 3),
        (("site", "x y", "z"), 4),
        (("long",), 5),
        (("raw",), 9),
        (("outer",), 11),
        (("outer", "list", 0), 13),
        (("outer", "list", 1, 1), 13),
        (("outer", "list", 2, "pair", "of"), 14),
        (("outer", "inline", "two", "three"), 16),
        (("outer", "when"), 17),
        (("outer", "inner", "last"), 20),
        (("rows", 0, "sub", "id"), 24),
        (("rows", 1, "id"), 26),
        (("outer", "inner", "missing"), 19),
        (("outer", "list", 7), 12),
        (("nothing", "here"), 1),
    ],
)
def test_a_key_has_its_line_and_a_missing_one_the_line_of_its_table(key: tuple[str | int, ...], line: int) -> None:
    assert scan(TEXT).line(key) == line


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("[a.b]\nc = 1\n[a]\nd = 2\n", ("a",), 3),
        ('a = """x \\""" b = 1\n"""\nb = 2\n', ("b",), 3),
        ("a = '''it is 'said''''\nb = 2\n", ("b",), 2),
        ('a = """"said"""""\nb = 2\n', ("b",), 2),
        ('"\\u0061\\n" = 1\n', ("a\n",), 1),
    ],
)
def test_headers_escapes_and_quotes_are_read_as_toml_has_them(text: str, key: tuple[str, ...], line: int) -> None:
    tomllib.loads(text)
    source = scan(text)
    assert key in source.lines and source.line(key) == line


def test_windows_line_ends_count_once() -> None:
    assert scan(TEXT.replace("\n", "\r\n")).line(("rows", 1, "id")) == 26


@pytest.mark.parametrize(
    ("text", "duplicate"),
    [
        ("a = 1\nb = 2\na = 3\n", (("a",), 1, 3)),
        ("[t]\nx = 1\n[u]\n[t]\n", (("t",), 1, 4)),
        ("[t]\nx.y = 1\nx.y = 2\n", (("t", "x", "y"), 2, 3)),
        ("t = { a = 1,\n a = 2 }\n", (("t", "a"), 1, 2)),
        ("[a.b]\n[a]\nc = 1\n", None),
        ("[[a]]\nb = 1\n[[a]]\nb = 1\n", None),
    ],
)
def test_a_key_defined_twice_is_found_with_both_lines(text: str, duplicate: object) -> None:
    assert scan(text).first_duplicate() == duplicate


names = st.text(st.sampled_from("ab-_1. \"'#=[é\\"), min_size=1, max_size=4)
strings = st.text(st.sampled_from("x \"'\\#[]{}=,\n"), max_size=6)
scalars = st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), strings)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
documents = st.dictionaries(names, st.one_of(values, st.dictionaries(names, values, max_size=4)), max_size=5)


def toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)


class Writer:
    """Writes data as TOML in one of the many ways there are, and keeps the line of each key."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw, self.text, self.lines = draw, "", dict[tuple[str | int, ...], int]()

    def put(self, path: tuple[str | int, ...]) -> None:
        self.lines[path] = self.text.count("\n") + 1

    def value(self, path: tuple[str | int, ...], value: Any) -> None:
        if isinstance(value, list):
            self.text += "["
            for index, item in enumerate(value):
                self.text += self.draw.draw(st.sampled_from(["", " ", "\n", " # [x] = ]\n"]))
                self.put((*path, index))
                self.value((*path, index), item)
                self.text += ","
            self.text += "]"
        elif isinstance(value, dict):
            self.text += "{"
            for index, (name, item) in enumerate(value.items()):
                self.text += ", " if index else " "
                self.pair((*path, name), item)
            self.text += " }"
        elif (
            isinstance(value, str) and "'''" not in value and not value.endswith("'") and self.draw.draw(st.booleans())
        ):
            self.text += "'''\n" + value + "'''"
        elif isinstance(value, str):
            self.text += json.dumps(value)
        else:
            self.text += str(value).lower()

    def pair(self, path: tuple[str | int, ...], value: Any) -> None:
        self.put(path)
        self.text += toml_key(str(path[-1])) + " = "
        self.value(path, value)

    def document(self, data: dict[str, Any]) -> None:
        tables = [name for name, value in data.items() if isinstance(value, dict) and self.draw.draw(st.booleans())]
        for name in sorted(data, key=tables.__contains__):  # keys of the top table come before the first header
            if name not in tables:
                self.pair((name,), data[name])
                self.text += "\n"
                continue
            self.put((name,))
            self.text += f"[ {toml_key(name)} ] # header\n\n"
            for inner, value in data[name].items():
                self.pair((name, inner), value)
                self.text += "\n"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=documents, draw=st.data())
def test_every_key_of_any_document_has_the_line_it_was_written_on(data: dict[str, Any], draw: st.DataObject) -> None:
    writer = Writer(draw)
    writer.document(data)
    assert tomllib.loads(writer.text) == data
    source = scan(writer.text)
    assert source.lines == writer.lines
    assert source.first_duplicate() is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("ab.=[]{}\"',#\\u1\n \r\t"), max_size=40))
def test_no_text_breaks_the_scanner_and_its_lines_are_in_the_file(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for _, line in scan(text).definitions)

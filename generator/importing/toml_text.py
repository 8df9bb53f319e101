"""The text of an imported manifest: every value with the key or the default that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from generator.errors import shown
from generator.importing.boards import Chosen, Misfit
from generator.importing.understand import Understood

ON_A_LINE = 8  # numbers of a long list
LONGEST_COMMENT = 200


def text_of(name: str, source: str, understood: Understood, chosen: Iterable[Chosen], misfits: Iterable[Misfit]) -> str:
    """The manifest as TOML text."""
    lines = [f"# Written by codegen import from {source}", *(f"# {_plain(note)}" for note in understood.notes)]
    if understood.unread:
        lines.append(f"# Keys that nothing here depends on: {_plain(', '.join(understood.unread))}")
    lines += [f"# Not for {one.target}: {_plain(one.rule, 400)}" for one in misfits]
    lines += ["", f"name = {shown(name)}", f"family = {shown(understood.family)} # of {understood.config_class}"]
    lines.append(f"source = {_string(source)}")
    if understood.wrapper is not None:
        lines.append(f"wrapper = {_string(understood.wrapper)} # whose checkpoint holds the weights")
    lines += ["", "[model]"]
    tables = ("", "rope", "local_rope", "experts", "gated_delta_net")
    for header in tables:
        table = getattr(understood, header or "model")
        if header and table:
            lines += ["", f"[model.{header}]"]
        for key, entry in table.items():
            lines += _pair(key, entry.value, entry.note)
    for one in chosen:
        lines += ["", f"[target.{one.target}] # {_plain(one.summary)}", *_table(one.table, one.notes)]
        lines += ["", f"[target.{one.target}.dtypes]", *_table(one.table["dtypes"], one.notes)]
    return "\n".join(lines) + "\n"


def _table(table: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict):
            yield from _pair(key, value, notes.get(key, ""))


def _pair(key: str, value: Any, note: str) -> Iterator[str]:
    comment = f" # {_plain(note)}" if note else ""
    if not isinstance(value, list) or len(value) <= ON_A_LINE:
        yield f"{key} = {_value(value)}{comment}"
        return
    yield f"{key} = [{comment}"
    for start in range(0, len(value), ON_A_LINE):
        yield f"    {', '.join(map(_value, value[start : start + ON_A_LINE]))},"
    yield "]"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _string(value) if isinstance(value, str) else shown(value)


def _string(value: str) -> str:
    return f'"{value}"'  # manifests take no text with quotes or backslashes


def _plain(text: str, longest: int = LONGEST_COMMENT) -> str:
    """Text that can stand in a comment: on one line, printable, not without end."""
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= longest else f"{printable[:longest]}... ({len(printable)} characters)"

"""Call signatures of the device library, as recorded in signatures.json, and whether a call fits one of them.

The library's binding layer decides how arguments meet parameters; the rules here are its rules, as far as they can be
told from a signature and from values that stand literally in the text.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from struct import pack, unpack
from typing import Any

RECORDED = Path(__file__).parent / "signatures.json"
POSITIONAL, EITHER, KEYWORD = KINDS = ("positional", "positional_or_keyword", "keyword")


def _is_float32(value: Any) -> bool:
    return isinstance(value, float) and unpack("f", pack("f", value))[0] == value


# Which literals a type takes. `float32` is a parameter that refuses what rounding to single precision would change. The
# library lets a bool pass for a number in places; nobody means that.
SCALARS = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "float32": _is_float32,
    "str": lambda value: isinstance(value, str),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature; `kind` is one of KINDS, `type` is as the library prints it, shortened."""

    name: str
    kind: str
    required: bool
    type: str


@dataclass(frozen=True)
class Signature:
    """One form in which an operation can be called, and the type that it returns."""

    parameters: tuple[Parameter, ...]
    returns: str


@dataclass(frozen=True)
class Table:
    """What one version of the library offers, by dotted names as they are written in emitted modules.

    `names` gives the type of each value that is read and not called. `types` gives for each type that signatures ask
    for the other types that the library makes one from; a type that is not in it takes anything.
    """

    version: str
    calls: Mapping[str, tuple[Signature, ...]]
    names: Mapping[str, str]
    types: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Instance:
    """A value of which only the library's type is known."""

    type: str

    def __str__(self) -> str:
        return f"a {self.type}"


@dataclass(frozen=True)
class Unknown:
    """A value that the text does not tell; it fits everywhere."""


@dataclass(frozen=True)
class Argument:
    """One argument of a call. `keyword` is None for one given by position, `line` where it stands in the text."""

    keyword: str | None
    value: Any  # a literal, a list or tuple of such values, an Instance, or Unknown
    line: int = 0


@dataclass(frozen=True)
class Problem:
    """Why a call fits no signature; `line` is 0 where no one argument is to blame."""

    line: int
    message: str


def read(path: Path = RECORDED) -> Table:
    """The recorded table. The committed one is read once in a process."""
    return _read(path)


@cache
def _read(path: Path) -> Table:
    data = json.loads(path.read_text(encoding="utf-8"))
    calls = {
        name: tuple(
            Signature(tuple(Parameter(**parameter) for parameter in form["parameters"]), form["returns"])
            for form in forms
        )
        for name, forms in data["calls"].items()
    }
    names = {name: kind for kind, known in data["names"].items() for name in known}
    return Table(data["ttnn"], calls, names, {kind: tuple(sources) for kind, sources in data["types"].items()})


def written(table: Table) -> str:
    """The table as JSON that people read and compare: names in order, one line for each form of a call."""

    def group(entries: Mapping[str, str]) -> str:
        return "{\n" + ",\n".join(f"  {json.dumps(name)}: {entries[name]}" for name in sorted(entries)) + "\n }"

    def forms(signatures: Iterable[Signature]) -> str:
        return "[\n   " + ",\n   ".join(json.dumps(asdict(signature)) for signature in signatures) + "\n  ]"

    by_type: dict[str, list[str]] = {}
    for name, kind in sorted(table.names.items()):
        by_type.setdefault(kind, []).append(name)
    sections = {
        "ttnn": json.dumps(table.version),
        "calls": group({name: forms(signatures) for name, signatures in table.calls.items()}),
        "names": group({kind: json.dumps(names) for kind, names in by_type.items()}),
        "types": group({kind: json.dumps(sources) for kind, sources in table.types.items()}),
    }
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {text}" for name, text in sections.items()) + "\n}\n"


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown name; empty where nothing known is near it."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


@lru_cache(maxsize=None)
def _alternatives(text: str) -> tuple[str, ...]:
    """The types that a union joins."""
    return tuple(_split(text, " | "))


@lru_cache(maxsize=None)
def _generic(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and arguments of a type such as Sequence[int]."""
    head, bracket, rest = text.partition("[")
    return head, tuple(_split(rest[:-1], ", ")) if bracket else ()


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts of a text between separators that stand outside brackets."""
    depth, start = 0, 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth == 0 and text.startswith(separator, index):
            yield text[start:index]
            start = index + len(separator)
    yield text[start:]


def accepts(kind: str, value: Any, types: Mapping[str, tuple[str, ...]], convert: bool = True) -> bool:
    """Whether a parameter of type `kind` takes a value; with `convert` also by making such a thing from the value."""
    return isinstance(value, Unknown) or any(_accepts(one, value, types, convert) for one in _alternatives(kind))


def _accepts(kind: str, value: Any, types: Mapping[str, tuple[str, ...]], convert: bool) -> bool:
    if kind in SCALARS:
        return SCALARS[kind](value)
    head, items = _generic(kind)
    if head in ("Sequence", "list", "tuple"):
        if not isinstance(value, list if head == "list" else (list, tuple)):
            return False
        expected = items if head == "tuple" else items * len(value)
        return len(expected) == len(value) and all(
            accepts(one, item, types, convert) for one, item in zip(expected, value)
        )
    if isinstance(value, Instance) and value.type == kind:
        return True
    if head == "Set":
        return False  # there is no literal that the text would tell
    if kind not in types:
        return convert  # nothing is known of it: only a conversion must not rest on that
    return convert and any(accepts(source, value, types, convert=False) for source in types[kind])


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Instance) else repr(value)


def problems(
    operation: str, signature: Signature, arguments: Sequence[Argument], types: Mapping[str, tuple[str, ...]]
) -> list[Problem]:
    """Everything that keeps a call from fitting one signature; empty where it fits."""
    found: list[Problem] = []
    bound: dict[str, Argument] = {}
    by_position = [parameter for parameter in signature.parameters if parameter.kind != KEYWORD]
    by_name = {parameter.name: parameter for parameter in signature.parameters if parameter.kind != POSITIONAL}
    positional = [argument for argument in arguments if argument.keyword is None]
    for parameter, argument in zip(by_position, positional):
        bound[parameter.name] = argument
    if len(positional) > len(by_position):
        named = ", ".join(parameter.name for parameter in signature.parameters if parameter.kind == KEYWORD)
        rule = f"{operation} takes {len(by_position)} arguments by position and gets {len(positional)}"
        more = f"; others are given by name: {named}" if named else ""
        found.append(Problem(positional[len(by_position)].line, rule + more))
    for argument in arguments:
        name = argument.keyword
        if name is None:
            continue
        if name not in by_name:
            only = any(parameter.name == name for parameter in by_position)
            reason = f"takes {name} by position only" if only else f'has no argument "{name}"{nearest(name, by_name)}'
            found.append(Problem(argument.line, f"{operation} {reason}"))
        elif name in bound:
            found.append(Problem(argument.line, f"{operation} gets its argument {name} twice"))
        else:
            bound[name] = argument
    for parameter in signature.parameters:
        if parameter.name not in bound:
            if parameter.required:
                found.append(Problem(0, f"{operation} lacks its argument {parameter.name} ({parameter.type})"))
            continue
        argument = bound[parameter.name]
        if not accepts(parameter.type, argument.value, types):
            rule = f"{operation} takes {parameter.type} for {parameter.name}, not {_shown(argument.value)}"
            found.append(Problem(argument.line, rule))
    return found


def refused(operation: str, arguments: Sequence[Argument], table: Table) -> list[Problem]:
    """What keeps a call of a recorded operation from fitting the signature that it comes nearest to; empty where it
    fits one of them."""
    every = [problems(operation, signature, arguments, table.types) for signature in table.calls[operation]]
    best = min(every, key=len)
    if not best or len(every) == 1:
        return best
    return [Problem(one.line, f"{one.message} (nearest of its {len(every)} forms)") for one in best]

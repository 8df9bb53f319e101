"""Strict tables: the pydantic base of every file that is read, and pydantic's complaints in our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from generator import unsupported
from generator.errors import Diagnostic, ManifestError, did_you_mean, shown
from generator.families import FAMILIES
from generator.toml_source import Source

EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
}


class Table(BaseModel):
    """A TOML table: no key is ignored, no value is converted, nothing changes afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


Element = TypeVar("Element")
Array = Annotated[tuple[Element, ...], Field(strict=False, min_length=1)]  # TOML arrays arrive as lists
AnyArray = Annotated[tuple[Element, ...], Field(strict=False)]  # which may be empty


def refuse(rule: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{rule}", {"rule": rule, "hint": hint})


def between(low: float, high: float) -> Any:
    return Field(ge=low, le=high)


def one_of(*choices: int) -> AfterValidator:
    """An integer out of a few."""

    def check(value: int) -> int:
        if value not in choices:
            listed = ", ".join(map(str, choices))
            raise refuse(f"must be one of {listed}", f"nearest legal value {nearest(value, choices)}")
        return value

    return AfterValidator(check)


def named(*choices: str, rule: Callable[[str], str | None] = lambda value: None) -> AfterValidator:
    """A string out of a few; `rule` may say why a wrong one that it recognises is refused."""

    def check(value: str) -> str:
        if value in choices:
            return value
        reason = rule(value)
        if len(choices) == 1:
            raise refuse(reason or "is not built", f'only "{choices[0]}" is')
        if reason is not None:
            raise refuse(reason, f"built: {', '.join(choices)}")
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise refuse(f"must be {listed}", did_you_mean(value, choices))

    return AfterValidator(check)


def nearest(value: float, choices: Sequence[int]) -> int:
    return min(choices, key=lambda choice: (abs(choice - value), choice))


TableType = TypeVar("TableType", bound=Table)


def validate(table: type[TableType], data: dict[str, Any], path: str, source: Source) -> TableType:
    """Data of a TOML file -> its table. Raises ManifestError with every mistake that stands in the file."""
    try:
        return table.model_validate(data)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    refused_parents = {mistake["loc"][:-1] for mistake in mistakes}
    raise ManifestError(
        _diagnostic(table, mistake, path, source)
        for mistake in mistakes
        # pydantic counts only the entries that passed: a refused entry also makes its array short
        if mistake["type"] != "too_short" or mistake["loc"] not in refused_parents
    )


def dotted(key: Sequence[str | int]) -> str:
    """("target", "n150", "lengths", 2) -> target.n150.lengths[2]"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return "".join(character if character.isprintable() else "?" for character in text.removeprefix("."))


def _diagnostic(table: type[Table], mistake: Any, path: str, source: Source) -> Diagnostic:
    key = tuple(mistake["loc"])
    value = "" if mistake["type"] == "missing" or isinstance(mistake["input"], dict) else shown(mistake["input"])
    rule, hint = _explain(table, mistake, key)
    return Diagnostic(path, source.line(key), dotted(key), value, rule, hint)


def _explain(table: type[Table], mistake: Any, key: tuple[str | int, ...]) -> tuple[str, str]:
    kind, given, context = mistake["type"], mistake["input"], mistake.get("ctx", {})
    if kind == "refused":
        return context["rule"], context["hint"]
    if kind == "missing":
        where = f"[{dotted(key[:-1])}]" if len(key) > 1 else "the top of the file"
        return "is missing", f"add {key[-1]} to {where}"
    if kind == "extra_forbidden":
        feature = unsupported.feature(str(key[-1]))
        if feature is not None:
            return f"asks for {feature}, which is not built", f"families built: {', '.join(FAMILIES)}"
        return "unknown key", did_you_mean(str(key[-1]), _fields(table, key[:-1]), list_all=False)
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']:.12g}", f"nearest legal value {context['ge']:.12g}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']:.12g}", f"nearest legal value {context['le']:.12g}"
    if kind == "finite_number":
        return "must be finite", "write a plain number"
    if kind == "too_short":
        least, given_length = context["min_length"], context["actual_length"]
        entries = "entry" if least == 1 else "entries"
        return f"must have at least {least} {entries}, not {given_length}", "add the missing"
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries, not {len(given)}", "leave out the last"
    if kind in EXPECTED:
        return f"must be {EXPECTED[kind]}, not {_kind(given)}", _converted(kind, given)
    raise AssertionError(f"no words for {kind}: {mistake['msg']}")


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def _converted(kind: str, given: object) -> str:
    """What the author most likely meant by a value of the wrong type."""
    if kind in ("int_type", "int_from_float", "float_type") and isinstance(given, (str, float)):
        try:
            meant = float(given)
        except ValueError:
            return ""
        if kind == "float_type" or meant.is_integer():
            return f"write {meant if kind == 'float_type' else int(meant)}"
    if kind == "string_type" and isinstance(given, (int, float)):
        return f'write "{shown(given)}"'
    if kind == "bool_type" and str(given).lower() in ("true", "false", "1", "0"):
        return f"write {'true' if str(given).lower() in ('true', '1') else 'false'}"
    return ""


def _fields(table: type[Table], key: Sequence[str | int]) -> tuple[str, ...]:
    """The keys that the table at a path may hold."""
    steps: Iterator[str | int] = iter(key)
    for step in steps:
        annotation = table.model_fields[str(step)].annotation
        arguments = get_args(annotation)
        if str in arguments:
            next(steps)  # the key of a table of tables
        table = next(kind for kind in (annotation, *arguments) if isinstance(kind, type) and issubclass(kind, Table))
    return tuple(table.model_fields)

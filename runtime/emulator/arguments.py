"""Wrong types of arguments are refused before an operation begins, as the library's own bindings refuse them."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Hold every argument of a call to its annotation: TypeError with the argument's name where it is of another type.

    An int is a float where one is asked for, and a bool is neither. What is in a sequence is not looked at. Annotations
    must be names that exist when the function is defined.
    """
    hints = typing.get_type_hints(function)
    accepted = {name: _accepted(hints[name]) for name in inspect.signature(function).parameters}
    by_place = tuple(accepted.items())

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        for (name, kinds), value in zip(by_place, arguments):
            if not (isinstance(value, kinds) and _is_sound(value, kinds)):
                raise _refusal(function.__name__, name, hints[name], value)
        for name, value in named.items():
            kinds = accepted.get(name)
            if kinds is not None and not (isinstance(value, kinds) and _is_sound(value, kinds)):
                raise _refusal(function.__name__, name, hints[name], value)
        return function(*arguments, **named)

    return typing.cast(Function, called)


def _accepted(hint: Any) -> tuple[type, ...]:
    """The classes that an annotation stands for."""
    if hint is Any:
        return (object,)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(kind for part in typing.get_args(hint) for kind in _accepted(part))
    if hint is float:
        return (float, int)
    return (typing.get_origin(hint) or hint,)


def _is_sound(value: Any, kinds: tuple[type, ...]) -> bool:
    """Refuses what isinstance lets pass: text as a sequence, a bool as a number."""
    return object in kinds or not isinstance(value, (str, bool)) or type(value) in kinds


def _refusal(function: str, name: str, hint: Any, value: Any) -> TypeError:
    wanted = hint.__name__ if isinstance(hint, type) else str(hint)
    return TypeError(
        f"{function}(): incompatible function arguments: {name}: expected a {wanted}, got {type(value).__name__}"
    )

"""The phases of a layer with a recurrent state, one function each: what may follow what, and which layers have them.

A phase takes what the one before it gives and nothing else, so that any other order is refused by name before an operation
runs. With PREFILL_DEBUG_SYNC set, the device is waited for after each phase, and an error names the phase and the tokens.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.backend import ttnn
from runtime.errors import LayerKindMismatch, PhaseFailed, PhaseOrder

DEBUG_SYNC = "PREFILL_DEBUG_SYNC"


@dataclass(frozen=True)
class Projected:
    """Of every token of a pass: what the convolution takes, the output gate, and how much the state decays and is updated."""

    mixed: Any  # [1, 1, tokens, queries | keys | values]
    gate: Any  # [1, 1, tokens, value heads x value dim]
    decay: Any  # [1, 1, tokens, value heads] in float32, the logarithm of a factor, 0 on padding
    update: Any  # [1, 1, tokens, value heads] in float32, 0 on padding


@dataclass(frozen=True)
class Convolved:
    """Queries, keys and values of each row by itself, behind the convolution."""

    rows: tuple[tuple[Any, Any, Any], ...]  # [1, tokens a row, heads x dim] each
    projected: Projected


@dataclass(frozen=True)
class Normed:
    """The same with queries and keys of unit length, queries scaled."""

    rows: tuple[tuple[Any, Any, Any], ...]
    projected: Projected


@dataclass(frozen=True)
class Recurred:
    """What the states gave for every token."""

    given: Any  # [rows x value heads, tokens a row, value dim] in float32
    projected: Projected


MADE_BY = {Projected: "project", Convolved: "convolve", Normed: "normalise", Recurred: "recur"}


def phase(
    of: str, takes: type | None = None, elsewhere: str = "refused"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A phase of layers of one kind. Its first argument is what the phase before gave, of the type `takes`; `layer` and
    `shape` among its parameters are the layer's weights and the pass.

    On a layer of another kind it is refused, or, with `elsewhere` "nothing", has no effect and returns its first argument.
    """

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(run).parameters)
        at_layer, at_shape = parameters.index("layer"), parameters.index("shape")

        @functools.wraps(run)
        def checked(*arguments: Any) -> Any:
            first, kind, shape = arguments[0], arguments[at_layer].kind, arguments[at_shape]
            if kind != of:
                if elsewhere == "nothing":
                    return first
                raise LayerKindMismatch(f"{run.__name__}: only implemented for layers of kind {of}; this one is {kind}")
            if takes is not None and type(first) is not takes:
                raise PhaseOrder(
                    f"{run.__name__} takes what {MADE_BY[takes]} gives, {takes.__name__}, and was given "
                    f"{type(first).__name__}"
                )
            if not os.environ.get(DEBUG_SYNC):
                return run(*arguments)
            return _attributed(run, *arguments, tokens=shape.rows * shape.tokens)

        return checked

    return decorate


def _attributed(run: Callable[..., Any], *arguments: Any, tokens: int) -> Any:
    try:
        result = run(*arguments)
        ttnn.synchronize_device(_device(result))
        return result
    except Exception as error:
        raise PhaseFailed(f"{run.__name__} (tokens={tokens}): {error}") from error


def _device(result: Any) -> Any:
    """Of any tensor inside what a phase gave."""
    while not hasattr(result, "device"):
        result = result[0] if isinstance(result, tuple) else next(iter(vars(result).values()))
    return result.device()

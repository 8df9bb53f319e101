"""Which programs are compiled and which traces exist: identities and states, nothing that touches a device.

A trace's identity is its shape. Sampling, cached lengths, slots and the rows that are real are not part of it, and a
program is a body's digest with the ending that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runtime.errors import NotCompiled, RegistrationError, TraceCoverage
from runtime.staging import Persistent
from runtime.tables import Shape


class State(Enum):
    OPEN = "open"
    CAPTURING = "being captured"
    ACTIVE = "active"


@dataclass(frozen=True)
class Trace:
    """A recording: the device's id of it, its inputs, and the hidden rows that each replay writes anew.

    All three belong to the trace: they live until it is released and are in no result.
    """

    shape: Shape
    recording: Any
    inputs: Persistent
    hidden: Any


def name(shape: Shape) -> str:
    return f"{shape.variant} {shape.rows} x {shape.tokens}"


class Registry:
    """Programs, then traces, then neither: the order that keeps a replay from writing over a program or an input."""

    def __init__(self) -> None:
        self.state = State.OPEN
        self._programs: dict[tuple[str, str], Shape] = {}
        self._operations: dict[Shape, int] = {}
        self._traces: dict[Shape, Trace] = {}

    @property
    def programs(self) -> frozenset[tuple[str, str]]:
        """(body digest, ending) of everything compiled."""
        return frozenset(self._programs)

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(self._traces.values())

    def operations(self, shape: Shape) -> int:
        """Device operations of a shape's body, as warm-up counted them."""
        return self._operations[shape]

    def require_compilable(self, shape: Shape, ending: str) -> None:
        """Refuse a program that would have to be compiled while traces live or are being captured."""
        if self.state is not State.OPEN and (shape.digest, ending) not in self._programs:
            raise NotCompiled(
                f"{name(shape)} with {ending} is not compiled and the traces are {self.state.value}: its binary could "
                f"land where a replay writes; call cleanup(), warm_up() and capture() again"
            )

    def compiled(self, shape: Shape, ending: str) -> None:
        """A program ran. Refused where its digest already stands for another shape."""
        self.require_compilable(shape, ending)
        known = self._programs.setdefault((shape.digest, ending), shape)
        if known != shape:
            raise RegistrationError(f"the digest {shape.digest} stands for {name(known)} and for {name(shape)}")

    def is_counted(self, shape: Shape) -> bool:
        return shape in self._operations

    def counted(self, shape: Shape, operations: int) -> None:
        self._operations[shape] = operations

    def begin_capture(self, shapes: Iterable[Shape], programs: Iterable[tuple[str, str]]) -> None:
        """Close the set of programs. Refused unless every program and every shape's body is compiled."""
        if self.state is not State.OPEN:
            raise RegistrationError(f"traces are {self.state.value}; call cleanup() before capturing them again")
        missing = set(programs) - set(self._programs)
        uncounted = [shape for shape in shapes if shape not in self._operations]
        if missing or uncounted:
            raise NotCompiled(
                f"{len(missing)} of the module's programs are not compiled; call warm_up() before capture(), since a "
                f"program that is compiled while traces live could be overwritten by their replays"
            )
        self.state = State.CAPTURING

    def register(self, trace: Trace) -> None:
        """Add a captured trace. One shape has one trace, and one digest one shape."""
        if self.state is not State.CAPTURING:
            raise RegistrationError(
                f"{name(trace.shape)} cannot be registered while the registry is {self.state.value}"
            )
        if trace.shape in self._traces:
            raise RegistrationError(f"{name(trace.shape)} has a trace already")
        for shape in self._traces:
            if shape.digest == trace.shape.digest:
                raise RegistrationError(
                    f"the digest {shape.digest} stands for {name(shape)} and for {name(trace.shape)}"
                )
        self._traces[trace.shape] = trace

    def activate(self) -> None:
        self.state = State.ACTIVE

    def lookup(self, shape: Shape) -> Trace:
        return self._traces[shape]

    def covers(self, shape: Shape) -> bool:
        return self.state is State.ACTIVE and shape in self._traces

    def require_coverage(self, shapes: Iterable[Shape]) -> None:
        """Refuse shapes without a trace, all of them by name. Nothing falls back to an eager run."""
        missing = sorted({name(shape) for shape in shapes if not self.covers(shape)})
        if missing:
            raise TraceCoverage(f"no trace is captured for {', '.join(missing)}; capture it, or run with traced=False")

    def forget_traces(self) -> tuple[Trace, ...]:
        """Open again. Returns the traces, which the caller releases."""
        traces, self._traces = tuple(self._traces.values()), {}
        self.state = State.OPEN
        return traces

    def forget_programs(self) -> None:
        self._programs.clear()
        self._operations.clear()

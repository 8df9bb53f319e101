"""The device library as an emitted module sees it while it is recorded: every call says which emitted line it stands
on.

The module's own name for the library is bound to a `Recorder`, which passes calls on, checks what the library does
not check, and puts marks into the graph that is being captured (`graph.MARK`). Nothing of a call is kept but text
and numbers: a tensor that a record held would live longer than in the pass that is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from runtime.legality.graph import MARK
from runtime.legality.programs import described
from runtime.legality.silent import Arguments, broken_rules

CREATES, FREES = "ttnn.empty", "ttnn.deallocate"


@dataclass(frozen=True)
class Call:
    """One call of the library by the emitted module. `role` names the weight that the call takes, `program` tells the
    configuration that it was given; both are empty where there is none."""

    name: str
    function: str
    line: int
    role: str
    program: str


@dataclass(frozen=True)
class Finding:
    """A call that the library accepts and that is wrong all the same."""

    function: str
    line: int
    message: str


class Namespace:
    """A module of the library: functions are wrapped, everything else is handed out as it is."""

    def __init__(self, library: ModuleType, prefix: str, around: Callable[..., Any]) -> None:
        self._library, self._prefix, self._around = library, prefix, around

    def __getattr__(self, name: str) -> Any:
        value, full = getattr(self._library, name), f"{self._prefix}.{name}"
        if isinstance(value, ModuleType):
            value = Namespace(value, full, self._around)
        elif callable(value) and not isinstance(value, type):
            value = partial(self._around, full, value)
        self.__dict__[name] = value
        return value


class Layered(list):
    """A list with one entry for each layer: whoever takes an entry is in that layer, whoever is past the last is in
    none."""

    def __init__(self, entries: Sequence[Any], enter: Callable[[int | None], None]) -> None:
        super().__init__(entries)
        self._enter = enter

    def __iter__(self) -> Iterator[Any]:
        for index, entry in enumerate(super().__iter__()):
            self._enter(index)
            yield entry
        self._enter(None)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self._enter(range(len(self))[index])
        return super().__getitem__(index)


class Recorder:
    """Records the calls of one emitted module. `path` is the name that the module's code has in frames, `roles` the
    name of each weight by the identity of its tensor, `alignment` the tokens that every start of a chunk is a
    multiple of."""

    def __init__(self, library: ModuleType, path: str, roles: dict[int, str], alignment: int) -> None:
        self.library = Namespace(library, "ttnn", self._around)
        self.calls: list[Call] = []
        self.findings: list[Finding] = []
        self._graph, self._path, self._roles, self._alignment = library.graph, path, roles, alignment
        self._layer: int | None = None
        self._made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._held: list[Any] = []

    def reset(self) -> None:
        self.calls, self.findings, self._layer, self._made = [], [], None, []

    def hold_outputs(self) -> None:
        """Make now what the last run asked `empty` for, and hand it out in the next one, in order, never freed.

        A capture without dispatch gives every tensor the address 0, and an operation that is given its output refuses one at
        an address of its inputs. Freed in such a capture, real memory would be lost.
        """
        self._held = [self.library.empty(*args, **kwargs) for args, kwargs in self._made]

    def release_outputs(self) -> None:
        self._held = []

    def _holds(self, tensor: Any) -> bool:
        """Whether a tensor lies in the memory of one that is held: an operation returns its output as another object."""
        return bool(self._held) and tensor.buffer_address() in [one.buffer_address() for one in self._held]

    def mark(self, kind: str, value: object) -> None:
        """Say in the graph what the next nodes belong to."""
        self._graph.track_function_start(f"{MARK}{kind}:{value}")
        self._graph.track_function_end()

    def stage(self, name: str) -> None:
        self.mark("stage", name)
        self.enter(None)

    def enter(self, layer: int | None) -> None:
        if layer != self._layer:
            self._layer = layer
            self.mark("layer", layer)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Mark every emitted line that runs: slow, for events outside of any call that could be wrapped."""

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename != self._path:
                return None
            if event == "line":
                self.mark("line", frame.f_lineno)
            return follow

        before = sys.gettrace()
        sys.settrace(follow)
        try:
            yield
        finally:
            sys.settrace(before)

    def _around(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        frame = self._emitted(sys._getframe(1))
        if frame is None:
            return function(*args, **kwargs)
        line, inside = frame.f_lineno, frame.f_code.co_name
        role = next((self._roles[id(one)] for one in (*args, *kwargs.values()) if id(one) in self._roles), "")
        program = kwargs.get("program_config") or kwargs.get("config")
        for message in broken_rules(Arguments(name, args, kwargs), self._alignment):
            self.findings.append(Finding(inside, line, message))
        index = len(self.calls)
        self.calls.append(Call(name, inside, line, role, described(program) if program is not None else ""))
        self._graph.track_function_start(f"{MARK}call:{index}")
        try:
            if name == FREES and self._holds(args[0]):
                return None
            if name != CREATES:
                return function(*args, **kwargs)
            self._made.append((args, kwargs))
            return self._held[len(self._made) - 1] if self._held else function(*args, **kwargs)
        finally:
            self._graph.track_function_end()

    def _emitted(self, frame: FrameType | None) -> FrameType | None:
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        return frame

"""Values of a configuration with their origin: which key gave each, or which default of which class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from generator.errors import Diagnostic, ManifestError, shown
from generator.schema import dotted
from generator.toml_source import Key, Source


@dataclass(frozen=True)
class Entry:
    """One value of a manifest. `key` is where it stands (or would stand) in the configuration, `note` says how it came about."""

    value: Any
    key: Key
    note: str


class Fields:
    """Reads the keys of one object of a configuration and collects what is wrong with them.

    `data` is the object at the path `at`; `defaults` is what the class called `owner` gives to an absent key.
    """

    def __init__(
        self, path: str, source: Source, at: Key, data: Mapping[str, Any], owner: str, defaults: Mapping[str, Any]
    ) -> None:
        self.path, self.source, self.at, self.data = path, source, at, data
        self.owner, self.defaults = owner, defaults
        self.problems: list[Diagnostic] = []
        self.read: set[Key] = set()

    def inside(self, *names: str, data: Mapping[str, Any], defaults: Mapping[str, Any]) -> Fields:
        """Fields of an object within this one, which share its problems."""
        inner = Fields(self.path, self.source, (*self.at, *names), data, self.owner, defaults)
        inner.problems, inner.read = self.problems, self.read
        return inner

    def key(self, name: str) -> Key:
        return (*self.at, name)

    def raw(self, name: str) -> Any:
        """The value as it stands; None for null and for an absent key."""
        self.read.add(self.key(name))
        return self.data.get(name)

    def lacking(self, name: str) -> str:
        """How a key says nothing: an absent key is not a null one."""
        return f"{dotted(self.key(name))} = null" if name in self.data else f"{dotted(self.key(name))} absent"

    def refuse(self, name: str, rule: str, hint: str) -> None:
        key = self.key(name)
        text = _shown(self.data[name]) if name in self.data else ""
        self.problems.append(Diagnostic(self.path, self.source.line(key), dotted(key), text, rule, hint))

    def refuse_element(self, name: str, index: int, value: object, rule: str, hint: str) -> None:
        key = (*self.key(name), index)
        self.problems.append(Diagnostic(self.path, self.source.line(key), dotted(key), _shown(value), rule, hint))

    def stop(self) -> None:
        """Raises ManifestError if anything read so far is refused."""
        if self.problems:
            raise ManifestError(dict.fromkeys(self.problems))

    def absent(self, name: str) -> Entry:
        return Entry(
            self.defaults[name], self.key(name), f"absent, default {_shown(self.defaults[name])} of {self.owner}"
        )

    def value(self, name: str, kind: str, accepts: Callable[[Any], bool], *, null: bool = False) -> Entry:
        """The value of a key: its default where it is absent; None where it is null and null means something."""
        given = self.raw(name)
        if name not in self.data:
            if name not in self.defaults:
                self.refuse(name, "is missing", f"add it: {self.owner} has no default")
                return Entry(None, self.key(name), "")
            return self.absent(name)
        if accepts(given) or (null and given is None):
            written = " = null" if given is None else ""
            return Entry(given, self.key(name), f"{dotted(self.key(name))}{written}")
        default = self.defaults.get(name)
        hint = f"leave it out for the default {_shown(default)}" if default is not None else f"write {kind}"
        self.refuse(name, f"must be {kind}", hint)
        return Entry(default, self.key(name), "")

    def integer(self, name: str, *, null: bool = False) -> Entry:
        return self.value(name, "an integer", lambda given: type(given) is int, null=null)

    def number(self, name: str, *, null: bool = False) -> Entry:
        entry = self.value(name, "a number", lambda given: type(given) in (int, float), null=null)
        return entry if entry.value is None else replace(entry, value=float(entry.value))

    def boolean(self, name: str) -> Entry:
        return self.value(name, "true or false", lambda given: type(given) is bool)

    def text(self, name: str) -> Entry:
        return self.value(name, "a string", lambda given: type(given) is str)


def _shown(value: object) -> str:
    """A value as the configuration's author wrote it, cut where it is long."""
    return "null" if value is None else shown(value)

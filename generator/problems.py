"""What is wrong with a manifest, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A broken rule at a key of a manifest; `value` is as the author wrote it."""

    key: tuple[str | int, ...]
    value: str
    rule: str
    hint: str

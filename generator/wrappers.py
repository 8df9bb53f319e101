"""Models of images and text whose text model can be built: how their checkpoints name its tensors.

A manifest names the wrapper that its model's checkpoint is of; the module's weight tables then state the names in there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from generator.errors import shown
from generator.rules import Problem

if TYPE_CHECKING:
    from generator.kinds.rows import WeightRow


@dataclass(frozen=True)
class Wrapper:
    """`prefix` stands before the names of the text model, which is of `family`."""

    family: str
    prefix: str


WRAPPERS = {  # by the model_type of the published configuration
    "gemma3": Wrapper("gemma3", "language_model."),
    "mistral3": Wrapper("mistral", "language_model."),
    "qwen3_5": Wrapper("qwen3_5", "language_model."),
    "qwen3_5_moe": Wrapper("qwen3_5_moe", "language_model."),
}


def problem(name: str | None, family: str) -> Problem | None:
    """What is wrong with the wrapper that a manifest names, None where there is none or it holds models of the family."""
    if name is None or WRAPPERS[name].family == family:
        return None
    hint = f'write family = "{WRAPPERS[name].family}", or leave wrapper out'
    return Problem(("wrapper",), shown(name), f"holds no model of the family {family}", hint)


def published(name: str | None, rows: Iterable[WeightRow]) -> tuple[WeightRow, ...]:
    """Rows of a weight table with the names that the checkpoint of a wrapper has for their sources."""
    prefix = WRAPPERS[name].prefix if name else ""

    def named(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(prefix + source for source in sources)

    return tuple(replace(row, sources=named(row.sources), otherwise=named(row.otherwise)) for row in rows)

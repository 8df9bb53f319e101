"""The operations of one decoder layer as the emitted body runs them: those of its parts, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator import kinds
from generator.steps import Step, Tensor
from generator.tiles import tiles

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import Resolved
    from generator.scores import Scores
    from generator.shapes import PassShape

    Cut = Attention | Scores  # how attention is cut; None where only its tensors are asked for


def layer_steps(resolved: Resolved, shape: PassShape, chunks: Cut | None, kind: str) -> tuple[Step, ...]:
    """All operations of one layer of a kind in a pass of `shape`; `chunks` is how attention is cut."""
    return tuple(step for steps in part_steps(resolved, shape, chunks, kind) for step in steps)


def part_steps(resolved: Resolved, shape: PassShape, chunks: Cut | None, kind: str) -> tuple[tuple[Step, ...], ...]:
    """The same for each part by itself: each turns `hidden` into `summed`, which is the next one's hidden."""
    size = shape.token_tiles * tiles(resolved.hidden)
    hidden, summed = (Tensor(name, size, resolved.dtypes.activation) for name in ("hidden", "summed"))
    parts = kinds.layer_parts(resolved, kind)
    return tuple(tuple(part.steps(resolved, shape, chunks, hidden, summed, kind)) for part in parts)

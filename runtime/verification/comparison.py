"""How alike two tensors are. A value that is not finite never agrees with anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Agreement:
    """`pcc` is Pearson's correlation over all elements, `max_relative_error` is max|a - b| / max|b|."""

    pcc: float
    max_relative_error: float


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    """max|ours - theirs| / max|theirs|; infinite where either is not finite. Shapes must be equal."""
    _require_equal_shapes(ours, theirs)
    ours, theirs = ours.double(), theirs.double()
    difference, size = (ours - theirs).abs().max().item(), theirs.abs().max().item()
    if not (math.isfinite(difference) and math.isfinite(size)):
        return math.inf
    if size == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / size


def pcc(ours: Tensor, theirs: Tensor) -> float:
    """Pearson's correlation over all elements, -1 to 1. Constant or non-finite input correlates with nothing: 0."""
    _require_equal_shapes(ours, theirs)
    ours, theirs = (tensor.double().flatten() - tensor.double().mean() for tensor in (ours, theirs))
    norm = (ours.norm() * theirs.norm()).item()
    correlation = torch.dot(ours, theirs).item() / norm if norm else 0.0
    return correlation if math.isfinite(correlation) else 0.0


def agreement(ours: Tensor, theirs: Tensor) -> Agreement:
    return Agreement(pcc(ours, theirs), relative_error(ours, theirs))


def worst_blocks(ours: Tensor, theirs: Tensor, block_size: int) -> Agreement:
    """The lowest correlation and the largest relative error of any key-value block of `[heads, tokens, head_dim]`.

    Each block is measured by itself, so that one that is misplaced or was never written cannot hide among the others.
    """
    _require_equal_shapes(ours, theirs)
    blocks = [agreement(*pair) for pair in zip(ours.split(block_size, dim=1), theirs.split(block_size, dim=1))]
    return Agreement(min(block.pcc for block in blocks), max(block.max_relative_error for block in blocks))


def likeliest(logits: Tensor, count: int) -> list[int]:
    """Token ids of the `count` largest of `[vocabulary]`, largest first."""
    return logits.topk(min(count, len(logits))).indices.tolist()


def _require_equal_shapes(ours: Tensor, theirs: Tensor) -> None:
    if ours.shape != theirs.shape:
        raise ValueError(f"cannot compare tensors of shapes {tuple(ours.shape)} and {tuple(theirs.shape)}")

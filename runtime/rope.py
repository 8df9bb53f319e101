"""The tables that the body gathers rotary rows from, computed once when weights are loaded."""

from __future__ import annotations

import math

import torch

from runtime.errors import ModuleError
from runtime.tables import Rope


def inverse_frequencies(rope: Rope) -> torch.Tensor:
    """Turning rates in radians per position, one for each pair of dimensions: float64 [dimensions / 2].

    "default": theta ** (-2i / dimensions), RoFormer (arXiv 2104.09864). "llama3": as Llama 3.1 published it,
    wavelengths above original_context / low_frequency_factor are stretched by `factor`, those below original_context /
    high_frequency_factor stay, and those between are interpolated by their place between the two bounds.
    """
    exponents = torch.arange(0, rope.dimensions, 2, dtype=torch.float64) / rope.dimensions
    plain = torch.tensor(rope.theta, dtype=torch.float64) ** -exponents
    if rope.kind == "default":
        return plain
    if rope.kind != "llama3":
        raise ModuleError(f"rope kind {rope.kind!r} is not known; the kinds are default, llama3")
    turns = rope.original_context * plain / (2 * math.pi)
    share = (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor)
    stretched = plain / rope.factor
    return torch.where(
        turns < rope.low_frequency_factor,
        stretched,
        torch.where(turns > rope.high_frequency_factor, plain, torch.lerp(stretched, plain, share)),
    )


def angles(rope: Rope, context: int) -> torch.Tensor:
    """Angles float32 [context, dimensions / 2]. The product is rounded to float32 because published models were trained
    so.
    """
    return torch.arange(context, dtype=torch.float32)[:, None] * inverse_frequencies(rope).to(torch.float32)


def half_split(table: torch.Tensor) -> torch.Tensor:
    """Columns for pairs (i, i + dimensions / 2)."""
    return torch.cat((table, table), dim=-1)


def interleaved(table: torch.Tensor) -> torch.Tensor:
    """Columns for pairs (2i, 2i + 1)."""
    return table.repeat_interleave(2, dim=-1)


def interleave_pairs(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder the leading dimension, heads x head_dim, within each head from pairs (i, i + head_dim / 2) to pairs (2i,
    2i + 1).
    """
    split = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return split.transpose(1, 2).reshape(rows.shape)


def pair_rotation() -> torch.Tensor:
    """The tile that turns (a, b) of each interleaved pair into (-b, a) when rows are multiplied by it: float32 [1, 1,
    32, 32].
    """
    rotation = torch.zeros(1, 1, 32, 32)
    even = torch.arange(0, 32, 2)
    rotation[..., even, even + 1] = 1
    rotation[..., even + 1, even] = -1
    return rotation

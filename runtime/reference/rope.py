"""Rotary position embedding: frequencies, tables and the half-split rotation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runtime.tables import Rope


def frequencies(rope: Rope) -> Tensor:
    """Radians per position of each rotated pair, float64 `[dimensions / 2]`.

    "default" is theta^(-2i/d) (Su et al., RoFormer). "llama3" divides slow frequencies by `factor`, keeps fast ones and
    blends between them by how many of their turns fit the original context, as Llama 3.1 published it. Other kinds
    raise ValueError.
    """
    pair = torch.arange(0, rope.dimensions, 2, dtype=torch.float64)
    plain = rope.theta ** (-pair / rope.dimensions)
    if rope.kind == "default":
        return plain
    if rope.kind != "llama3":
        raise ValueError(f"rope kind {rope.kind!r} has no reference; the kinds are 'default' and 'llama3'")
    turns = rope.original_context * plain / (2 * math.pi)
    kept = (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor)
    kept = kept.clamp(0, 1)
    return plain * (kept + (1 - kept) / rope.factor)


def cos_sin(rope: Rope, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines at integer `positions` `[tokens]`, each `[tokens, dimensions]` with both halves alike.

    Angles are formed in `dtype`, since published models were trained and are served with float32 angles: at position
    4096 their rounding is worth 1e-4 rad, which a comparison to 1e-5 would notice.
    """
    angles = positions.to(dtype)[:, None] * frequencies(rope).to(dtype)[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `[heads, tokens, dimensions]`: element i and element i + dimensions/2 are one pair (a, b) -> (ac - bs, bc +
    as).
    """
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin

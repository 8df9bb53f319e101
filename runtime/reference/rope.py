"""Rotary position embedding: frequencies, tables and the half-split rotation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runtime.tables import Rope


def frequencies(rope: Rope, total: int) -> Tensor:
    """Radians per position of each rotated pair of a prompt of `total` tokens, float64 `[dimensions / 2]`.

    "default" is theta^(-2i/d) (Su et al., RoFormer). "linear" divides all by `factor` (Chen et al., 2023). "llama3"
    divides slow frequencies by `factor`, keeps fast ones and blends between them by how many of their turns fit the
    original context, as Llama 3.1 published it. "yarn" blends by the index of the pair (Peng et al., 2023). "longrope"
    divides each by its own factor out of the list for short or for long prompts (Ding et al., 2024). Other kinds raise
    ValueError.
    """
    pair = torch.arange(0, rope.dimensions, 2, dtype=torch.float64)
    plain = rope.theta ** (-pair / rope.dimensions)
    if rope.kind == "default":
        return plain
    if rope.kind == "longrope":
        factors = rope.long_factors if total > rope.original_context else rope.short_factors
        return plain / torch.as_tensor(factors, dtype=torch.float64)
    if rope.kind == "linear":
        kept = torch.zeros_like(plain)
    elif rope.kind == "llama3":
        turns = rope.original_context * plain / (2 * math.pi)
        kept = (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor)
    elif rope.kind == "yarn":
        fast, slow = _pair_that_turns(rope, rope.beta_fast), _pair_that_turns(rope, rope.beta_slow)
        if rope.truncate:
            fast, slow = math.floor(fast), math.ceil(slow)
        fast, slow = max(fast, 0), min(slow, rope.dimensions - 1)
        kept = 1 - (pair / 2 - fast) / (slow - fast if slow != fast else 1e-3)
    else:
        raise ValueError(f"rope kind {rope.kind!r} has no reference")
    kept = kept.clamp(0, 1)
    return plain * (kept + (1 - kept) / rope.factor)


def _pair_that_turns(rope: Rope, times: float) -> float:
    """The index, between pairs, of the frequency that makes so many whole turns over the original context: solved from
    original_context * theta^(-2i/d) = 2 pi * times.
    """
    return 0.5 * rope.dimensions * math.log(rope.original_context / (2 * math.pi * times), rope.theta)


def cos_sin(rope: Rope, positions: Tensor, dtype: torch.dtype, total: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines at integer `positions` `[tokens]` of a prompt of `total` tokens, each `[tokens, dimensions]`
    with both halves alike and times `attention_factor`.

    Angles are formed in `dtype`, since published models were trained and are served with float32 angles: at position
    4096 their rounding is worth 1e-4 rad, which a comparison to 1e-5 would notice.
    """
    angles = positions.to(dtype)[:, None] * frequencies(rope, total).to(dtype)[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    return rope.attention_factor * angles.cos(), rope.attention_factor * angles.sin()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the first columns of `[heads, tokens, head_dim]`, as many as the tables have: of these, element i and the
    one half of them further are one pair (a, b) -> (ac - bs, bc + as). The others pass.
    """
    turned, passed = heads.split((cos.shape[-1], heads.shape[-1] - cos.shape[-1]), dim=-1)
    first, second = turned.chunk(2, dim=-1)
    return torch.cat((turned * cos + torch.cat((-second, first), dim=-1) * sin, passed), dim=-1)

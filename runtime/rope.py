"""The tables that the body gathers rotary rows from, computed once when weights are loaded."""

from __future__ import annotations

import math

import torch

from runtime.errors import ModuleError
from runtime.tables import Rope

KINDS = ("default", "linear", "llama3", "yarn", "longrope")


def inverse_frequencies(rope: Rope, factors: tuple[float, ...] = ()) -> torch.Tensor:
    """Turning rates in radians per position, one for each pair of dimensions: float64 [dimensions / 2].

    "default": theta ** (-2i / dimensions), RoFormer (arXiv 2104.09864). "linear": that over `factor`. "llama3": as
    Llama 3.1 published it, wavelengths above original_context / low_frequency_factor are stretched by `factor`, those
    below original_context / high_frequency_factor stay, and those between are interpolated by their place between the
    two bounds. "yarn" (arXiv 2309.00071): see `_yarn_share`. "longrope" (arXiv 2402.13753): each pair by its own one of
    `factors`.
    """
    exponents = torch.arange(0, rope.dimensions, 2, dtype=torch.float64) / rope.dimensions
    plain = torch.tensor(rope.theta, dtype=torch.float64) ** -exponents
    if rope.kind == "default":
        return plain
    if rope.kind == "longrope":
        return plain / torch.tensor(factors, dtype=torch.float64)
    stretched = plain / rope.factor
    if rope.kind == "linear":
        return stretched
    if rope.kind == "yarn":
        return torch.lerp(plain, stretched, _yarn_share(rope))
    if rope.kind != "llama3":
        raise ModuleError(f"rope kind {rope.kind!r} is not known; the kinds are {', '.join(KINDS)}")
    turns = rope.original_context * plain / (2 * math.pi)
    share = (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor)
    return torch.where(
        turns < rope.low_frequency_factor,
        stretched,
        torch.where(turns > rope.high_frequency_factor, plain, torch.lerp(stretched, plain, share)),
    )


def _yarn_share(rope: Rope) -> torch.Tensor:
    """How far each pair is stretched, 0 to 1: float64 [dimensions / 2].

    Between the pair that turns `beta_fast` times over the original context and the one that turns `beta_slow` times it
    rises by equal steps. `truncate` widens these bounds to whole pairs.
    """
    pair = [
        rope.dimensions * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
        for turns in (rope.beta_fast, rope.beta_slow)
    ]
    low, high = (math.floor(pair[0]), math.ceil(pair[1])) if rope.truncate else pair
    low, high = max(low, 0), min(high, rope.dimensions - 1)
    width = high - low or 0.001  # as published, so that equal bounds are a step
    return ((torch.arange(rope.dimensions // 2, dtype=torch.float64) - low) / width).clamp(0, 1)


def angles(rope: Rope, context: int, factors: tuple[float, ...] = ()) -> torch.Tensor:
    """Angles float32 [context, dimensions / 2]. The product is rounded to float32 because published models were trained
    so.
    """
    rates = inverse_frequencies(rope, factors).to(torch.float32)
    return torch.arange(context, dtype=torch.float32)[:, None] * rates


def cosines(rope: Rope, turned: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Angles [positions, dimensions / 2] -> what the first of each pair of a head keeps: [positions, head_dim / 2]."""
    return _of_whole_head(turned.cos() * rope.attention_factor, head_dim, passed=1.0)


def sines(rope: Rope, turned: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Angles [positions, dimensions / 2] -> what each of a pair gives the other: [positions, head_dim / 2]."""
    return _of_whole_head(turned.sin() * rope.attention_factor, head_dim, passed=0.0)


def _of_whole_head(table: torch.Tensor, head_dim: int, passed: float) -> torch.Tensor:
    """A column for every pair of a head; pairs that are not turned come last."""
    return torch.nn.functional.pad(table, (0, head_dim // 2 - table.shape[1]), value=passed)


def half_split(table: torch.Tensor) -> torch.Tensor:
    """Columns for pairs (i, i + head_dim / 2)."""
    return torch.cat((table, table), dim=-1)


def interleaved(table: torch.Tensor) -> torch.Tensor:
    """Columns for pairs (2i, 2i + 1)."""
    return table.repeat_interleave(2, dim=-1)


def head_order(style: str, head_dim: int, dimensions: int) -> torch.Tensor:
    """Which published column of a head each device column holds: int64 [head_dim].

    Published heads pair column i with i + dimensions / 2 and leave what lies past `dimensions` as it is. The device
    turns every pair, (i, i + head_dim / 2) in style "half_split" and (2i, 2i + 1) in "interleaved": the published pairs
    come first, and the untouched columns are paired behind them, to be turned by nothing.
    """
    columns = torch.arange(head_dim)
    pairs = [part.chunk(2) for part in (columns[:dimensions], columns[dimensions:])]
    first, second = (torch.cat(side) for side in zip(*pairs))
    return torch.cat((first, second)) if style == "half_split" else torch.stack((first, second), dim=-1).flatten()


def reorder_heads(rows: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Reorder the leading dimension, heads x head_dim, within each head."""
    heads = rows.reshape(-1, len(order), *rows.shape[1:])
    return heads[:, order].reshape(rows.shape)


def pair_rotation() -> torch.Tensor:
    """The tile that turns (a, b) of each interleaved pair into (-b, a) when rows are multiplied by it: float32 [1, 1,
    32, 32].
    """
    rotation = torch.zeros(1, 1, 32, 32)
    even = torch.arange(0, 32, 2)
    rotation[..., even, even + 1] = 1
    rotation[..., even + 1, even] = -1
    return rotation

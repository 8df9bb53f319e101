"""Inputs of the gated delta rule, and its answer token by token in float64."""

from __future__ import annotations

from typing import NamedTuple

import torch

NORM_EPSILON = 1e-6


class Drawn(NamedTuple):
    """q, k [batch, tokens, key heads, key_dim], raw; v [batch, tokens, value heads, value_dim]; g, beta [batch, tokens, value
    heads]; state [batch, value heads, key_dim, value_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    state: torch.Tensor

    def row(self, row: int) -> Drawn:
        return Drawn(*(values[row : row + 1] for values in self))

    def cut(self, first: int, last: int) -> Drawn:
        return Drawn(*(values[:, first:last] for values in self[:5]), self.state)


def draw(
    seed: int,
    batch: int = 1,
    tokens: int = 64,
    key_heads: int = 2,
    value_heads: int = 4,
    key_dim: int = 32,
    value_dim: int = 32,
    likeness: float = 0.0,
    decay: str = "mixed",
) -> Drawn:
    """`likeness` is the mean cosine between the keys of a head."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    gates = (batch, tokens, value_heads)
    shared = normal(1, 1, key_heads, key_dim)
    k = normal(batch, tokens, key_heads, key_dim) * (1 - likeness) ** 0.5 + shared * likeness**0.5
    spread = torch.rand(gates, generator=generator)
    decays = {
        "slow": -1e-3 * spread,
        "fast": -8 * spread,
        "mixed": -torch.exp(normal(*gates) - 2),
        "1e-12": torch.full(gates, 1e-12).log(),
        "none": torch.zeros(gates),
    }
    return Drawn(
        normal(batch, tokens, key_heads, key_dim),
        k,
        normal(batch, tokens, value_heads, value_dim),
        decays[decay],
        torch.sigmoid(normal(*gates)),
        normal(batch, value_heads, key_dim, value_dim),
    )


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.double()
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + NORM_EPSILON)


def token_by_token(drawn: Drawn) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs [batch * value heads, tokens, value_dim] and the state behind them, in float64, of raw q and k."""
    shared = drawn.v.shape[2] // drawn.k.shape[2]
    q = (unit_rows(drawn.q) * drawn.q.shape[-1] ** -0.5).repeat_interleave(shared, 2)
    k = unit_rows(drawn.k).repeat_interleave(shared, 2)
    v, g, beta, state = (values.double() for values in drawn[2:])
    outputs = []
    for token in range(v.shape[1]):
        state = state * g[:, token].exp()[..., None, None]
        recalled = torch.einsum("bhkv,bhk->bhv", state, k[:, token])
        written = beta[:, token, :, None] * (v[:, token] - recalled)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, token], written)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, token]))
    return torch.stack(outputs, 2).flatten(0, 1), state

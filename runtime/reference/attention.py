"""Causal self-attention with grouped key and value heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from runtime.reference.norm import norm_weight, rms_norm
from runtime.reference.rope import rotate
from runtime.tables import Geometry

SCORE_LIMIT = 1 << 24  # scores held at a time: 64 MiB in float32, so that long prompts fit

Parameter = Callable[[str], Tensor]


def project(
    hidden: Tensor, parameter: Parameter, geometry: Geometry, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Normed hidden `[tokens, hidden]` -> rotated query, rotated key and value, each `[its heads, tokens, head_dim]`; and
    the gate `[tokens, query_heads * head_dim]` of what is attended, which the query projection has behind each query head,
    None where there is none.

    `parameter` gives a tensor by its published name below the layer. Order of the optional terms: bias, then the norm
    of each head, then rotation.
    """
    counts = (geometry.query_heads, geometry.key_value_heads, geometry.key_value_heads)
    if geometry.fused_projections:
        widths = [count * geometry.head_dim for count in counts]
        projected = (hidden @ parameter("self_attn.qkv_proj.weight").T).split(widths, dim=1)
    else:
        projected = [_project(hidden, parameter, f"{name}_proj", geometry) for name in "qkv"]
    gate = None
    if geometry.attention_gate:
        query, gate = (part.flatten(1) for part in projected[0].unflatten(1, (geometry.query_heads, 2, -1)).unbind(2))
        projected = [query, *projected[1:]]
    query, key, value = (
        rows.reshape(hidden.shape[0], count, geometry.head_dim).transpose(0, 1)
        for rows, count in zip(projected, counts)
    )
    if geometry.query_key_norm:
        query = rms_norm(query, norm_weight(parameter("self_attn.q_norm.weight"), geometry), geometry.norm_epsilon)
        key = rms_norm(key, norm_weight(parameter("self_attn.k_norm.weight"), geometry), geometry.norm_epsilon)
    return rotate(query, cos, sin), rotate(key, cos, sin), value, gate


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: int,
    *,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T scale) v, where query token i stands at position `start` + i and sees positions 0 to its own, or the
    last `window` of them. `scale` is head_dim ** -0.5 unless stated.

    query `[query_heads, tokens, head_dim]`, key and value `[key_value_heads, start + tokens, head_dim]` ->
    `[tokens, query_heads * head_dim]`. Consecutive query heads share a key head. A soft cap bends the scaled scores
    before they are masked (Gemma 2); `sinks` `[query_heads]` join the scores of their head as they are and have no
    value (gpt-oss). Queries go in blocks, and a block meets only the keys it can see.
    """
    query_heads, tokens, head_dim = query.shape
    key_value_heads, visible, _ = key.shape
    shared = query_heads // key_value_heads
    grouped = query.reshape(key_value_heads, shared, tokens, head_dim) * (head_dim**-0.5 if scale is None else scale)
    block = max(1, SCORE_LIMIT // (query_heads * visible))
    attended = query.new_empty(tokens, query_heads, head_dim)
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        low, seen = max(0, start + first + 1 - window) if window else 0, start + last
        scores = grouped[:, :, first:last] @ key[:, None, low:seen].transpose(-1, -2)
        if soft_cap:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        behind = torch.arange(start + first, seen)[:, None] - torch.arange(low, seen)
        hidden_keys = (behind < 0) | (behind >= window) if window else behind < 0
        scores.masked_fill_(hidden_keys, float("-inf"))
        if sinks is not None:
            column = sinks.reshape(key_value_heads, shared, 1, 1).expand(-1, -1, last - first, 1)
            scores = torch.cat((scores, column), dim=-1)
        mixed = scores.softmax(dim=-1)[..., : seen - low] @ value[:, None, low:seen]
        attended[first:last] = mixed.reshape(query_heads, last - first, head_dim).transpose(0, 1)
    return attended.reshape(tokens, query_heads * head_dim)


def _project(hidden: Tensor, parameter: Parameter, projection: str, geometry: Geometry) -> Tensor:
    projected = hidden @ parameter(f"self_attn.{projection}.weight").T
    if geometry.query_key_value_bias:
        projected = projected + parameter(f"self_attn.{projection}.bias")
    return projected

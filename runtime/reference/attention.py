"""Causal self-attention with grouped key and value heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from runtime.reference.norm import rms_norm
from runtime.reference.rope import rotate
from runtime.tables import Geometry

SCORE_LIMIT = 1 << 24  # scores held at a time: 64 MiB in float32, so that long prompts fit

Parameter = Callable[[str], Tensor]


def project(hidden: Tensor, parameter: Parameter, geometry: Geometry, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Normed hidden `[tokens, hidden]` -> rotated query, rotated key and value, each `[its heads, tokens, head_dim]`.

    `parameter` gives a tensor by its published name below the layer. Order of the optional terms: bias, then the norm
    of each head, then rotation.
    """
    counts = (geometry.query_heads, geometry.key_value_heads, geometry.key_value_heads)
    if geometry.fused_projections:
        widths = [count * geometry.head_dim for count in counts]
        projected = (hidden @ parameter("self_attn.qkv_proj.weight").T).split(widths, dim=1)
    else:
        projected = [_project(hidden, parameter, f"{name}_proj", geometry) for name in "qkv"]
    query, key, value = (
        rows.reshape(hidden.shape[0], count, geometry.head_dim).transpose(0, 1)
        for rows, count in zip(projected, counts)
    )
    if geometry.query_key_norm:
        query = rms_norm(query, parameter("self_attn.q_norm.weight"), geometry.norm_epsilon)
        key = rms_norm(key, parameter("self_attn.k_norm.weight"), geometry.norm_epsilon)
    return rotate(query, cos, sin), rotate(key, cos, sin), value


def attend(query: Tensor, key: Tensor, value: Tensor, start: int) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v, where query token i stands at position `start` + i and sees positions 0 to its
    own.

    query `[query_heads, tokens, head_dim]`, key and value `[key_value_heads, start + tokens, head_dim]` ->
    `[tokens, query_heads * head_dim]`. Consecutive query heads share a key head. Queries go in blocks, and a block
    meets only the keys it can see.
    """
    query_heads, tokens, head_dim = query.shape
    key_value_heads, visible, _ = key.shape
    grouped = query.reshape(key_value_heads, query_heads // key_value_heads, tokens, head_dim) * head_dim**-0.5
    block = max(1, SCORE_LIMIT // (query_heads * visible))
    attended = query.new_empty(tokens, query_heads, head_dim)
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        seen = start + last
        scores = grouped[:, :, first:last] @ key[:, None, :seen].transpose(-1, -2)
        position = torch.arange(start + first, seen)
        scores.masked_fill_(torch.arange(seen) > position[:, None], float("-inf"))
        mixed = scores.softmax(dim=-1) @ value[:, None, :seen]
        attended[first:last] = mixed.reshape(query_heads, last - first, head_dim).transpose(0, 1)
    return attended.reshape(tokens, query_heads * head_dim)


def _project(hidden: Tensor, parameter: Parameter, projection: str, geometry: Geometry) -> Tensor:
    projected = hidden @ parameter(f"self_attn.{projection}.weight").T
    if geometry.query_key_value_bias:
        projected = projected + parameter(f"self_attn.{projection}.bias")
    return projected

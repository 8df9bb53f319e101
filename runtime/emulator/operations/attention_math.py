"""Causal attention on plain torch values.

On the device a mask is an addition of minus infinity, so a masked position must not change any bit while it is
finite, but NaN and infinity pass through it. torch's kernels select instead of adding. They are used where keys and
values are finite, which makes both the same; otherwise the addition is carried out, over the key chunks that the
device would visit.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as functional


def finite(values: torch.Tensor) -> bool:
    low, high = torch.aminmax(values)
    return math.isfinite(low.item()) and math.isfinite(high.item())


def causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, chunks: tuple[int, int]
) -> torch.Tensor:
    """Each token attends to itself and to those before it; [batch, heads, tokens, dim], key-value heads repeated."""
    if finite(key) and finite(value):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
    return _added(query, key, value, _causal_mask(0, query.shape[-2], key.shape[-2]), scale, chunks, start=0)


def packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: list[int],
    scale: float,
    chunks: tuple[int, int],
) -> torch.Tensor:
    """Causal attention inside each window [bounds[i], bounds[i + 1]) of one sequence."""
    if not (finite(key) and finite(value)):
        mask = torch.full((query.shape[-2], key.shape[-2]), -math.inf)
        for low, high in zip(bounds, bounds[1:]):
            mask[low:high, low:high] = _causal_mask(0, high - low, high - low)
        return _added(query, key, value, mask, scale, chunks, start=0)
    sizes = {high - low for low, high in zip(bounds, bounds[1:])}
    if len(sizes) == 1:  # equal windows become a batch
        windows = (len(bounds) - 1, sizes.pop())
        rows = [part[0].unflatten(1, windows).transpose(0, 1) for part in (query, key, value)]
        result = functional.scaled_dot_product_attention(*rows, is_causal=True, scale=scale, enable_gqa=True)
        return result.transpose(0, 1).flatten(1, 2)[None]
    parts = [[part[:, :, low:high] for part in (query, key, value)] for low, high in zip(bounds, bounds[1:])]
    return torch.cat(
        [
            functional.scaled_dot_product_attention(*part, is_causal=True, scale=scale, enable_gqa=True)
            for part in parts
        ],
        2,
    )


def from_start(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, start: int, scale: float, chunks: tuple[int, int]
) -> torch.Tensor:
    """Token i of the query stands at position start + i of the keys. `key` may go on beyond the last query: masked."""
    tokens, length = query.shape[-2], key.shape[-2]
    mask = _causal_mask(start, tokens, length)
    if finite(key) and finite(value):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
    return _added(query, key, value, mask, scale, chunks, start=start)


@lru_cache(maxsize=8)
def _causal_mask(start: int, tokens: int, length: int) -> torch.Tensor:
    return torch.full((tokens, length), -math.inf).triu_(start + 1)


def _added(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    chunks: tuple[int, int],
    *,
    start: int,
) -> torch.Tensor:
    """softmax(q k^T scale + mask) v, one query chunk at a time, over the key chunks that hold its last position or
    earlier ones.
    """
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    query_chunk, key_chunk = chunks
    parts = []
    for low in range(0, query.shape[-2], query_chunk):
        high = min(low + query_chunk, query.shape[-2])
        visited = min(-(-(start + low + query_chunk) // key_chunk) * key_chunk, key.shape[-2])
        scores = query[:, :, low:high] @ key[:, :, :visited].transpose(-1, -2) * scale + mask[low:high, :visited]
        parts.append(scores.softmax(-1) @ value[:, :, :visited])
    return torch.cat(parts, 2)

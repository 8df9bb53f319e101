"""Causal attention on plain torch values.

On the device a mask is an addition of minus infinity, so a masked position must not change any bit while it is
finite, but NaN and infinity pass through it. torch's kernels select instead of adding. They are used where keys and
values are finite, which makes both the same; otherwise the addition is carried out, over the key chunks that the
device would visit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as functional

from ..storage import TILE


class Reach(NamedTuple):
    """Which keys the queries see: those up to their own position, of which the last `window` (0: all of them).

    Query i stands at position `start` + i of the keys. `chunks` are the queries and keys taken at a time. `skips` says
    that key chunks in front of every window are not visited, as the device does it without float32 accumulation; it
    visits them otherwise.
    """

    chunks: tuple[int, int]
    start: int = 0
    window: int = 0
    skips: bool = False

    def visited(self, low: int, length: int) -> tuple[int, int]:
        """First and behind the last of `length` keys that are read for the chunk of queries from `low` on."""
        query_chunk, key_chunk = self.chunks
        position = self.start + low
        first = 0
        if self.window and self.skips:
            behind = -(-(self.window - 1) // TILE) * TILE  # counted in whole tiles
            first = max(position - behind, 0) // key_chunk * key_chunk
        return first, min(-(-(position + query_chunk) // key_chunk) * key_chunk, length)

    def mask(self, low: int, high: int, first: int, end: int) -> torch.Tensor:
        """What is added to the scores of queries [low, high) and keys [first, end): [queries, keys]."""
        return _band(self.start + low - first, high - low, end - first, self.window)


@lru_cache(maxsize=2)  # the layers of a pass ask for the same one; at long context each takes a gigabyte
def _band(offset: int, queries: int, keys: int, window: int) -> torch.Tensor:
    """Zero where query i may see key j, and minus infinity elsewhere; query i stands beside key offset + i."""
    mask = torch.full((queries, keys), -math.inf).triu_(offset + 1)
    return mask + torch.full((queries, keys), -math.inf).tril_(offset - window) if window else mask


def finite(values: torch.Tensor) -> bool:
    low, high = torch.aminmax(values)
    return math.isfinite(low.item()) and math.isfinite(high.item())


def attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    reach: Reach,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of [batch, heads, tokens, dim] to keys and values [batch, key-value heads, length, dim].

    `sink` [1, heads, 1, 1] joins each row of scores, scaled as they are, and takes its share of the weights to no
    value. Keys may go on beyond the last query: masked.
    """
    if not (finite(key) and finite(value)):
        return _added(query, key, value, scale, reach, reach.mask, sink)
    if reach.window or sink is not None:
        return _added(query, key, value, scale, reach._replace(skips=True), reach.mask, sink)
    if reach.start == 0 and query.shape[-2] == key.shape[-2]:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
    mask = reach.mask(0, query.shape[-2], 0, key.shape[-2])
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: list[int],
    scale: float,
    reach: Reach,
) -> torch.Tensor:
    """Causal attention inside each window [bounds[i], bounds[i + 1]) of one sequence."""
    windows = [(low, high) for low, high in zip(bounds, bounds[1:]) if low < high]
    if not (finite(key) and finite(value)):
        mask = torch.full((query.shape[-2], key.shape[-2]), -math.inf)
        for low, high in windows:
            mask[low:high, low:high] = _band(0, high - low, high - low, 0)
        return _added(query, key, value, scale, reach, lambda low, high, first, end: mask[low:high, first:end])
    sizes = {high - low for low, high in windows}
    if len(sizes) == 1:  # equal windows become a batch
        equal = (len(windows), sizes.pop())
        rows = [part[0].unflatten(1, equal).transpose(0, 1) for part in (query, key, value)]
        result = functional.scaled_dot_product_attention(*rows, is_causal=True, scale=scale, enable_gqa=True)
        return result.transpose(0, 1).flatten(1, 2)[None]
    parts = [[part[:, :, low:high] for part in (query, key, value)] for low, high in windows]
    return torch.cat(
        [
            functional.scaled_dot_product_attention(*part, is_causal=True, scale=scale, enable_gqa=True)
            for part in parts
        ],
        2,
    )


def _added(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    reach: Reach,
    mask: Callable[[int, int, int, int], torch.Tensor],
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(q k^T scale + mask) v, one query chunk at a time, over the key chunks that the device visits for it."""
    shared = key.shape[1]
    groups = query.shape[1] // shared
    parts = []
    for low in range(0, query.shape[-2], reach.chunks[0]):
        high = min(low + reach.chunks[0], query.shape[-2])
        first, end = reach.visited(low, key.shape[-2])
        rows = query[:, :, low:high].unflatten(1, (shared, groups)).flatten(2, 3)
        scores = (rows * scale @ key[:, :, first:end].transpose(-1, -2)).unflatten(2, (groups, high - low))
        scores += mask(low, high, first, end)
        if sink is not None:
            column = (sink * scale).reshape(1, shared, groups, 1, 1).expand(*scores.shape[:-1], 1)
            scores = torch.cat((scores, column), -1)
        weights = scores.softmax(-1)[..., : end - first]
        result = weights.flatten(2, 3) @ value[:, :, first:end]
        parts.append(result.unflatten(2, (groups, high - low)).flatten(1, 2))
    return torch.cat(parts, 2)

"""What each prompt should give: the reference's logits, keys and values beside the logits of transformers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.reference.dense import Cache, forward
from runtime.tables import Geometry


@dataclass(frozen=True)
class Expected:
    """One prompt. `logits` and `peer_logits` `[vocabulary]` are of its last token; `keys` and `values` hold one
    `[key_value_heads, tokens, head_dim]` for each layer with attention, `states` the state and the convolution's tail of
    each recurrent layer; `hidden` the output of each layer `[some tokens, hidden]`."""

    tokens: tuple[int, ...]
    logits: Tensor
    peer_logits: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    hidden: tuple[Tensor, ...]
    seconds: Mapping[str, float]
    states: tuple[tuple[Tensor, Tensor], ...] = ()


@torch.no_grad()
def peer_logits(model: Any, prompts: Sequence[Sequence[int]]) -> tuple[list[Tensor], list[float]]:
    """The last token's logits of each prompt from a transformers model, and the seconds that each took."""
    logits, seconds = [], []
    for tokens in prompts:
        began = time.perf_counter()
        logits.append(model(torch.tensor([list(tokens)]), logits_to_keep=1, use_cache=False).logits[0, -1])
        seconds.append(time.perf_counter() - began)
    return logits, seconds


def expect(
    geometry: Geometry,
    tensors: Mapping[str, Tensor],
    tokens: Sequence[int],
    peer: Tensor,
    peer_seconds: float,
    keep_hidden: int = 0,
) -> Expected:
    """Run the reference over one prompt, and each layer's output for its first `keep_hidden` tokens as a prompt."""
    cache, hidden = Cache(), []

    def keep(layer: int, output: Tensor, key: Tensor, value: Tensor) -> None:
        hidden.append(output[:keep_hidden].clone())

    began = time.perf_counter()
    logits = forward(
        geometry,
        tensors,
        tokens,
        cache=cache,
        rows=[len(tokens) - 1],
        observe=keep,
    )
    seconds = {"reference": time.perf_counter() - began, "transformers": peer_seconds}
    if geometry.rope.kind == "longrope" and 0 < keep_hidden < len(tokens):  # a shorter prompt may be turned otherwise
        hidden.clear()
        forward(geometry, tensors, tokens[:keep_hidden], rows=[0], observe=keep)
    states = tuple([(kept.rule, kept.tail) for kept in cache.recurrent])
    keys, values = tuple(cache.keys), tuple(cache.values)
    return Expected(tuple(tokens), logits[0], peer, keys, values, tuple(hidden), seconds, states)

"""Whole dense decoder models: Llama, Mistral, Phi, Qwen2.5 and Qwen3 without windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runtime.reference.attention import attend, project
from runtime.reference.experts import routed
from runtime.reference.mlp import gated_mlp
from runtime.reference.norm import rms_norm
from runtime.reference.rope import cos_sin
from runtime.tables import Geometry

Observer = Callable[[int, Tensor, Tensor, Tensor], None]


@dataclass
class Cache:
    """Keys (rotated) and values of every layer so far, `[key_value_heads, tokens, head_dim]` each. It grows with each
    call.
    """

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.keys[0].shape[1] if self.keys else 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat((self.keys[layer], key), dim=1)
            self.values[layer] = torch.cat((self.values[layer], value), dim=1)
        return self.keys[layer], self.values[layer]


@torch.no_grad()
def forward(
    geometry: Geometry,
    tensors: Mapping[str, Tensor],
    tokens: Sequence[int],
    *,
    cache: Cache | None = None,
    total: int | None = None,
    rows: Sequence[int] | None = None,
    observe: Observer | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Logits `[rows, vocabulary]` of `tokens`, which follow whatever `cache` holds and are part of a prompt of `total`
    tokens (default: it ends here), on which the kind of rotary embedding "longrope" depends as a whole.

    `tensors` maps published names (model.layers.0.self_attn.q_proj.weight, ...) to tensors of any floating dtype; each
    is converted to `dtype` when its layer is reached, so that a memory-mapped checkpoint is never whole in memory.
    `rows` are indices into `tokens` (default: all of them); only these reach the head. `observe(layer, hidden, key,
    value)` is called after each layer with that layer's output `[tokens, hidden]` and the keys and values of these
    tokens.
    """
    ids = torch.as_tensor(tokens, dtype=torch.int64)
    outside = ids[(ids < 0) | (ids >= geometry.vocabulary)]
    if ids.ndim != 1 or not len(ids) or len(outside):
        raise ValueError(
            f"tokens are a non-empty list of ids from 0 to {geometry.vocabulary - 1};"
            f" got shape {tuple(ids.shape)} with {outside[:4].tolist()} outside"
        )
    cache = Cache() if cache is None else cache
    start = cache.length
    end = start + len(ids)
    cos, sin = cos_sin(geometry.rope, torch.arange(start, end), dtype, end if total is None else total)
    hidden = tensors["model.embed_tokens.weight"][ids].to(dtype)
    for layer in range(geometry.layers):

        def parameter(name: str, prefix: str = f"model.layers.{layer}.") -> Tensor:
            return tensors[prefix + name].to(dtype)

        normed = rms_norm(hidden, parameter("input_layernorm.weight"), geometry.norm_epsilon)
        query, key, value = project(normed, parameter, geometry, cos, sin)
        attended = attend(query, *cache.extend(layer, key, value), start)
        hidden = hidden + attended @ parameter("self_attn.o_proj.weight").T
        normed = rms_norm(hidden, parameter("post_attention_layernorm.weight"), geometry.norm_epsilon)
        if geometry.experts is None:
            hidden = hidden + gated_mlp(normed, parameter, geometry.fused_projections)
        else:
            hidden = hidden + routed(normed, parameter, geometry.experts)
        if observe is not None:
            observe(layer, hidden, key, value)
    hidden = hidden if rows is None else hidden[torch.as_tensor(rows)]
    normed = rms_norm(hidden, tensors["model.norm.weight"].to(dtype), geometry.norm_epsilon)
    head = "model.embed_tokens.weight" if geometry.tied_embeddings else "lm_head.weight"
    return normed @ tensors[head].to(dtype).T


def token_by_token(
    geometry: Geometry, tensors: Mapping[str, Tensor], tokens: Sequence[int], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Cache]:
    """The same logits `[tokens, vocabulary]` one token at a time over a growing cache, and that cache.

    No token is ever computed beside a later one, so nothing here depends on a mask or on how a prompt is cut.
    """
    cache = Cache()
    logits = [forward(geometry, tensors, [token], cache=cache, total=len(tokens), dtype=dtype) for token in tokens]
    return torch.cat(logits), cache

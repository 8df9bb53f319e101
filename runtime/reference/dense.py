"""Whole dense decoder models: Llama, Mistral, Phi, Qwen2.5, Qwen3, Gemma 2 and Gemma 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runtime.reference.attention import attend, project
from runtime.reference.experts import routed
from runtime.reference.mlp import gated_mlp
from runtime.reference.norm import norm_weight, rms_norm
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
    total = end if total is None else total
    positions = torch.arange(start, end)
    turning = cos_sin(geometry.rope, positions, dtype, total)
    local_turning = cos_sin(geometry.local_rope, positions, dtype, total) if geometry.local_rope else turning
    hidden = tensors["model.embed_tokens.weight"][ids].to(dtype)
    if geometry.scaled_embedding:
        hidden = hidden * geometry.hidden**0.5
    for layer in range(geometry.layers):

        def parameter(name: str, prefix: str = f"model.layers.{layer}.") -> Tensor:
            return tensors[prefix + name].to(dtype)

        def norm(rows: Tensor, name: str, parameter: Callable[[str], Tensor] = parameter) -> Tensor:
            return rms_norm(rows, norm_weight(parameter(f"{name}_layernorm.weight"), geometry), geometry.norm_epsilon)

        cos, sin = local_turning if geometry.window(layer) else turning
        query, key, value = project(norm(hidden, "input"), parameter, geometry, cos, sin)
        attended = attend(
            query,
            *cache.extend(layer, key, value),
            start,
            scale=(geometry.query_scale or geometry.head_dim) ** -0.5,
            window=geometry.window(layer),
            soft_cap=geometry.attention_soft_cap,
            sinks=parameter("self_attn.sinks") if geometry.attention_sinks else None,
        )
        attended = attended @ parameter("self_attn.o_proj.weight").T
        if geometry.attention_output_bias:
            attended = attended + parameter("self_attn.o_proj.bias")
        if geometry.sandwich_norms:
            hidden = hidden + norm(attended, "post_attention")
            fed = feed(norm(hidden, "pre_feedforward"), parameter, geometry)
            hidden = hidden + norm(fed, "post_feedforward")
        else:
            hidden = hidden + attended
            hidden = hidden + feed(norm(hidden, "post_attention"), parameter, geometry)
        if observe is not None:
            observe(layer, hidden, key, value)
    hidden = hidden if rows is None else hidden[torch.as_tensor(rows)]
    final = norm_weight(tensors["model.norm.weight"].to(dtype), geometry)
    head = "model.embed_tokens.weight" if geometry.tied_embeddings else "lm_head.weight"
    logits = rms_norm(hidden, final, geometry.norm_epsilon) @ tensors[head].to(dtype).T
    cap = geometry.logit_soft_cap
    return cap * torch.tanh(logits / cap) if cap else logits


def feed(normed: Tensor, parameter: Callable[[str], Tensor], geometry: Geometry) -> Tensor:
    """What a layer adds behind attention, `[tokens, hidden]`: of one feed-forward, or of the experts chosen for each token."""
    if geometry.experts is None:
        return gated_mlp(normed, parameter, geometry)
    return routed(normed, parameter, geometry.experts)


def token_by_token(
    geometry: Geometry, tensors: Mapping[str, Tensor], tokens: Sequence[int], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Cache]:
    """The same logits `[tokens, vocabulary]` one token at a time over a growing cache, and that cache.

    No token is ever computed beside a later one, so nothing here depends on a mask or on how a prompt is cut.
    """
    cache = Cache()
    logits = [forward(geometry, tensors, [token], cache=cache, total=len(tokens), dtype=dtype) for token in tokens]
    return torch.cat(logits), cache

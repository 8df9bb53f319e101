"""Whole decoder models: Llama, Mistral, Phi, Qwen2.5, Qwen3, Gemma 2 and 3, mixtures of experts, Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from runtime.reference.cache import Cache
from runtime.reference.layers import Layer, run
from runtime.reference.norm import norm_weight, rms_norm
from runtime.reference.rope import cos_sin
from runtime.tables import Geometry

__all__ = ["Cache", "forward", "token_by_token"]

Observer = Callable[[int, Tensor, "Tensor | None", "Tensor | None"], None]


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
    exact: bool = False,
) -> Tensor:
    """Logits `[rows, vocabulary]` of `tokens`, which follow whatever `cache` holds and are part of a prompt of `total`
    tokens (default: it ends here), on which the kind of rotary embedding "longrope" depends as a whole.

    `tensors` maps published names (model.layers.0.self_attn.q_proj.weight, ...) to tensors of any floating dtype; each
    is converted to `dtype` when its layer is reached, so that a memory-mapped checkpoint is never whole in memory.
    `rows` are indices into `tokens` (default: all of them); only these reach the head. `observe(layer, hidden, key,
    value)` is called after each layer with that layer's output `[tokens, hidden]` and the keys and values of these
    tokens, None where the layer has none. `exact` computes each token by itself, in their order: the bits are those of
    `token_by_token`, and recurrent layers scan in token order instead of in chunks.
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
    places = {"full": 0, "gated_delta_net": 0}
    for index in range(geometry.layers):

        def parameter(name: str, prefix: str = f"model.layers.{index}.") -> Tensor:
            return tensors[prefix + name].to(dtype)

        kind = "gated_delta_net" if geometry.is_recurrent(index) else "full"
        place, window = places[kind], geometry.window(index)
        places[kind] += 1
        layer = Layer(geometry, kind, place, window, parameter, cache, start, *(local_turning if window else turning))
        hidden = run(hidden, layer, exact)
        if observe is not None and kind == "full":
            observe(index, hidden, cache.keys[place][:, start:], cache.values[place][:, start:])
        elif observe is not None:
            observe(index, hidden, None, None)
    cache.length = end
    hidden = hidden if rows is None else hidden[torch.as_tensor(rows)]
    if not exact:
        return _logits(hidden, geometry, tensors, dtype)
    return torch.cat([_logits(row[None], geometry, tensors, dtype) for row in hidden])


def _logits(hidden: Tensor, geometry: Geometry, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    final = norm_weight(tensors["model.norm.weight"].to(dtype), geometry)
    head = "model.embed_tokens.weight" if geometry.tied_embeddings else "lm_head.weight"
    logits = rms_norm(hidden, final, geometry.norm_epsilon) @ tensors[head].to(dtype).T
    cap = geometry.logit_soft_cap
    return cap * torch.tanh(logits / cap) if cap else logits


def token_by_token(
    geometry: Geometry, tensors: Mapping[str, Tensor], tokens: Sequence[int], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Cache]:
    """The same logits `[tokens, vocabulary]` one token at a time over a growing cache, and that cache.

    No token is ever computed beside a later one, so nothing here depends on a mask or on how a prompt is cut.
    """
    cache = Cache()
    logits = [
        forward(geometry, tensors, [token], cache=cache, total=len(tokens), dtype=dtype, exact=True) for token in tokens
    ]
    return torch.cat(logits), cache

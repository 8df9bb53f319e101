"""One layer of a decoder: what mixes its tokens, by the kind of the layer, and what feeds each of them forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from runtime.reference import gated_delta_net
from runtime.reference.attention import attend, project
from runtime.reference.cache import Cache
from runtime.reference.experts import routed
from runtime.reference.mlp import gated_mlp
from runtime.reference.norm import norm_weight, rms_norm
from runtime.tables import Geometry


@dataclass(frozen=True)
class Layer:
    """A layer and where the tokens of a call stand: `start` of them came before, and `cos` and `sin` `[tokens, dimensions]`
    turn these. `place` counts the layers before it of its own kind.
    """

    geometry: Geometry
    kind: str
    place: int
    window: int
    parameter: Callable[[str], Tensor]  # by published name below the layer
    cache: Cache
    start: int
    cos: Tensor
    sin: Tensor

    def of_token(self, token: int) -> Layer:
        """The same layer where one token of the call stands."""
        one = slice(token, token + 1)
        return replace(self, start=self.start + token, cos=self.cos[one], sin=self.sin[one])

    def norm(self, rows: Tensor, name: str) -> Tensor:
        weight = norm_weight(self.parameter(f"{name}_layernorm.weight"), self.geometry)
        return rms_norm(rows, weight, self.geometry.norm_epsilon)


Body = Callable[[Tensor, Layer], Tensor]  # normed hidden [tokens, hidden] -> what is added to hidden


@dataclass(frozen=True)
class Kind:
    """How a kind of layers mixes the tokens of a call: `prefill` any number of them, `decode` a single one. Without `prefill`,
    `decode` runs once for each token, in their order.
    """

    prefill: Body | None
    decode: Body


def attention(normed: Tensor, layer: Layer) -> Tensor:
    """Attention over the tokens in the cache and these."""
    geometry, parameter = layer.geometry, layer.parameter
    query, key, value, gate = project(normed, parameter, geometry, layer.cos, layer.sin)
    attended = attend(
        query,
        *layer.cache.extend(layer.place, key, value),
        layer.start,
        scale=(geometry.query_scale or geometry.head_dim) ** -0.5,
        window=layer.window,
        soft_cap=geometry.attention_soft_cap,
        sinks=parameter("self_attn.sinks") if geometry.attention_sinks else None,
    )
    if gate is not None:
        attended = attended * torch.sigmoid(gate)
    attended = attended @ parameter("self_attn.o_proj.weight").T
    return attended + parameter("self_attn.o_proj.bias") if geometry.attention_output_bias else attended


def _linear_attention(exact: bool) -> Body:
    def mix(normed: Tensor, layer: Layer) -> Tensor:
        net, epsilon = layer.geometry.gated_delta_net, layer.geometry.norm_epsilon
        held = layer.cache.state(layer.place, net, normed.dtype)
        mixed, after = gated_delta_net.prefill(normed, layer.parameter, net, epsilon, held, exact=exact)
        layer.cache.keep(layer.place, after)
        return mixed

    return mix


KINDS = {
    "full": Kind(attention, attention),
    "gated_delta_net": Kind(_linear_attention(exact=False), _linear_attention(exact=True)),
}


def run(hidden: Tensor, layer: Layer, exact: bool = False) -> Tensor:
    """Hidden `[tokens, hidden]` behind a layer. `exact`: one token after the other, as if each came by itself."""
    kind = KINDS[layer.kind]
    if kind.prefill is not None and not exact:
        return _behind(hidden, layer, kind.prefill)
    rows = [_behind(hidden[token : token + 1], layer.of_token(token), kind.decode) for token in range(len(hidden))]
    return torch.cat(rows)


def _behind(hidden: Tensor, layer: Layer, mix: Body) -> Tensor:
    mixed = mix(layer.norm(hidden, "input"), layer)
    if layer.geometry.sandwich_norms:
        hidden = hidden + layer.norm(mixed, "post_attention")
        return hidden + layer.norm(feed(layer.norm(hidden, "pre_feedforward"), layer), "post_feedforward")
    hidden = hidden + mixed
    return hidden + feed(layer.norm(hidden, "post_attention"), layer)


def feed(normed: Tensor, layer: Layer) -> Tensor:
    """What a layer adds behind attention, `[tokens, hidden]`: of one feed-forward, or of the experts chosen for each token."""
    if layer.geometry.experts is None:
        return gated_mlp(normed, layer.parameter, layer.geometry)
    return routed(normed, layer.parameter, layer.geometry.experts)

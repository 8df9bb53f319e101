"""Published parameter names and shapes of a geometry, and parameters drawn at random."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from runtime.reference import experts, gated_delta_net
from runtime.tables import Geometry


def parameter_shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor in a checkpoint of `geometry`, projections as `[out, in]`."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (geometry.vocabulary, geometry.hidden)}
    every = _norms(geometry) | _feed_forward(geometry)
    for index in range(geometry.layers):
        if geometry.is_recurrent(index):
            mixing = gated_delta_net.parameter_shapes(geometry.gated_delta_net, geometry.hidden)
        else:
            mixing = _attention(geometry)
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in {**mixing, **every}.items()}
    shapes["model.norm.weight"] = (geometry.hidden,)
    if not geometry.tied_embeddings:
        shapes["lm_head.weight"] = (geometry.vocabulary, geometry.hidden)
    return shapes


def _norms(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    names = ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if geometry.sandwich_norms else ()))
    return {f"{name}_layernorm.weight": (geometry.hidden,) for name in names}


def _feed_forward(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    hidden, intermediate = geometry.hidden, geometry.intermediate
    if geometry.experts is not None:
        return experts.parameter_shapes(geometry.experts, hidden)
    down = {"mlp.down_proj.weight": (hidden, intermediate)}
    if geometry.fused_projections:
        return {**down, "mlp.gate_up_proj.weight": (2 * intermediate, hidden)}
    return down | {f"mlp.{name}_proj.weight": (intermediate, hidden) for name in ("gate", "up")}


def _attention(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    hidden, head_dim = geometry.hidden, geometry.head_dim
    query, key_value = geometry.query_heads * head_dim, geometry.key_value_heads * head_dim
    widths = {"q": query * (2 if geometry.attention_gate else 1), "k": key_value, "v": key_value}
    shapes: dict[str, tuple[int, ...]] = {"self_attn.o_proj.weight": (hidden, query)}
    if geometry.fused_projections:
        shapes["self_attn.qkv_proj.weight"] = (sum(widths.values()), hidden)
    else:
        shapes |= {f"self_attn.{name}_proj.weight": (width, hidden) for name, width in widths.items()}
    if geometry.query_key_value_bias:
        shapes |= {f"self_attn.{name}_proj.bias": (width,) for name, width in widths.items()}
    if geometry.query_key_norm:
        shapes |= {f"self_attn.{name}_norm.weight": (head_dim,) for name in "qk"}
    if geometry.attention_sinks:
        shapes["self_attn.sinks"] = (geometry.query_heads,)
    if geometry.attention_output_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    return shapes


class RandomParameters(Mapping[str, Tensor]):
    """Every parameter of `geometry` drawn at random in float32, when it is asked for: nothing is held.

    A tensor depends on `seed` and its own name alone. What norms multiply by scatters around one and biases and sinks
    around zero, widely enough that dropping one shows; projections keep the size of what passes through them. Of recurrent
    layers some heads forget within a token and some hardly at all.
    """

    def __init__(self, geometry: Geometry, seed: int) -> None:
        self._shapes = parameter_shapes(geometry)
        self._seed = seed
        self._norm = 0.0 if geometry.unit_offset_norms else 1.0
        self._embedding = geometry.hidden**-0.5 if geometry.scaled_embedding else 1.0

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        if name.endswith(("A_log", "dt_bias")):
            return fading(name, shape, generator)
        drawn = torch.randn(shape, generator=generator)
        if name.endswith(f"{gated_delta_net.NAME}.norm.weight"):
            return 1 + 0.25 * drawn  # published as it multiplies, whatever the other norms
        if name.endswith("conv1d.weight"):
            return drawn * shape[-1] ** -0.5
        if name.endswith("norm.weight"):
            return self._norm + 0.25 * drawn
        if name.endswith("bias"):
            return 0.5 * drawn
        if name.endswith("sinks"):
            return drawn
        return drawn * (self._embedding if name.startswith("model.embed") else shape[1] ** -0.5)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def fading(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A_log or dt_bias at random: rates from 0.5 to 16, and steps whose softplus goes from 0.007 to 1.3."""
    drawn = torch.rand(shape, generator=generator)
    return (0.5 + 15.5 * drawn).log() if name.endswith("A_log") else 6 * drawn - 5

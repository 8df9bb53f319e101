"""Published parameter names and shapes of a geometry, and parameters drawn at random."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from runtime.reference import experts
from runtime.tables import Geometry


def parameter_shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor in a checkpoint of `geometry`, projections as `[out, in]`."""
    hidden, head_dim = geometry.hidden, geometry.head_dim
    query, key_value = geometry.query_heads * head_dim, geometry.key_value_heads * head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.o_proj.weight": (hidden, query),
        "post_attention_layernorm.weight": (hidden,),
    }
    if geometry.fused_projections:
        layer["self_attn.qkv_proj.weight"] = (query + 2 * key_value, hidden)
    else:
        layer |= {
            f"self_attn.{name}_proj.weight": (width, hidden)
            for name, width in zip("qkv", (query, key_value, key_value))
        }
    if geometry.experts is not None:
        layer |= experts.parameter_shapes(geometry.experts, hidden)
    else:
        layer["mlp.down_proj.weight"] = (hidden, geometry.intermediate)
        if geometry.fused_projections:
            layer["mlp.gate_up_proj.weight"] = (2 * geometry.intermediate, hidden)
        else:
            layer |= {f"mlp.{name}_proj.weight": (geometry.intermediate, hidden) for name in ("gate", "up")}
    if geometry.query_key_value_bias:
        layer |= {f"self_attn.{name}_proj.bias": (width,) for name, width in zip("qkv", (query, key_value, key_value))}
    if geometry.query_key_norm:
        layer |= {f"self_attn.{name}_norm.weight": (head_dim,) for name in "qk"}
    if geometry.sandwich_norms:
        layer |= {f"{name}_feedforward_layernorm.weight": (hidden,) for name in ("pre", "post")}
    if geometry.attention_sinks:
        layer["self_attn.sinks"] = (geometry.query_heads,)
    if geometry.attention_output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (geometry.vocabulary, hidden)}
    for index in range(geometry.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not geometry.tied_embeddings:
        shapes["lm_head.weight"] = (geometry.vocabulary, hidden)
    return shapes


class RandomParameters(Mapping[str, Tensor]):
    """Every parameter of `geometry` drawn at random in float32, when it is asked for: nothing is held.

    A tensor depends on `seed` and its own name alone. What norms multiply by scatters around one and biases and sinks
    around zero, widely enough that dropping one shows; projections keep the size of what passes through them.
    """

    def __init__(self, geometry: Geometry, seed: int) -> None:
        self._shapes = parameter_shapes(geometry)
        self._seed = seed
        self._norm = 0.0 if geometry.unit_offset_norms else 1.0
        self._embedding = geometry.hidden**-0.5 if geometry.scaled_embedding else 1.0

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        drawn = torch.randn(shape, generator=generator)
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

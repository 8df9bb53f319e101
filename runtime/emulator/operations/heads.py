"""Splitting a fused projection into heads, and joining heads."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor

CREATE = "nlp_create_qkv_heads"
CONCATENATE = "nlp_concat_heads"


def _check_type(name: str, spec: TensorSpec) -> None:
    require(
        spec.layout is Layout.TILE and spec.is_float and spec.dtype is not DataType.BFLOAT4_B,
        name,
        f"the input must be BFLOAT16, BFLOAT8_B or FLOAT32 in tiles, got {spec!r}",
    )


def _plan_create(device: Device, fused: TensorSpec, heads: int, key_value_heads: int, memory_config) -> Plan:
    require(
        len(fused.shape) == 4 and fused.shape[1] == 1,
        CREATE,
        f"the input must be [batch, 1, tokens, width], got {fused!r}",
    )
    _check_type(CREATE, fused)
    require(
        heads > 0 and key_value_heads >= 0,
        CREATE,
        f"there must be heads, got {heads} and {key_value_heads} key-value heads",
    )
    batch, _, tokens, width = fused.shape
    total = heads + 2 * key_value_heads
    require(
        width % (total * TILE) == 0,
        CREATE,
        f"a width of {width} does not divide into {heads} + 2 x {key_value_heads} heads "
        f"of a multiple of {TILE} columns",
    )
    require(tokens % TILE == 0, CREATE, f"the number of tokens must be a multiple of {TILE}, got {tokens}")
    place = memory_config or fused.memory_config
    query = tensor_spec((batch, heads, tokens, width // total), fused.dtype, Layout.TILE, place)
    key = tensor_spec((batch, key_value_heads, tokens, width // total), fused.dtype, Layout.TILE, place)
    return Plan((query, key, key), moves=True)


@checked
def nlp_create_qkv_heads(
    input: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    memory_config: MemoryConfig | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Fused projections [batch, 1, tokens, (heads + 2 key-value heads) * dim], queries first, then keys, then values.

    Returns queries [batch, heads, tokens, dim], and keys and values [batch, key-value heads, tokens, dim].
    """
    require(not transpose_k_heads, CREATE, "transposed keys are not modelled: pass transpose_k_heads=False")
    key_value_heads = num_heads if num_kv_heads is None else num_kv_heads

    def compute(fused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, _, tokens, width = fused.shape
        total = num_heads + 2 * key_value_heads
        heads = fused.reshape(batch, tokens, total, width // total).transpose(1, 2)
        return heads.split((num_heads, key_value_heads, key_value_heads), 1)

    return launch(CREATE, (input,), (num_heads, key_value_heads, memory_config), _plan_create, compute)


def _plan_concatenate(device: Device, heads: TensorSpec, memory_config) -> Plan:
    require(len(heads.shape) == 4, CONCATENATE, f"the input must be [batch, heads, tokens, dim], got {heads!r}")
    _check_type(CONCATENATE, heads)
    batch, count, tokens, dim = heads.shape
    require(dim % TILE == 0, CONCATENATE, f"the head dim must be a multiple of {TILE}, got {dim}")
    shape = (batch, 1, tokens, count * dim)
    return Plan((tensor_spec(shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),), moves=True)


@checked
def nlp_concat_heads(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """[batch, heads, tokens, dim] -> [batch, 1, tokens, heads * dim]."""
    return launch(CONCATENATE, (input_tensor,), (memory_config,), _plan_concatenate, join_heads)[0]


def join_heads(heads: torch.Tensor) -> torch.Tensor:
    batch, count, tokens, dim = heads.shape
    return heads.transpose(1, 2).reshape(batch, 1, tokens, count * dim)

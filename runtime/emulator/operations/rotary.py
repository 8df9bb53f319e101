"""Rotary position embedding, in both conventions."""

from __future__ import annotations

import torch

from ..configs import MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor


def _plan_hf(device: Device, heads: TensorSpec, cos: TensorSpec, sin: TensorSpec, memory_config, compute) -> Plan:
    return Plan((tensor_spec(heads.shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),))


def rotary_embedding_hf(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    is_decode_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Rotate heads [batch, heads, tokens, dim] by halves: [a*cos - b*sin, b*cos + a*sin], with the first `tokens` rows of the caches."""
    name = "rotary_embedding_hf"
    require(not is_decode_mode, name, "decode mode is not modelled")
    tokens, dim = input_tensor.spec.shape[-2:]
    half = dim // 2

    def compute(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        cos, sin = cos[..., :tokens, :], sin[..., :tokens, :]
        rotated = heads * cos
        rotated[..., :half].addcmul_(heads[..., half:], sin[..., :half], value=-1)
        rotated[..., half:].addcmul_(heads[..., :half], sin[..., half:])
        return rotated

    return launch(name, (input_tensor, cos_cache, sin_cache), (memory_config, compute_kernel_config), _plan_hf, compute)[0]


def _plan_llama(device, heads, cos, sin, transformation, memory_config, compute) -> Plan:
    return Plan((tensor_spec(heads.shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),))


def rotary_embedding_llama(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    *,
    is_decode_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """heads * cos + (heads x transformation) * sin: the transformation [1, 1, 32, 32] acts on every 32 columns and swaps pairs."""
    name = "rotary_embedding_llama"
    require(not is_decode_mode, name, "decode mode is not modelled")
    tokens = input_tensor.spec.shape[-2]

    def compute(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, transformation: torch.Tensor) -> torch.Tensor:
        cos, sin = cos[..., :tokens, :], sin[..., :tokens, :]
        swapped = (heads.reshape(-1, TILE) @ transformation.reshape(TILE, TILE)).reshape(heads.shape)
        return (heads * cos).addcmul_(swapped, sin)

    inputs = (input_tensor, cos_cache, sin_cache, trans_mat)
    return launch(name, inputs, (memory_config, compute_kernel_config), _plan_llama, compute)[0]

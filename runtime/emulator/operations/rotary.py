"""Rotary position embedding, in both conventions."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor

HALVES = "rotary_embedding_hf"
PAIRS = "rotary_embedding_llama"
LARGEST_PAIRS_DIM = 256
LARGEST_PAIRS_DIM_IN_FLOAT32 = 128


def _check_tables(name: str, heads: TensorSpec, cos: TensorSpec, sin: TensorSpec) -> None:
    require(
        (cos.shape, cos.dtype) == (sin.shape, sin.dtype), name, f"cosines and sines differ in kind: {cos!r} and {sin!r}"
    )
    require(
        len(heads.shape) == 4 and heads.layout is Layout.TILE and heads.is_float,
        name,
        f"the heads must be [batch, heads, tokens, dim] floats in tiles, got {heads!r}",
    )
    tokens, dim = heads.shape[-2:]
    for table in (cos, sin):
        require(
            len(table.shape) == 4
            and table.shape[:2] == (1, 1)
            and table.shape[-1] == dim
            and table.shape[-2] >= tokens
            and table.layout is Layout.TILE
            and table.is_float,
            name,
            f"cosines and sines must be [1, 1, at least {tokens}, {dim}] in tiles, got {table!r}",
        )


def _plan_halves(device: Device, heads: TensorSpec, cos: TensorSpec, sin: TensorSpec, memory_config, compute) -> Plan:
    _check_tables(HALVES, heads, cos, sin)
    dim = heads.shape[-1]
    require(
        dim == TILE or dim % (2 * TILE) == 0,
        HALVES,
        f"the head dim must be {TILE} or a multiple of {2 * TILE}, got {dim}",
    )
    return Plan((tensor_spec(heads.shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),))


@checked
def rotary_embedding_hf(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    is_decode_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Rotate heads [batch, heads, tokens, dim] by halves: [a*cos - b*sin, b*cos + a*sin], with the first `tokens`
    rows of the caches.
    """
    require(not is_decode_mode, HALVES, "decode mode is not modelled")
    tokens, dim = input_tensor.shape[-2], input_tensor.shape[-1]
    half = dim // 2

    def compute(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        cos, sin = cos[..., :tokens, :], sin[..., :tokens, :]
        rotated = heads * cos
        rotated[..., :half].addcmul_(heads[..., half:], sin[..., :half], value=-1)
        rotated[..., half:].addcmul_(heads[..., :half], sin[..., half:])
        return rotated

    return launch(
        HALVES, (input_tensor, cos_cache, sin_cache), (memory_config, compute_kernel_config), _plan_halves, compute
    )[0]


def _plan_pairs(
    device: Device, heads: TensorSpec, cos: TensorSpec, sin: TensorSpec, matrix: TensorSpec, memory_config, compute
) -> Plan:
    _check_tables(PAIRS, heads, cos, sin)
    dim = heads.shape[-1]
    require(
        dim % TILE == 0 and dim <= LARGEST_PAIRS_DIM,
        PAIRS,
        f"the head dim must be a multiple of {TILE} up to {LARGEST_PAIRS_DIM}, got {dim}",
    )
    require(
        dim <= LARGEST_PAIRS_DIM_IN_FLOAT32 or compute is None or not compute.fp32_dest_acc_en,
        PAIRS,
        f"a head dim above {LARGEST_PAIRS_DIM_IN_FLOAT32} needs fp32_dest_acc_en=False, got {dim}",
    )
    for spec in (heads, cos, sin, matrix):
        require(spec.dtype is DataType.BFLOAT16, PAIRS, f"all inputs must be BFLOAT16, got {spec!r}")
    require(
        matrix.shape == (1, 1, TILE, TILE) and matrix.layout is Layout.TILE,
        PAIRS,
        f"the transformation must be [1, 1, {TILE}, {TILE}] in tiles, got {matrix!r}",
    )
    return Plan((tensor_spec(heads.shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),))


@checked
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
    """heads * cos + (heads x transformation) * sin: the transformation [1, 1, 32, 32] acts on every 32 columns and
    swaps pairs.
    """
    require(not is_decode_mode, PAIRS, "decode mode is not modelled")
    tokens = input_tensor.shape[-2]

    def compute(
        heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, transformation: torch.Tensor
    ) -> torch.Tensor:
        cos, sin = cos[..., :tokens, :], sin[..., :tokens, :]
        swapped = (heads.reshape(-1, TILE) @ transformation.reshape(TILE, TILE)).reshape(heads.shape)
        return (heads * cos).addcmul_(swapped, sin)

    inputs = (input_tensor, cos_cache, sin_cache, trans_mat)
    return launch(PAIRS, inputs, (memory_config, compute_kernel_config), _plan_pairs, compute)[0]

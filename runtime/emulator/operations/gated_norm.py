"""The norm behind a linear attention, times the sigmoid of a gate: `experimental.kda.sigmoid_gated_rms_norm`.

Its rules and its buffers were read off the library's mock devices, the arithmetic off its kernel.
"""

from __future__ import annotations

import math

import torch

from ..arguments import checked
from ..configs import DRAM_MEMORY_CONFIG, MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import TILE_BYTES, DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "sigmoid_gated_rms_norm"
TYPES = (DataType.FLOAT32, DataType.BFLOAT16)


def _plan(device: Device, x: TensorSpec, gate: TensorSpec, weight: TensorSpec, *attributes) -> Plan:
    heads, epsilon, memory_config, compute, dtype, offset = attributes
    for name, spec, types in (("input", x, TYPES), ("gate", gate, TYPES[1:]), ("weight", weight, TYPES[1:])):
        require(
            spec.layout is Layout.TILE and spec.dtype in types,
            NAME,
            f"{name} must be {' or '.join(kind.name for kind in types)} in tiles, got {spec!r}",
        )
    require(dtype in TYPES, NAME, f"output_dtype must be FLOAT32 or BFLOAT16, got {dtype}")
    require(
        len(x.shape) == 3 and x.shape[0] % heads == 0,
        NAME,
        f"the input must be [batch * {heads} heads, tokens, value_dim], got {x!r}",
    )
    batch, tokens, width = x.shape[0] // heads, x.shape[1], x.shape[2]
    for name, size in (("tokens", tokens), ("value_dim", width), ("gate_column_offset", offset)):
        require(size % TILE == 0, NAME, f"{name} must be a multiple of {TILE}, got {size}")
    require(weight.shape == (width,), NAME, f"the weight must be [{width}], got {weight!r}")
    require(
        len(gate.shape) == 3 and gate.shape[:2] == (batch, tokens) and gate.shape[2] >= offset + heads * width,
        NAME,
        f"the gate must be [{batch}, {tokens}, {offset + heads * width} or more], got {gate!r}",
    )
    require(math.isfinite(epsilon) and epsilon > 0, NAME, f"epsilon must be finite and positive, got {epsilon}")
    require(
        compute is None or not compute.packer_l1_acc,
        NAME,
        "packer_l1_acc=True is refused: its kernel does not accumulate in L1",
    )
    output = tensor_spec((batch, tokens, heads * width), dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG)
    return Plan((output,), l1_bytes=buffer_bytes(width, x.dtype, dtype))


def buffer_bytes(value_dim: int, dtype: DataType, output_dtype: DataType) -> int:
    """What the program's buffers take on each core, in bytes: twice what goes in and out, and what lies between."""
    return 14336 + value_dim // TILE * (2 * TILE_BYTES[dtype] + 2 * TILE_BYTES[output_dtype] + 14336)


@checked
def sigmoid_gated_rms_norm(
    input: Tensor,
    gate: Tensor,
    weight: Tensor,
    num_heads: int,
    *,
    epsilon: float = 1e-5,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_dtype: DataType = DataType.FLOAT32,
    gate_column_offset: int = 0,
) -> Tensor:
    """x / sqrt(mean(x**2) + epsilon) * weight * sigmoid(gate) of x [batch * heads, tokens, value_dim] and gate [batch, tokens,
    heads * value_dim] -> [batch, tokens, heads * value_dim], in float32 until it is stored.
    """
    if num_heads < 0 or gate_column_offset < 0:
        raise TypeError(f"{NAME}(): num_heads and gate_column_offset must be whole numbers from 0 on")
    require(num_heads > 0, NAME, "num_heads must be positive")

    def compute(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        normed = (x * scale).mul_(weight).unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)
        return normed.mul_(torch.sigmoid(gate[..., gate_column_offset : gate_column_offset + normed.shape[-1]]))

    attributes = (num_heads, epsilon, memory_config, compute_kernel_config, output_dtype, gate_column_offset)
    return launch(NAME, (input, gate, weight), attributes, _plan, compute)[0]

"""Root mean square normalisation."""

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

NAME = "rms_norm"


def _plan(device: Device, hidden: TensorSpec, weight: TensorSpec, epsilon, memory_config, compute) -> Plan:
    require(hidden.layout is Layout.TILE, NAME, "the input must be in tiles")
    require(
        hidden.dtype in (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.FLOAT32),
        NAME,
        f"the input must be BFLOAT16, BFLOAT8_B or FLOAT32, got {hidden.dtype.name}",
    )
    width = hidden.shape[-1]
    require(
        weight.dtype in (DataType.BFLOAT16, DataType.FLOAT32),
        NAME,
        f"the weight must be BFLOAT16 or FLOAT32, got {weight!r}",
    )
    if weight.layout is Layout.ROW_MAJOR:
        require(
            weight.shape[-1] == TILE and weight.volume == width,
            NAME,
            f"a row-major weight must be rows of {TILE} with {width} values in all, got {weight!r}",
        )
    else:
        require(
            weight.shape[-1] == width and weight.volume == width,
            NAME,
            f"the weight must be one row of {width}, got {weight!r}",
        )
    return Plan((tensor_spec(hidden.shape, hidden.dtype, Layout.TILE, memory_config or hidden.memory_config),))


@checked
def rms_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """x / sqrt(mean(x**2) + epsilon) * weight along the last dimension, in float32. The weight is [1, 1, width / 32,
    32] or a row.
    """

    def compute(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = hidden.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        return (hidden * scale).mul_(weight.reshape(-1))

    return launch(NAME, (input_tensor, weight), (epsilon, memory_config, compute_kernel_config), _plan, compute)[0]

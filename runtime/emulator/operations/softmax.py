"""Softmax along the last dimension."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "softmax"


def _plan(device: Device, scores: TensorSpec, memory_config, compute) -> Plan:
    require(
        scores.layout is Layout.TILE and scores.is_float and scores.dtype is not DataType.BFLOAT4_B,
        NAME,
        f"the input must be BFLOAT16, BFLOAT8_B or FLOAT32 in tiles, got {scores!r}",
    )
    return Plan((tensor_spec(scores.shape, scores.dtype, Layout.TILE, memory_config or scores.memory_config),))


@checked
def softmax(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    numeric_stable: bool = True,
) -> Tensor:
    """exp(x - max) / sum along the last dimension, in float32 and stored in the type of the input; padding has no part in it."""
    rank = len(input_tensor.spec.shape)
    require(dim in (-1, rank - 1), NAME, f"only the last dimension is modelled, got dim={dim} of rank {rank}")
    require(numeric_stable, NAME, "only the form that subtracts the largest value is modelled")

    def compute(scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1)

    return launch(NAME, (input_tensor,), (memory_config, compute_kernel_config), _plan, compute)[0]

"""Running sums, and dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..arguments import checked
from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

SUMMED = (DataType.BFLOAT16, DataType.FLOAT32)


def _plan_cumsum(device: Device, source: TensorSpec, dim, dtype, memory_config) -> Plan:
    require(
        source.layout is Layout.TILE and source.dtype in SUMMED,
        "cumsum",
        f"the input must be BFLOAT16 or FLOAT32 in tiles, got {source!r}",
    )
    made = dtype or source.dtype
    require(
        made is source.dtype or made is DataType.FLOAT32,
        "cumsum",
        f"the output must be of the input's type or FLOAT32 (the library casts what it sums), got {made.name} of {source!r}",
    )
    return Plan((tensor_spec(source.shape, made, Layout.TILE, memory_config or source.memory_config),))


@checked
def cumsum(
    input: Tensor, dim: int, *, dtype: DataType | None = None, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Sums of each value and all before it along a dimension, in the output's type."""
    rank = len(input.spec.shape)
    require(-rank <= dim < rank, "cumsum", f"dimension {dim} is outside rank {rank}")
    return launch("cumsum", (input,), (dim, dtype, memory_config), _plan_cumsum, lambda values: values.cumsum(dim))[0]


def _plan_permute(device: Device, source: TensorSpec, dims, memory_config) -> Plan:
    require(
        source.layout is Layout.TILE and source.dtype in SUMMED,
        "permute",
        f"the input must be BFLOAT16 or FLOAT32 in tiles, got {source!r}",
    )
    shape = tuple(source.shape[dim] for dim in dims)
    return Plan((tensor_spec(shape, source.dtype, Layout.TILE, memory_config or source.memory_config),), moves=True)


@checked
def permute(input_tensor: Tensor, dims: Sequence[int], *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Dimensions in another order."""
    rank, order = len(input_tensor.spec.shape), tuple(dims)
    if not all(isinstance(dim, int) and not isinstance(dim, bool) for dim in order):
        raise TypeError(f"permute(): dims must be whole numbers, got {list(order)}")
    require(
        all(-rank <= dim < rank for dim in order) and sorted(dim % rank for dim in order) == list(range(rank)),
        "permute",
        f"{list(order)} names not every one of {rank} dimensions once",
    )
    order = tuple(dim % rank for dim in order)

    def compute(values: torch.Tensor) -> torch.Tensor:
        return values.permute(order).contiguous()

    return launch("permute", (input_tensor,), (order, memory_config), _plan_permute, compute)[0]

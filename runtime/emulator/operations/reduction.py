"""Searches along the last dimension."""

from __future__ import annotations

import torch

from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor


def _plan_argmax(device: Device, scores: TensorSpec, keepdim, memory_config) -> Plan:
    require(
        scores.dtype in (DataType.BFLOAT16, DataType.FLOAT32),
        "argmax",
        f"scores must be BFLOAT16 or FLOAT32, got {scores!r}",
    )
    shape = (*scores.shape[:-1], 1) if keepdim else scores.shape[:-1]
    return Plan((tensor_spec(shape, DataType.UINT32, Layout.ROW_MAJOR, memory_config or scores.memory_config),))


def argmax(
    input_tensor: Tensor, dim: int | None = None, keepdim: bool = False, *, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Index of the largest value along the last dimension, the first one among equals."""
    rank = len(input_tensor.spec.shape)
    require(dim in (-1, rank - 1), "argmax", f"only the last dimension is modelled, got dim={dim} of rank {rank}")
    return launch(
        "argmax",
        (input_tensor,),
        (keepdim, memory_config),
        _plan_argmax,
        lambda scores: scores.argmax(-1, keepdim=keepdim),
    )[0]


def _plan_topk(device: Device, scores: TensorSpec, k: int, memory_config) -> Plan:
    require(scores.layout is Layout.TILE and scores.is_float, "topk", f"scores must be floats in tiles, got {scores!r}")
    require(
        0 < k <= scores.shape[-1], "topk", f"k must be between 1 and the {scores.shape[-1]} scores of a row, got {k}"
    )
    place = memory_config or scores.memory_config
    shape = (*scores.shape[:-1], k)
    wide = scores.shape[-1] > 2**16 or scores.dtype is DataType.FLOAT32
    index = DataType.UINT32 if wide else DataType.UINT16
    return Plan(
        (tensor_spec(shape, scores.dtype, Layout.TILE, place), tensor_spec(shape, index, Layout.TILE, place)),
        moves=True,
    )


def topk(
    input_tensor: Tensor,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    memory_config: MemoryConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """The k largest values along the last dimension, descending, and their indices; equal values by ascending index."""
    rank = len(input_tensor.spec.shape)
    require(dim in (-1, rank - 1), "topk", f"only the last dimension is modelled, got dim={dim} of rank {rank}")
    require(largest and sorted, "topk", "only the largest values in descending order are modelled")

    def compute(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        indices = _ordered(scores).topk(k, dim=-1).indices
        return scores.gather(-1, indices), indices

    return launch("topk", (input_tensor,), (k, memory_config), _plan_topk, compute)


def _ordered(scores: torch.Tensor) -> torch.Tensor:
    """Unlike integers in the order of the scores and, among equals, of falling index: the bits of a float32 above its
    column.
    """
    pattern = (scores + 0.0).view(torch.int32)  # one zero instead of two
    rising = torch.where(pattern < 0, pattern ^ 0x7FFFFFFF, pattern).long()
    return (rising << 32) - torch.arange(scores.shape[-1])

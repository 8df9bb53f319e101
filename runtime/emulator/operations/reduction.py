"""Searches, sums and look-ups along the last dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..arguments import checked
from ..configs import MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import BLOCK_FLOATS, DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor


def _check_type(name: str, spec: TensorSpec) -> None:
    require(
        spec.layout is Layout.TILE and spec.is_float and spec.dtype is not DataType.BFLOAT4_B,
        name,
        f"the input must be BFLOAT16, BFLOAT8_B or FLOAT32 in tiles, got {spec!r}",
    )


def _plan_argmax(device: Device, scores: TensorSpec, keepdim, memory_config) -> Plan:
    require(
        scores.dtype in (DataType.BFLOAT16, DataType.FLOAT32),
        "argmax",
        f"scores must be BFLOAT16 or FLOAT32, got {scores!r}",
    )
    shape = (*scores.shape[:-1], 1) if keepdim else scores.shape[:-1]
    return Plan((tensor_spec(shape, DataType.UINT32, Layout.ROW_MAJOR, memory_config or scores.memory_config),))


@checked
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
    _check_type("topk", scores)
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


@checked
def topk(
    input_tensor: Tensor,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    memory_config: MemoryConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """The k largest values along the last dimension, descending, and their indices.

    Indices are UINT32 where the scores are FLOAT32 or more than 65536 in a row, UINT16 elsewhere. Among equal values
    the lowest index comes first, also where not all of them are among the k. The library promises no order there: it is
    chosen here so that the first candidate is what argmax finds.
    """
    rank = len(input_tensor.spec.shape)
    require(dim in (-1, rank - 1), "topk", f"only the last dimension is modelled, got dim={dim} of rank {rank}")
    require(largest and sorted, "topk", "only the largest values in descending order are modelled")

    return launch("topk", (input_tensor,), (k, memory_config), _plan_topk, lambda scores: _first_largest(scores, k))


def _first_largest(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a stable descending sort begins with, without sorting whole rows where no NaN is among them."""
    if bool(scores.isnan().any()):
        values, indices = scores.sort(dim=-1, descending=True, stable=True)
        return values[..., :k].contiguous(), indices[..., :k].contiguous()
    largest = scores.topk(k, -1).values
    smallest = largest[..., -1:]
    equal = scores == smallest
    wanted = (largest == smallest).sum(-1, keepdim=True)
    taken = (scores > smallest) | equal & (equal.cumsum(-1, dtype=torch.int32) <= wanted)
    indices = taken.nonzero()[:, -1].reshape(smallest.shape[:-1] + (k,))
    values, order = scores.gather(-1, indices).sort(dim=-1, descending=True, stable=True)
    return values, indices.gather(-1, order)


def _plan_reduction(device: Device, source: TensorSpec, name, keepdim, memory_config, compute) -> Plan:
    _check_type(name, source)
    shape = (*source.shape[:-1], 1) if keepdim else source.shape[:-1]
    return Plan((tensor_spec(shape, source.dtype, Layout.TILE, memory_config or source.memory_config),))


def _reduced(name, function, tensor, dim, keepdim, memory_config, compute_kernel_config) -> Tensor:
    rank = len(tensor.spec.shape)
    require(dim in (-1, rank - 1), name, f"only the last dimension is modelled, got dim={dim} of rank {rank}")
    attributes = (name, keepdim, memory_config, compute_kernel_config)
    return launch(name, (tensor,), attributes, _plan_reduction, lambda values: function(values, -1, keepdim=keepdim))[0]


@checked
def max(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """The largest value along the last dimension, in the type of the input."""
    return _reduced("max", torch.amax, input_tensor, dim, keepdim, memory_config, compute_kernel_config)


@checked
def sum(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """The sum along the last dimension, accumulated in float32 and stored in the type of the input."""
    return _reduced("sum", torch.sum, input_tensor, dim, keepdim, memory_config, compute_kernel_config)


def _plan_gather(device: Device, source: TensorSpec, index: TensorSpec, memory_config) -> Plan:
    require(source.layout is Layout.TILE and index.layout is Layout.TILE, "gather", "both inputs must be in tiles")
    require(
        index.dtype in (DataType.UINT32, DataType.UINT16),
        "gather",
        f"the index must be UINT32 or UINT16, got {index.dtype.name}",
    )
    require(
        len(index.shape) == len(source.shape) and index.shape[:-1] == source.shape[:-1],
        "gather",
        f"the index must have the rows of the input, got {list(index.shape)} for {list(source.shape)}",
    )
    output = tensor_spec(index.shape, source.dtype, Layout.TILE, memory_config or source.memory_config)
    return Plan((output,), moves=source.dtype not in BLOCK_FLOATS)


@checked
def gather(input: Tensor, dim: int, index: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The values [.., rows, picked] at the columns of [.., rows, columns] that `index` names; none may lie outside."""
    rank = len(input.spec.shape)
    require(dim in (-1, rank - 1), "gather", f"only the last dimension is modelled, got dim={dim} of rank {rank}")

    def check(values: torch.Tensor, index: torch.Tensor) -> None:
        largest, columns = int(index.max()), values.shape[-1]
        if largest >= columns:
            raise EmulatorError("gather", f"index {largest} is outside the row of {columns} values")

    def compute(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return values.gather(-1, index)

    return launch("gather", (input, index), (memory_config,), _plan_gather, compute, check=check)[0]

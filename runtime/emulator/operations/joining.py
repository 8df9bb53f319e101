"""Tensors joined, repeated, and written over another one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..arguments import checked
from ..configs import DRAM_MEMORY_CONFIG, MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import FLOATS, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor, view
from .experts import rounding_of


def _plan_copy(device: Device, source: TensorSpec, target: TensorSpec) -> Plan:
    require(
        source.shape == target.shape,
        "copy",
        f"both must have one shape, got {list(source.shape)} and {list(target.shape)}",
    )
    require(source.layout is target.layout, "copy", f"both must have one layout, got {source!r} and {target!r}")
    require(
        source.dtype is target.dtype or source.layout is Layout.TILE,
        "copy",
        f"only tiles change their type, got {source!r} and {target!r}",
    )
    require(
        source.dtype is target.dtype or {source.dtype, target.dtype} <= FLOATS,
        "copy",
        f"only casts between floats are modelled, got {source.dtype.name} to {target.dtype.name}",
    )
    return Plan(())


@checked
def copy(input_a: Tensor, input_b: Tensor) -> Tensor:
    """The values of the first written over those of the second, in its type. Returns the second."""
    if input_a.spec.dtype is input_b.spec.dtype:
        rounded = None
    else:
        rounding, dtype = rounding_of(input_b), input_b.spec.dtype

        def rounded(values: torch.Tensor) -> torch.Tensor:
            return rounding(values, dtype)

    def compute(source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source if rounded is None else rounded(source))

    launch("copy", (input_a, input_b), (), _plan_copy, compute, in_place=1)
    return Tensor(input_b.spec, ownership=input_b.ownership)


def _dimension(name: str, dim: int, rank: int) -> int:
    require(-rank <= dim < rank, name, f"dimension {dim} is outside rank {rank}")
    return dim % rank


def _plan_concat(device: Device, first: TensorSpec, *rest) -> Plan:
    *others, dim, memory_config = rest
    size = first.shape[dim]
    for spec in others:
        require(
            spec.dtype is first.dtype and spec.layout is first.layout,
            "concat",
            f"all must have one type and layout (other layouts are not modelled), got {first!r} and {spec!r}",
        )
        require(
            len(spec.shape) == len(first.shape)
            and all(here == there for axis, (here, there) in enumerate(zip(spec.shape, first.shape)) if axis != dim),
            "concat",
            f"all must have the same sizes but along dimension {dim}, got {list(first.shape)} and {list(spec.shape)}",
        )
        size += spec.shape[dim]
    require(
        first.layout is Layout.ROW_MAJOR
        or dim < len(first.shape) - 2
        or all(spec.shape[dim] % TILE == 0 for spec in (first, *others)),
        "concat",
        f"tiles are joined along whole tiles only (others go through rows, which is not modelled), got {list(first.shape)} "
        f"along dimension {dim}",
    )
    shape = (*first.shape[:dim], size, *first.shape[dim + 1 :])
    return Plan((tensor_spec(shape, first.dtype, first.layout, memory_config or DRAM_MEMORY_CONFIG),), moves=True)


@checked
def concat(tensors: Sequence[Tensor], dim: int = 0, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Tensors one behind another along a dimension, in DRAM where no place is stated. One that is alone and lies there
    already is returned as another handle on the same memory.
    """
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise TypeError("concat(): incompatible function arguments: tensors: expected a sequence of Tensors")
    if not tensors:
        raise EmulatorError("concat", "there must be a tensor to join")
    first = tensors[0]
    axis = _dimension("concat", dim, len(first.spec.shape))
    if len(tensors) == 1 and first.spec.memory_config == (memory_config or DRAM_MEMORY_CONFIG):
        first.buffer("concat")
        return view(first, first.spec)

    def compute(*values: torch.Tensor) -> torch.Tensor:
        return torch.cat(values, axis)

    return launch("concat", tuple(tensors), (axis, memory_config), _plan_concat, compute)[0]


def _plan_repeat(device: Device, source: TensorSpec, repeats: int, dim: int, memory_config) -> Plan:
    require(
        dim < len(source.shape) - 2,
        "repeat_interleave",
        f"only dimensions in front of the rows are modelled, got {dim} of {list(source.shape)}",
    )
    shape = (*source.shape[:dim], source.shape[dim] * repeats, *source.shape[dim + 1 :])
    return Plan((tensor_spec(shape, source.dtype, source.layout, memory_config or source.memory_config),), moves=True)


@checked
def repeat_interleave(
    input_tensor: Tensor, repeats: int, dim: int, *, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Every matrix along a dimension in front of the rows, so many times one behind another. Once is another handle on the
    same memory.
    """
    axis = _dimension("repeat_interleave", dim, len(input_tensor.spec.shape))
    require(repeats > 0, "repeat_interleave", f"repeats must be positive, got {repeats}")
    if repeats == 1 and (memory_config or input_tensor.spec.memory_config) == input_tensor.spec.memory_config:
        input_tensor.buffer("repeat_interleave")
        return view(input_tensor, input_tensor.spec)

    def compute(values: torch.Tensor) -> torch.Tensor:
        return values.repeat_interleave(repeats, axis)

    attributes = (repeats, axis, memory_config)
    return launch("repeat_interleave", (input_tensor,), attributes, _plan_repeat, compute)[0]

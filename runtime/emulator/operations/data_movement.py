"""Views, slices, transposition and layout changes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import torch

from ..arguments import checked
from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch, require_values
from ..dtypes import BLOCK_FLOATS, DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor, view


@checked
def unsqueeze_to_4D(tensor: Tensor) -> Tensor:
    """The same memory seen as four dimensions, with ones in front."""
    shape = tensor.spec.shape
    if tensor.is_on_device():
        tensor.buffer("unsqueeze_to_4D")
    require(len(shape) <= 4, "unsqueeze_to_4D", f"rank {len(shape)} is greater than 4")
    return _reshaped(tensor, (1,) * (4 - len(shape)) + shape)


def _reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    spec = tensor.spec
    return view(tensor, tensor_spec(shape, spec.dtype, spec.layout, spec.memory_config))


RESHAPED_TYPES = (DataType.BFLOAT16, DataType.FLOAT32, DataType.UINT32, DataType.INT32, *BLOCK_FLOATS)


def _plan_reshape(device: Device, source: TensorSpec, shape, memory_config) -> Plan:
    require(
        source.dtype in RESHAPED_TYPES,
        "reshape",
        f"{list(source.shape)} to {list(shape)} moves values, which {source.dtype.name} cannot",
    )
    output = tensor_spec(shape, source.dtype, source.layout, memory_config)
    return Plan((output,), moves=source.dtype not in BLOCK_FLOATS)


def _is_view(spec: TensorSpec, sizes: tuple[int, ...]) -> bool:
    """Whether every tile (or row) stays whole, so that the same memory can be seen under both shapes."""
    rows, width = (1, 1, *spec.shape)[-2:]
    new_rows, new_width = (1, 1, *sizes)[-2:]
    if spec.layout is Layout.ROW_MAJOR:
        return width == new_width or spec.volume == 0
    return width == new_width and (rows == new_rows or rows % TILE == 0 and new_rows % TILE == 0)


@checked
def reshape(input_tensor: Tensor, shape: Sequence[int], *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Another shape of the same volume: on the same memory where tiles or rows stay whole and in place, or a copy."""
    sizes = tuple(shape)
    spec = input_tensor.spec
    if -1 in sizes:
        known = 1
        for size in sizes:
            known *= size if size != -1 else 1
        require(
            sizes.count(-1) == 1 and known and spec.volume % known == 0, "reshape", f"cannot infer -1 in {list(sizes)}"
        )
        sizes = tuple(spec.volume // known if size == -1 else size for size in sizes)
    target = tensor_spec(sizes, spec.dtype, spec.layout, spec.memory_config)
    require(target.volume == spec.volume, "reshape", f"{list(spec.shape)} and {list(sizes)} differ in volume")
    if input_tensor.is_on_device():
        input_tensor.buffer("reshape")
    place = memory_config or spec.memory_config
    if not input_tensor.is_on_device() or (place == spec.memory_config and _is_view(spec, sizes)):
        return view(input_tensor, target)
    return launch("reshape", (input_tensor,), (sizes, place), _plan_reshape, lambda values: values.reshape(sizes))[0]


def _plan_transpose(device: Device, source: TensorSpec, memory_config) -> Plan:
    shape = (source.shape[1], source.shape[0], *source.shape[2:])
    return Plan((tensor_spec(shape, source.dtype, source.layout, memory_config or source.memory_config),), moves=True)


@checked
def transpose(input_tensor: Tensor, dim1: int, dim2: int, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Exchange the first two of four dimensions, which moves whole matrices. Other pairs are refused."""
    rank = len(input_tensor.spec.shape)
    for dim in (dim1, dim2):
        require(-rank <= dim < rank, "transpose", f"dimension {dim} is outside rank {rank}")
    require(
        rank == 4 and {dim1 % rank, dim2 % rank} == {0, 1},
        "transpose",
        f"only the first two of four dimensions are modelled, got {dim1} and {dim2} of {list(input_tensor.spec.shape)}",
    )

    def compute(values: torch.Tensor) -> torch.Tensor:
        return values.transpose(0, 1).contiguous()

    return launch("transpose", (input_tensor,), (memory_config,), _plan_transpose, compute)[0]


def _plan_slice(device: Device, source: TensorSpec, start, end, memory_config) -> Plan:
    """A range that begins inside a tile is taken from rows, which hold no block floats: they come back as bfloat16."""
    shape = tuple(high - low for low, high in zip(start, end))
    whole_tiles = source.layout is Layout.ROW_MAJOR or all(low % TILE == 0 for low in start[-2:])
    dtype = source.dtype if whole_tiles else _type_in_rows("slice", source)
    return Plan((tensor_spec(shape, dtype, source.layout, memory_config or source.memory_config),), moves=True)


def _type_in_rows(name: str, source: TensorSpec) -> DataType:
    require(source.dtype is not DataType.BFLOAT4_B, name, f"BFLOAT4_B cannot be laid out in rows, got {source!r}")
    return DataType.BFLOAT16 if source.dtype in BLOCK_FLOATS else source.dtype


@checked
def slice(
    input_tensor: Tensor,
    slice_start: Sequence[int],
    slice_end: Sequence[int],
    slice_step: Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Values from `slice_start` up to but without `slice_end` in each dimension."""
    start, end, shape = tuple(slice_start), tuple(slice_end), input_tensor.spec.shape
    require(slice_step is None or set(slice_step) == {1}, "slice", f"only steps of 1 are modelled, got {slice_step}")
    require(
        len(start) == len(end) == len(shape)
        and all(0 <= low < high <= size for low, high, size in zip(start, end, shape)),
        "slice",
        f"the range {list(start)} to {list(end)} is not inside {list(shape)}",
    )
    windows = tuple(builtins.slice(low, high) for low, high in zip(start, end))
    return launch(
        "slice", (input_tensor,), (start, end, memory_config), _plan_slice, lambda values: values[windows].contiguous()
    )[0]


def _plan_layout(device: Device, source: TensorSpec, layout, memory_config) -> Plan:
    dtype = _type_in_rows("to_layout", source) if layout is Layout.ROW_MAJOR else source.dtype
    return Plan((tensor_spec(source.shape, dtype, layout, memory_config or source.memory_config),), moves=True)


@checked
def to_layout(tensor: Tensor, layout: Layout, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The same values in tiles or in rows; in the layout that it has already, another handle on the same memory."""
    if tensor.spec.layout is layout:
        tensor.buffer("to_layout")
        require_values("to_layout", tensor.spec)
        return view(tensor, tensor.spec)
    return launch("to_layout", (tensor,), (layout, memory_config), _plan_layout, lambda values: values)[0]

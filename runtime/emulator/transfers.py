"""Between torch, host tensors and device tensors; and making and freeing tensors."""

from __future__ import annotations

import mmap
import sys
from math import prod
from typing import Any

import torch

from .arguments import checked
from .configs import DRAM_MEMORY_CONFIG, MemoryConfig
from .device import Device
from .dtypes import BLOCK_FLOATS, FLOATS, INTEGER_RANGES, TORCH_DTYPES, DataType, Layout, round_to
from .errors import EmulatorError, require
from .storage import Buffer, Ownership, TensorSpec, tensor_spec
from .tensor import Tensor, view

DEFAULT_DTYPES = {
    torch.float32: DataType.FLOAT32,
    torch.bfloat16: DataType.BFLOAT16,
    torch.int32: DataType.INT32,
    torch.int64: DataType.UINT32,
    torch.uint32: DataType.UINT32,
    torch.uint16: DataType.UINT16,
}


def from_torch(
    tensor: torch.Tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: Any = None,
    cq_id: int | None = None,
) -> Tensor:
    """A tensor with the values of a torch tensor, never its memory. On the host without `device`."""
    name = "from_torch"
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}(): expected a torch.Tensor, got {type(tensor).__name__}")
    require(mesh_mapper is None, name, "placements over a mesh are not modelled; leave mesh_mapper out")
    if dtype is None:
        require(tensor.dtype in DEFAULT_DTYPES, name, f"no default dtype for {tensor.dtype}; state dtype=")
        dtype = DEFAULT_DTYPES[tensor.dtype]
    if layout is None:
        layout = Layout.TILE if dtype in BLOCK_FLOATS else Layout.ROW_MAJOR
    spec = tensor_spec(tuple(tensor.shape), dtype, layout, memory_config or DRAM_MEMORY_CONFIG)
    values = _convert(name, tensor.detach(), dtype)
    if device is not None:
        return _upload(name, device, spec, values, borrowed=_same_memory(values, tensor))
    return Tensor(spec, host_values=values.clone() if _same_memory(values, tensor) else values)


def _convert(name: str, tensor: torch.Tensor, dtype: DataType) -> torch.Tensor:
    if dtype in FLOATS:
        return tensor.float().contiguous()
    if tensor.dtype.is_floating_point:
        require(
            bool((tensor == tensor.trunc()).all()), name, f"values with a fraction cannot be stored as {dtype.name}"
        )
    values = tensor.to(torch.int64).contiguous()
    if values.numel():
        low, high = INTEGER_RANGES[dtype]
        smallest, largest = (int(bound) for bound in torch.aminmax(values))
        for value in (smallest, largest):
            require(low <= value <= high, name, f"value {value} does not fit {dtype.name}, which holds {low} to {high}")
    return values


def _same_memory(values: torch.Tensor, tensor: torch.Tensor) -> bool:
    return values.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def _refuse_in_capture(device: Device, name: str) -> None:
    if device.capturing:
        raise EmulatorError(name, "the host may neither read nor write device memory during trace capture")


def _upload(
    name: str, device: Device, spec: TensorSpec, values: torch.Tensor, *, borrowed: bool, exact: bool = False
) -> Tensor:
    device.enter(name)
    _refuse_in_capture(device, name)
    owner = Ownership(Buffer(spec, device, name))
    _write(device, owner.buffer, values, borrowed=borrowed, exact=exact)
    return Tensor(spec, ownership=owner)


def _write(device: Device, buffer: Buffer, values: torch.Tensor, *, borrowed: bool, exact: bool = False) -> None:
    """`exact` values are representable as they are."""
    rounded = values if exact else device.round(values, buffer.spec)
    buffer.values = rounded.clone() if borrowed and rounded is values else rounded
    buffer.shared = False
    device.trace_memory.was_written(buffer)
    device.counters.uploads += 1
    device.counters.upload_bytes += buffer.spec.pages * buffer.spec.page_bytes


def _read(name: str, tensor: Tensor) -> torch.Tensor:
    buffer = tensor.buffer(name)
    device = buffer.device
    device.enter(name)
    _refuse_in_capture(device, name)
    device.trace_memory.was_read(buffer)
    device.counters.reads += 1
    device.counters.read_bytes += buffer.spec.pages * buffer.spec.page_bytes
    return buffer.read().reshape(tensor.spec.shape)


def to_torch(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    torch_rank: int | None = None,
    mesh_composer: Any = None,
    device: Device | None = None,
    cq_id: int | None = None,
) -> torch.Tensor:
    """A copy of the values. bfloat16 comes back as torch.bfloat16, or as float32 where nothing was rounded (float32
    mode).
    """
    name = "to_torch"
    require(mesh_composer is None, name, "placements over a mesh are not modelled; leave mesh_composer out")
    spec = tensor.spec
    if tensor.is_on_device():
        values = _read(name, tensor)
        exact = tensor.ownership.buffer.device.precision == "float32"
    else:
        values, exact = tensor.host_values, tensor.host_exact
        if spec.is_float and not exact:
            values = round_to(values, spec.dtype)
    target = torch.float32 if exact and spec.is_float else TORCH_DTYPES[spec.dtype]
    result = values.to(dtype or target)
    result = (
        result.clone(memory_format=torch.contiguous_format) if _same_memory(result, values) else result.contiguous()
    )
    if torch_rank is not None:
        while result.dim() > torch_rank:
            require(result.shape[0] == 1, name, f"shape {list(spec.shape)} cannot be squeezed to rank {torch_rank}")
            result = result[0]
    return result


@checked
def to_device(
    tensor: Tensor, device: Device, memory_config: MemoryConfig | None = None, *, cq_id: int | None = None
) -> Tensor:
    """Copy a host tensor to the device; a tensor that is there already is returned as another handle on the same
    memory.
    """
    if tensor.is_on_device():
        tensor.buffer("to_device")
        return view(tensor, tensor.spec)
    spec = tensor.spec
    spec = tensor_spec(spec.shape, spec.dtype, spec.layout, memory_config or spec.memory_config)
    return _upload("to_device", device, spec, tensor.host_values, borrowed=True)


@checked
def from_device(tensor: Tensor, blocking: bool = True, *, cq_id: int | None = None) -> Tensor:
    """Copy a device tensor to the host; a host tensor is returned as it is."""
    if not tensor.is_on_device():
        return tensor
    values = _read("from_device", tensor).clone(memory_format=torch.contiguous_format)
    return Tensor(tensor.spec, host_values=values, host_exact=tensor.ownership.buffer.device.precision == "float32")


@checked
def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, cq_id: int | None = None) -> None:
    """Write a host tensor into a device tensor in place. Allocates nothing; shapes, types and layouts must agree."""
    name = "copy_host_to_device_tensor"
    require(not host_tensor.is_on_device(), name, "the first tensor must be on the host")
    buffer = device_tensor.buffer(name)
    source, target = host_tensor.spec, device_tensor.spec
    require(
        source.shape == target.shape, name, f"shapes differ: host {list(source.shape)}, device {list(target.shape)}"
    )
    require(source.dtype is target.dtype, name, f"dtypes differ: host {source.dtype.name}, device {target.dtype.name}")
    require(
        source.layout is target.layout, name, f"layouts differ: host {source.layout.name}, device {target.layout.name}"
    )
    device = buffer.device
    device.enter(name)
    _refuse_in_capture(device, name)
    _write(device, buffer, host_tensor.host_values.reshape(buffer.spec.shape), borrowed=True)


@checked
def copy_device_to_host_tensor(
    device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: int | None = None
) -> None:
    """Read a device tensor into a host tensor in place; shapes, types and layouts must agree."""
    name = "copy_device_to_host_tensor"
    require(not host_tensor.is_on_device(), name, "the second tensor must be on the host")
    device_tensor.buffer(name)
    source, target = device_tensor.spec, host_tensor.spec
    require(
        source.shape == target.shape, name, f"shapes differ: device {list(source.shape)}, host {list(target.shape)}"
    )
    require(source.dtype is target.dtype, name, f"dtypes differ: device {source.dtype.name}, host {target.dtype.name}")
    require(
        source.layout is target.layout, name, f"layouts differ: device {source.layout.name}, host {target.layout.name}"
    )
    host_tensor.host_values = _read(name, device_tensor).clone(memory_format=torch.contiguous_format)
    host_tensor.host_exact = device_tensor.ownership.buffer.device.precision == "float32"


@checked
def allocate_tensor_on_device(
    shape: Any, dtype: DataType, layout: Layout, mesh_device: Device, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Memory without values: it reads as NaN until something is written."""
    mesh_device.enter("allocate_tensor_on_device")
    spec = tensor_spec(tuple(shape), dtype, layout, memory_config or DRAM_MEMORY_CONFIG)
    buffer = Buffer(spec, mesh_device, "allocate_tensor_on_device")
    if mesh_device.recording is not None:
        mesh_device.recording.own(buffer)
    return Tensor(spec, ownership=Ownership(buffer))


@checked
def empty(
    shape: Any,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.ROW_MAJOR,
    *,
    device: Device,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """Memory without values: it reads as NaN until something is written."""
    return allocate_tensor_on_device(shape, dtype, layout, device, memory_config)


@checked
def zeros(
    shape: Any,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    dtype = dtype or DataType.BFLOAT16
    layout = layout or (Layout.TILE if dtype in BLOCK_FLOATS else Layout.ROW_MAJOR)
    require(device is not None or memory_config is None, "zeros", "memory_config is of a device, which is not stated")
    spec = tensor_spec(tuple(shape), dtype, layout, memory_config or DRAM_MEMORY_CONFIG)
    values = _lazy_zeros(spec.shape, torch.float32 if spec.is_float else torch.int64)
    if device is None:
        return Tensor(spec, host_values=values)
    return _upload("zeros", device, spec, values, borrowed=False, exact=True)


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take host memory page by page as they are written: a cache is large and mostly empty."""
    if 0 in shape:
        return torch.zeros(shape, dtype=dtype)
    pages = mmap.mmap(-1, prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype, count=prod(shape)).view(shape)


def deallocate(tensor: Tensor, force: bool = True) -> None:
    """Free the memory now; without `force` only where no other handle shares it. Freeing twice is counted and does
    nothing.
    """
    if not tensor.is_on_device():
        return
    buffer = tensor.ownership.buffer
    if not force and sys.getrefcount(tensor.ownership) > 2:  # the handle's reference and the call's own
        return
    buffer.device.enter("deallocate")
    if not buffer.allocated:
        buffer.device.counters.double_frees += 1
        return
    buffer.free()

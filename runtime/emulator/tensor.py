"""The tensor handle that callers hold: on the device (a buffer with an address) or on the host (plain values)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import torch

from .configs import MemoryConfig
from .dtypes import DataType, Layout
from .errors import EmulatorError
from .storage import Buffer, Ownership, Shape, TensorSpec

if TYPE_CHECKING:
    from .device import Device


class StorageType(Enum):
    HOST = 0
    DEVICE = 1


class Tensor:
    """A handle. Device memory is given back with the last handle on it, or by `deallocate`, whichever is first.

    `host_values` are unrounded, because only the device that they go to knows its precision; `host_exact` marks
    values that came from a device and must not be rounded again.
    """

    __slots__ = ("spec", "ownership", "host_values", "host_exact", "__weakref__")

    def __init__(
        self,
        spec: TensorSpec,
        *,
        ownership: Ownership | None = None,
        host_values: torch.Tensor | None = None,
        host_exact: bool = False,
    ):
        self.spec = spec
        self.ownership = ownership
        self.host_values = host_values
        self.host_exact = host_exact

    @property
    def shape(self) -> Shape:
        return Shape(self.spec.shape)

    @property
    def padded_shape(self) -> Shape:
        return Shape(self.spec.padded_shape)

    @property
    def dtype(self) -> DataType:
        return self.spec.dtype

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    def memory_config(self) -> MemoryConfig:
        return self.spec.memory_config

    def storage_type(self) -> StorageType:
        return StorageType.HOST if self.ownership is None else StorageType.DEVICE

    def device(self) -> Device | None:
        return self.ownership.buffer.device if self.is_on_device() and self.is_allocated() else None

    def is_on_device(self) -> bool:
        return self.ownership is not None

    def is_allocated(self) -> bool:
        return self.ownership is None or self.ownership.buffer.allocated

    def buffer_address(self) -> int:
        return self.buffer("buffer_address").address

    def buffer(self, operation: str) -> Buffer:
        """The buffer, or a refusal: host tensors have none and a freed one may not be used."""
        if self.ownership is None:
            raise EmulatorError(operation, f"the tensor {self.spec!r} is on the host; this needs one on the device")
        buffer = self.ownership.buffer
        if not buffer.allocated:
            raise EmulatorError(
                operation,
                f"the tensor {self.spec!r} is not allocated: it was deallocated before this use "
                f"(address {buffer.address})",
            )
        return buffer

    def __repr__(self) -> str:
        if self.ownership is None:
            return f"Tensor({self.spec!r}, host)"
        place = f"address {self.ownership.buffer.address}" if self.is_allocated() else "freed"
        return f"Tensor({self.spec!r}, {place})"


def view(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """Another shape on the same memory. Both handles own it; deallocating either frees it for both."""
    if tensor.ownership is None:
        return Tensor(spec, host_values=tensor.host_values.reshape(spec.shape), host_exact=tensor.host_exact)
    return Tensor(spec, ownership=tensor.ownership)

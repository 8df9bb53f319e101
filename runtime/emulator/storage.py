"""What a tensor is (TensorSpec) and where its values are (Buffer): the parts of a tensor that operations and traces
share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import torch

from .configs import BufferType, MemoryConfig
from .dtypes import BLOCK_FLOATS, ELEMENT_BYTES, FLOATS, TILE_BYTES, DataType, Layout
from .errors import EmulatorError

if TYPE_CHECKING:
    from .device import Device

TILE = 32
POISONED_INTEGER = 0x7FC07FC0  # what destroyed memory reads as where NaN does not exist: no valid index anywhere


class Shape:
    """Sizes of a tensor, outermost first. Equal to any list or tuple of the same numbers; cannot be sliced, as in the
    library.
    """

    __slots__ = ("_sizes",)

    def __init__(self, sizes):
        self._sizes = tuple(int(size) for size in sizes)

    @property
    def rank(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: int) -> int:
        if not isinstance(index, int):
            raise TypeError(f"Shape.__getitem__(): the index must be an int, got {index!r}; use tuple(shape) to slice")
        return self._sizes[index]

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self):
        return iter(self._sizes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Shape):
            return self._sizes == other._sizes
        return isinstance(other, (list, tuple)) and self._sizes == tuple(other)

    def __hash__(self) -> int:
        return hash(self._sizes)

    def __repr__(self) -> str:
        return f"Shape({list(self._sizes)})"


Sequence.register(Shape)


class TensorSpec:
    """Shape, type, layout and place of a tensor. Made by `tensor_spec` only, which returns one object for equal
    arguments.
    """

    __slots__ = ("shape", "padded_shape", "dtype", "layout", "memory_config", "pages", "page_bytes", "volume")

    def __init__(self, shape: tuple[int, ...], dtype: DataType, layout: Layout, memory_config: MemoryConfig):
        self.shape = shape
        self.dtype = dtype
        self.layout = layout
        self.memory_config = memory_config
        self.volume = prod(shape)
        if layout is Layout.TILE:
            outer, inner = shape[:-2], (1, 1, *shape)[-2:]
            self.padded_shape = (*outer, *(-(-size // TILE) * TILE for size in inner))
            self.pages = prod(self.padded_shape) // (TILE * TILE)
            self.page_bytes = TILE_BYTES[dtype]
        else:
            self.padded_shape = shape or (1,)
            self.pages = prod(self.padded_shape[:-1]) if self.volume else 0
            self.page_bytes = self.padded_shape[-1] * ELEMENT_BYTES[dtype]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def __repr__(self) -> str:
        return f"{list(self.shape)} {self.dtype.name} {self.layout.name} {self.memory_config.buffer_type.name}"


@lru_cache(maxsize=None)
def tensor_spec(shape: tuple[int, ...], dtype: DataType, layout: Layout, memory_config: MemoryConfig) -> TensorSpec:
    """Refuses what no tensor can be. Interned, so that specs are compared and hashed by identity."""
    if dtype in BLOCK_FLOATS and layout is not Layout.TILE:
        raise EmulatorError("tensor", f"{dtype.name} exists in tiles only, got {layout.name}")
    return TensorSpec(shape, dtype, layout, memory_config)


class Buffer:
    """Values at an address. `values` are float32 or int64 of the logical shape, or None where nothing was ever written.

    `shared` says that another buffer may hold the same torch memory, so that a write in place must copy first.
    """

    __slots__ = ("values", "spec", "device", "address", "bytes", "allocated", "shared", "__weakref__")

    def __init__(self, spec: TensorSpec, device: Device, operation: str):
        self.spec = spec
        self.device = device
        self.values: torch.Tensor | None = None
        self.shared = False
        self.allocated = False
        allocator = device.allocator(spec.memory_config.buffer_type)
        self.address = allocator.allocate(operation, spec.pages, spec.page_bytes, self)
        self.bytes = allocator.per_bank_bytes(spec.pages, spec.page_bytes)
        self.allocated = True
        device.allocated(self, operation)

    def free(self) -> None:
        if self.allocated:
            self.allocated = False
            self.device.allocator(self.spec.memory_config.buffer_type).release(self.address, self.bytes)
            self.device.freed(self)
            if not self.device.capturing:
                self.values = None

    def poison(self) -> None:
        """Make the contents what destroyed or never written memory reads as."""
        fill = float("nan") if self.spec.is_float else POISONED_INTEGER
        self.values = torch.full(self.spec.shape, fill, dtype=torch.float32 if self.spec.is_float else torch.int64)
        self.shared = False

    def read(self) -> torch.Tensor:
        if self.values is None:
            self.poison()
        return self.values

    def writable(self) -> torch.Tensor:
        """The values, in torch memory that belongs to this buffer alone."""
        values = self.read()
        if self.shared or not values.is_contiguous():
            values = self.values = values.clone(memory_format=torch.contiguous_format)
            self.shared = False
        return values


class Ownership:
    """Shared by all tensors on one buffer; the buffer is freed with the last of them."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer):
        self.buffer = buffer

    def __del__(self):
        self.buffer.free()


def is_l1(memory_config: MemoryConfig) -> bool:
    return memory_config.buffer_type is BufferType.L1

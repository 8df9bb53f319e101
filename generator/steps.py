"""What a layer's operations are made of in the generator: tensors, steps, sizes, and the steps that several parts share.

A step is one device operation of the emitted body: what it reads and writes, and the memory it needs. The buffers of operations
that have no configuration were read off graph captures of the library on mock devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import programs
from generator.tiles import TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved

PLACES = ("normed", "heads", "attended", "gated")  # roles of the intermediates that may lie in L1


@dataclass(frozen=True)
class Tensor:
    """An intermediate of a pass; `place` is its role among PLACES, "" where it always lies in DRAM."""

    name: str
    tiles: int
    dtype: str
    place: str = ""

    @property
    def bytes(self) -> int:
        return self.tiles * TILE_BYTES[self.dtype]


@dataclass(frozen=True)
class Step:
    """One device operation.

    `dram_bytes` are those of weights, caches and tables; `buffer_bytes` each core's own buffers, where a matmul has those of
    the program chosen for `role`; `units` of work can be dealt over the cores; `cycles` are the busiest core's.
    """

    operation: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...] = ()
    frees: tuple[Tensor, ...] = ()
    dram_bytes: int = 0
    buffer_bytes: int = 0
    units: int = 1
    cycles: float = 0.0
    role: str = ""


@dataclass(frozen=True)
class Sizes:
    """Tiles along each side, and the dtypes, of the tensors of one pass."""

    rows: int
    hidden: int
    query: int
    key: int
    head: int
    intermediate: int
    activation: str
    heads: str
    cached: str


def sizes(resolved: Resolved, token_tiles: int) -> Sizes:
    """The sizes of a pass of so many tiles of tokens."""
    return Sizes(
        rows=token_tiles,
        hidden=tiles(resolved.hidden),
        query=tiles(resolved.device_query_width),
        key=tiles(resolved.device_key_value_width),
        head=tiles(resolved.head_dim),
        intermediate=tiles(resolved.device_intermediate),
        activation=resolved.dtypes.activation,
        heads=programs.heads_dtype(resolved),
        cached=resolved.dtypes.key_value,
    )


def norm_bytes(width_tiles: int) -> int:
    """Buffers of rms_norm: four tiles a column tile, in columns of four, and twelve fixed ones of float32 and scalars."""
    return 4 * TILE_BYTES["bfloat16"] * (-(-width_tiles // 4) * 4) + 98304


def norm(size: Sizes, hidden: Tensor) -> tuple[Step, Tensor]:
    """The norm over hidden, and what it gives."""
    normed = Tensor("normed", hidden.tiles, size.activation, "normed")
    step = Step("rms_norm", (hidden,), (normed,), buffer_bytes=norm_bytes(size.hidden), units=size.rows)
    return step, normed


def half_layer_end(
    resolved: Resolved, size: Sizes, role: str, source: Tensor, weight_tiles: int, hidden: Tensor, summed: Tensor
) -> Iterator[Step]:
    """The matmul back to hidden and the residual's sum."""
    weight_bytes = weight_tiles * TILE_BYTES[resolved.dtypes.weights]
    if programs.fuses_residual(resolved):
        yield Step(role, (source, hidden), (summed,), (source,), weight_bytes, role=role)
        return
    product = Tensor("product", hidden.tiles, size.activation)
    yield Step(role, (source,), (product,), (source,), weight_bytes, role=role)
    yield Step("add", (hidden, product), (summed,), buffer_bytes=6 * TILE_BYTES["bfloat16"], units=hidden.tiles)

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
    norm_bytes: int  # of a core's buffers while it norms rows of hidden
    norm_weight_bytes: int  # of the weight of such a norm, where it lies in tiles; else it is next to nothing


def sizes(resolved: Resolved, token_tiles: int) -> Sizes:
    """The sizes of a pass of so many tiles of tokens."""
    hidden, in_blocks = tiles(resolved.hidden), programs.norms_in_blocks(resolved)
    return Sizes(
        rows=token_tiles,
        hidden=hidden,
        query=tiles(resolved.device_query_width),
        key=tiles(resolved.device_key_value_width),
        head=tiles(resolved.head_dim),
        intermediate=tiles(resolved.device_intermediate),
        activation=resolved.dtypes.activation,
        heads=programs.heads_dtype(resolved),
        cached=resolved.dtypes.key_value,
        norm_bytes=programs.WIDE_NORM_BYTES if in_blocks else programs.norm_bytes(hidden),
        norm_weight_bytes=hidden * TILE_BYTES["bfloat16"] if in_blocks else 0,
    )


def norm_step(size: Sizes, source: Tensor, normed: Tensor, frees: tuple[Tensor, ...] = ()) -> Step:
    """The norm of rows of hidden."""
    return Step("rms_norm", (source,), (normed,), frees, size.norm_weight_bytes, size.norm_bytes, size.rows)


def norm(size: Sizes, hidden: Tensor) -> tuple[Step, Tensor]:
    """The norm over hidden, and what it gives."""
    normed = Tensor("normed", hidden.tiles, size.activation, "normed")
    return norm_step(size, hidden, normed), normed


def half_layer_end(
    resolved: Resolved,
    size: Sizes,
    role: str,
    source: Tensor,
    weight_tiles: int,
    hidden: Tensor,
    summed: Tensor,
    bias: bool = False,
) -> Iterator[Step]:
    """The matmul back to hidden, the norm of what it gives where there is one, and the residual's sum."""
    weight_bytes = weight_tiles * TILE_BYTES[resolved.dtypes.weights] + (bias and size.hidden * TILE_BYTES["bfloat16"])
    if programs.fuses_residual(resolved):
        yield Step(role, (source, hidden), (summed,), (source,), weight_bytes, role=role)
        return
    product = Tensor("product", hidden.tiles, size.activation)
    yield Step(role, (source,), (product,), (source,), weight_bytes, role=role)
    if resolved.sandwich_norms:
        normed = Tensor("normed_product", hidden.tiles, size.activation)
        yield norm_step(size, product, normed, (product,))
        product = normed
    yield Step("add", (hidden, product), (summed,), buffer_bytes=6 * TILE_BYTES["bfloat16"], units=hidden.tiles)

"""The operations of one decoder layer as the emitted body runs them: what each reads and writes, and the memory it needs.

Order and frees are those of templates/kinds. The buffers of operations that have no configuration were read off graph
captures of the library on mock devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from generator import programs
from generator.attentions import Attention, attention_bytes, attention_cycles
from generator.geometry import Resolved
from generator.shapes import PassShape
from generator.tiles import TILE_BYTES, tiles

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
class _Sizes:
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


def _sizes(resolved: Resolved, shape: PassShape) -> _Sizes:
    return _Sizes(
        rows=shape.token_tiles,
        hidden=tiles(resolved.hidden),
        query=tiles(resolved.device_query_width),
        key=tiles(resolved.device_key_value_width),
        head=tiles(resolved.head_dim),
        intermediate=tiles(resolved.device_intermediate),
        activation=resolved.dtypes.activation,
        heads=programs.heads_dtype(resolved),
        cached=resolved.dtypes.key_value,
    )


def layer_steps(resolved: Resolved, shape: PassShape, attention: Attention) -> tuple[Step, ...]:
    """All operations of one layer in a pass of `shape`."""
    size = _sizes(resolved, shape)
    hidden = Tensor("hidden", size.rows * size.hidden, size.activation)
    summed = Tensor("summed", size.rows * size.hidden, size.activation)
    return (
        *_attention_steps(resolved, shape, attention, size, hidden, summed),
        *_feed_forward_steps(resolved, size, hidden, summed),
    )


def windows(shape: PassShape) -> int:
    """Bounds of packed rows that attention is told of: one more than the rows of a wave, none elsewhere."""
    return shape.rows + 1 if shape.variant == "batched" else 0


def chained(resolved: Resolved, shape: PassShape) -> bool:
    """Whether the cores of attention hand keys and values on: Blackhole's do in a pass of one row over itself."""
    return resolved.board.architecture == "blackhole" and shape.variant == "single"


def rotary_bytes(resolved: Resolved, heads: int, row_tiles: int) -> int:
    """Buffers of the rotation of so many heads, at most; cosines and sines are bfloat16.

    By halves, heads are read and written in turn. By pairs, a core keeps its rows of cosines and sines for all heads
    where these are few.
    """
    depth, wide = tiles(resolved.head_dim), TILE_BYTES["bfloat16"]
    if resolved.rotary_style == "half_split":
        return (6 * depth + 1) * TILE_BYTES[programs.heads_dtype(resolved)] + (4 * depth + 3) * wide
    rows = -(-row_tiles // resolved.board.cores)
    kept = rows if heads * rows <= 8 else 1
    return (6 * depth * (1 + kept) + 1) * wide


def split_tiles(head_tiles: int) -> int:
    """Tiles that splitting the heads buffers: two heads of a multiple of four tiles, four tiles of any other."""
    return 2 * head_tiles if head_tiles % 4 == 0 else 4


def norm_bytes(width_tiles: int) -> int:
    """Buffers of rms_norm: four tiles a column tile, in columns of four, and twelve fixed ones of float32 and scalars."""
    return 4 * TILE_BYTES["bfloat16"] * (-(-width_tiles // 4) * 4) + 98304


def _norm(size: _Sizes, hidden: Tensor) -> tuple[Step, Tensor]:
    normed = Tensor("normed", hidden.tiles, size.activation, "normed")
    step = Step("rms_norm", (hidden,), (normed,), buffer_bytes=norm_bytes(size.hidden), units=size.rows)
    return step, normed


def _half_layer_end(
    resolved: Resolved, size: _Sizes, role: str, source: Tensor, weight_tiles: int, hidden: Tensor, summed: Tensor
) -> Iterator[Step]:
    """The matmul back to hidden and the residual's sum."""
    weight_bytes = weight_tiles * TILE_BYTES[resolved.dtypes.weights]
    if programs.fuses_residual(resolved):
        yield Step(role, (source, hidden), (summed,), (source,), weight_bytes, role=role)
        return
    product = Tensor("product", hidden.tiles, size.activation)
    yield Step(role, (source,), (product,), (source,), weight_bytes, role=role)
    yield Step("add", (hidden, product), (summed,), buffer_bytes=6 * TILE_BYTES["bfloat16"], units=hidden.tiles)


def _attention_steps(
    resolved: Resolved, shape: PassShape, chunks: Attention, size: _Sizes, hidden: Tensor, summed: Tensor
) -> Iterator[Step]:
    norm, normed = _norm(size, hidden)
    yield norm
    width = size.query + 2 * size.key
    fused = Tensor("query_key_value", size.rows * width, size.heads, "heads")
    weight_bytes = size.hidden * width * TILE_BYTES[resolved.dtypes.weights]
    yield Step("query_key_value", (normed,), (fused,), (normed,), weight_bytes, role="query_key_value")

    def heads(name: str, columns: int, dtype: str) -> Tensor:
        return Tensor(name, size.rows * columns, dtype, "heads")

    query, key, value = (
        heads("query", size.query, size.heads),
        heads("key", size.key, size.heads),
        heads("value", size.key, size.heads),
    )
    tile_bytes = TILE_BYTES[size.heads]
    units = size.rows * resolved.device_query_heads
    key_units = size.rows * resolved.device_key_value_heads
    yield Step(
        "nlp_create_qkv_heads",
        (fused,),
        (query, key, value),
        (fused,),
        buffer_bytes=split_tiles(size.head) * tile_bytes,
        units=units + 2 * key_units,
    )
    if resolved.query_key_norm:
        for name, count in (("query", units), ("key", key_units)):
            before = query if name == "query" else key
            after = Tensor(f"normed_{name}", before.tiles, before.dtype, "heads")
            yield Step("rms_norm", (before,), (after,), (before,), buffer_bytes=norm_bytes(size.head), units=count)
            query, key = (after, key) if name == "query" else (query, after)
    rows_bytes = 2 * size.rows * size.head * TILE_BYTES["bfloat16"]  # cosines and sines
    for name, count in (("query", units), ("key", key_units)):
        before = query if name == "query" else key
        after = Tensor(f"turned_{name}", before.tiles, before.dtype, "heads")
        buffers = rotary_bytes(resolved, count // size.rows, size.rows)
        yield Step("rotary_embedding", (before,), (after,), (before,), rows_bytes, buffers, count)
        query, key = (after, key) if name == "query" else (query, after)
    if size.cached != size.heads:
        casts, buffers = [], 2 * (tile_bytes + TILE_BYTES[size.cached])
        for before in (key, value):
            after = Tensor(f"cast_{before.name}", before.tiles, size.cached, "heads")
            yield Step("typecast", (before,), (after,), (before,), buffer_bytes=buffers, units=before.tiles)
            casts.append(after)
        key, value = casts
    alignment = resolved.board.dram_alignment
    table_row = -(-4 * shape.fill_pages // alignment) * alignment
    for cached in (key, value):
        buffers = 2 * size.head * TILE_BYTES[size.cached] + table_row
        yield Step("paged_fill_cache", (cached,), dram_bytes=cached.bytes, buffer_bytes=buffers, units=key_units)
    attended = Tensor("attended", size.rows * size.query, size.heads, "attended")
    yield from _attend(resolved, shape, chunks, size, (query, key, value), attended)
    weight_tiles = size.query * size.hidden
    yield from _half_layer_end(resolved, size, "attention_output", attended, weight_tiles, hidden, summed)


def _attend(
    resolved: Resolved,
    shape: PassShape,
    chunks: Attention,
    size: _Sizes,
    operands: tuple[Tensor, Tensor, Tensor],
    attended: Tensor,
) -> Iterator[Step]:
    query, key, value = operands
    behind = resolved.context // 2 if shape.read_pages else 0  # a chunk is modelled in the middle of the context
    cycles = attention_cycles(
        chunks,
        shape.tokens,
        shape.rows,
        behind,
        resolved.device_query_heads,
        resolved.head_dim,
        resolved.board.grid,
        size.cached,
    )
    buffers = attention_bytes(
        chunks,
        resolved.head_dim,
        size.cached,
        size.heads,
        windows(shape),
        shape.read_pages,
        chained(resolved, shape),
    )
    units = shape.rows * resolved.device_query_heads * (shape.tokens // chunks.query_chunk)
    if programs.concatenates_heads(shape.variant):
        yield Step(
            "attention", operands, (attended,), operands, buffer_bytes=buffers, units=units, cycles=cycles
        )
        return
    batch = query
    if shape.rows > 1:
        batch = Tensor("query_rows", query.tiles, query.dtype, "heads")
        yield Step("transpose", (query,), (batch,), buffer_bytes=2 * TILE_BYTES[size.heads], units=query.tiles)
    split = Tensor("attended_heads", attended.tiles, attended.dtype, "attended")
    cache_tiles = 2 * shape.rows * tiles(behind + shape.tokens) * size.key
    yield Step(
        "attention",
        (batch,),
        (split,),
        (batch,) if batch is not query else (),
        cache_tiles * TILE_BYTES[size.cached],
        buffers,
        units,
        cycles,
    )
    yield Step(
        "nlp_concat_heads",
        (split,),
        (attended,),
        (split, *operands),
        buffer_bytes=2 * size.query * TILE_BYTES[size.heads],
        units=size.rows * resolved.device_query_heads,
    )


def _feed_forward_steps(resolved: Resolved, size: _Sizes, hidden: Tensor, summed: Tensor) -> Iterator[Step]:
    norm, normed = _norm(size, hidden)
    yield norm
    count = size.rows * size.intermediate
    gated = Tensor("gated", count, size.activation, "gated")
    weight_bytes = size.hidden * size.intermediate * TILE_BYTES[resolved.dtypes.weights]
    if programs.fuses_gate_up(resolved):
        yield Step("gate_up", (normed,), (gated,), (normed,), 2 * weight_bytes, role="gate_up")
    else:
        gate, up = (Tensor(name, count, size.activation, "gated") for name in ("gate", "up"))
        yield Step("gate_up", (normed,), (gate,), dram_bytes=weight_bytes, role="gate_up")
        yield Step("gate_up", (normed,), (up,), (normed,), weight_bytes, role="gate_up")
        buffers = 7 * TILE_BYTES["bfloat16"]
        yield Step("mul", (gate, up), (gated,), (gate, up), buffer_bytes=buffers, units=count)
    weight_tiles = size.intermediate * size.hidden
    yield from _half_layer_end(resolved, size, "down", gated, weight_tiles, hidden, summed)

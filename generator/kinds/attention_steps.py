"""The operations of self-attention as the emitted body runs them, in the order and with the frees of its template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator import programs
from generator.kinds import score_steps
from generator.attentions import Attention, attention_bytes, attention_cycles
from generator.steps import Sizes, Step, Tensor, half_layer_end, norm, sizes
from generator.tiles import TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.shapes import PassShape


def windows(resolved: Resolved, shape: PassShape, kind: str) -> int:
    """Bounds of packed rows that attention is told of: one more than the rows of a wave, none elsewhere."""
    return shape.rows + 1 if shape.variant in ("batched", "ragged") and programs.packs_rows(resolved, kind) else 0


def chained(resolved: Resolved, shape: PassShape, kind: str) -> bool:
    """Whether the cores of attention hand keys and values on: Blackhole's do in a pass over itself that is neither packed
    nor windowed.
    """
    over_itself = shape.read_pages == 0 and not windows(resolved, shape, kind)
    return resolved.board.architecture == "blackhole" and kind == "full" and over_itself


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


def steps(
    resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor, kind: str
) -> Iterator[Step]:
    """All of them in a layer of a kind and a pass of `shape`, from hidden to its sum with what was attended; `chunks` is how
    attention is cut.
    """
    size = sizes(resolved, shape.token_tiles)
    first, normed = norm(size, hidden)
    yield first
    width = size.query + 2 * size.key
    fused = Tensor("query_key_value", size.rows * width, size.heads, "heads")
    weight_bytes = size.hidden * width * TILE_BYTES[resolved.dtypes.weights]
    if resolved.query_key_value_bias:
        weight_bytes += width * TILE_BYTES["bfloat16"]
    gated = resolved.attention_gate
    yield Step("query_key_value", (normed,), (fused,), () if gated else (normed,), weight_bytes, role="query_key_value")
    gate = Tensor("attention_gate", size.rows * size.query, size.activation)
    if gated:
        gate_bytes = size.hidden * size.query * TILE_BYTES[resolved.dtypes.weights]
        yield Step("attention_gate", (normed,), (gate,), (normed,), gate_bytes, role="attention_gate")

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
            yield Step(
                "rms_norm", (before,), (after,), (before,), buffer_bytes=programs.norm_bytes(size.head), units=count
            )
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
    made = size.activation if resolved.attention_soft_cap else size.heads
    attended = Tensor("attended", size.rows * size.query, made, "attended")
    yield from _attend(resolved, shape, chunks, size, (query, key, value), attended, kind)
    if gated:
        kept = Tensor("kept", attended.tiles, size.activation, "attended")
        buffers = 2 * TILE_BYTES[attended.dtype] + 5 * TILE_BYTES["bfloat16"]
        yield Step("mul", (attended, gate), (kept,), (attended, gate), buffer_bytes=buffers, units=attended.tiles)
        attended = kept
    weight_tiles = size.query * size.hidden
    bias = resolved.attention_output_bias
    yield from half_layer_end(resolved, size, "attention_output", attended, weight_tiles, hidden, summed, bias)


def _attend(
    resolved: Resolved,
    shape: PassShape,
    chunks: Attention,
    size: Sizes,
    operands: tuple[Tensor, Tensor, Tensor],
    attended: Tensor,
    kind: str,
) -> Iterator[Step]:
    if resolved.attention_soft_cap:
        yield from score_steps.attend(resolved, shape, chunks, size, operands, attended)
        return
    behind = resolved.context // 2 if shape.read_pages else 0  # a chunk is modelled in the middle of the context
    if kind == "sliding":
        behind = min(behind, resolved.window_reach)
    cycles = attention_cycles(
        resolved.board.rates.core,
        chunks,
        shape.row_squares or shape.rows * tiles(shape.tokens) ** 2,
        shape.rows * shape.tokens,
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
        windows(resolved, shape, kind),
        shape.read_pages,
        chained(resolved, shape, kind),
        kind == "sliding",
        resolved.attention_sinks,
    )
    units = resolved.device_query_heads * (shape.rows * shape.tokens // chunks.query_chunk)
    over_itself = programs.concatenates_heads(shape.variant)
    batched = operands if over_itself else operands[:1]  # what becomes a batch where rows are several and not packed
    rows: tuple[Tensor, ...] = ()
    if shape.rows > 1 and not windows(resolved, shape, kind):
        rows = tuple(Tensor(f"{heads.name}_rows", heads.tiles, heads.dtype, "heads") for heads in batched)
        for heads, row in zip(batched, rows):
            yield Step("transpose", (heads,), (row,), buffer_bytes=2 * TILE_BYTES[heads.dtype], units=heads.tiles)
    sink_bytes = resolved.device_query_heads * TILE_BYTES["bfloat16"] if resolved.attention_sinks else 0
    if over_itself:
        yield Step(
            "attention",
            rows or operands,
            (attended,),
            (*rows, *operands),
            sink_bytes,
            buffer_bytes=buffers,
            units=units,
            cycles=cycles,
        )
        return
    split = Tensor("attended_heads", attended.tiles, attended.dtype, "attended")
    cache_tiles = 2 * shape.rows * tiles(behind + shape.tokens) * size.key
    yield Step(
        "attention",
        rows or batched,
        (split,),
        rows,
        cache_tiles * TILE_BYTES[size.cached] + sink_bytes,
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

"""The operations of linear attention as the emitted body runs them, in the order and with the frees of its template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator import recurrences
from generator.matmuls import FIDELITY_PASSES, PRODUCT_CYCLES
from generator.steps import Step, Tensor, half_layer_end, norm, sizes
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import GatedDeltaNet, Resolved
    from generator.shapes import PassShape

WIDE, NARROW = TILE_BYTES["float32"], TILE_BYTES["bfloat16"]
ELEMENTWISE = 6  # tiles that an operation on two tensors buffers
JOININGS = (2, 4, 8, 16, 32)  # blocks that are joined by products


def steps(
    resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor, kind: str
) -> Iterator[Step]:
    """All of them in a pass of `shape`, from hidden to its sum with what the states gave."""
    net, size = resolved.gated_delta_net, sizes(resolved, shape.token_tiles)
    width, values, heads = tiles(net.convolution_width), tiles(net.value_width), tiles(net.value_heads)
    first, normed = norm(size, hidden)
    yield first
    mixed = Tensor("mixed", size.rows * width, size.activation)
    gate = Tensor("output_gate", size.rows * values, size.activation)
    decay, update = (Tensor(name, size.rows * heads, "float32") for name in ("decay", "update"))
    weight_bytes = size.hidden * TILE_BYTES[resolved.dtypes.weights]
    yield Step("mixed", (normed,), (mixed,), (), width * weight_bytes, role="mixed")
    yield Step("output_gate", (normed,), (gate,), (), values * weight_bytes, role="output_gate")
    yield Step("rates", (normed,), (decay,), (), size.hidden * heads * NARROW, role="rates")
    yield Step("rates", (normed,), (update,), (normed,), size.hidden * heads * NARROW, role="rates")
    for operation, rates in (("add", decay), ("softplus", decay), ("mul", decay), ("mul", decay), ("mul", update)):
        yield Step(operation, (rates,), (), (), 0, ELEMENTWISE * WIDE, rates.tiles)
    parts = tuple(Tensor(name, size.rows * count, size.activation) for name, count in _parts(net))
    yield from _convolution(net, shape, mixed, parts)
    given = Tensor("given", size.rows * values, "float32")
    if net.form == "operation":
        yield from _operation(resolved, net, shape, parts, (decay, update), given)
    else:
        yield from _matmuls(net, shape, parts, (decay, update), given)
    kept = Tensor("kept", size.rows * values, size.activation)
    buffers = tiles(net.value_dim) * (2 * WIDE + 6 * NARROW) + 4 * WIDE
    units = size.rows * net.value_heads
    yield Step("sigmoid_gated_rms_norm", (given, gate), (kept,), (given,), buffer_bytes=buffers, units=units)
    silenced = Tensor("silenced", kept.tiles, size.activation)
    yield Step("mul", (kept, gate), (silenced,), (kept, gate), buffer_bytes=ELEMENTWISE * NARROW, units=kept.tiles)
    yield from half_layer_end(resolved, size, "delta_output", silenced, values * size.hidden, hidden, summed)


def _parts(net: GatedDeltaNet) -> tuple[tuple[str, int], ...]:
    keys = tiles(net.key_width)
    return ("query", keys), ("key", keys), ("value", tiles(net.value_width))


def _convolution(net: GatedDeltaNet, shape: PassShape, mixed: Tensor, parts: tuple[Tensor, ...]) -> Iterator[Step]:
    """Row by row; then the last tokens of each row become its tail."""
    row_bytes = net.convolution_width * 2
    row_tiles = mixed.tiles // shape.rows
    for row in range(shape.rows):
        own = mixed
        if shape.rows > 1:
            own = Tensor("own", row_tiles, mixed.dtype)
            yield Step("slice", (own,), (own,), (), 0, 2 * NARROW, row_tiles)
        made = tuple(Tensor(f"{part.name}_{row}", part.tiles // shape.rows, part.dtype) for part in parts)
        buffers = 64 * NARROW
        frees = (own,) if shape.rows > 1 else ()
        yield Step("qkv_causal_conv1d_silu", (own,), made, frees, 3 * row_bytes, buffers, row_tiles)
    rows = Tensor("mixed_rows", mixed.tiles, mixed.dtype)
    yield Step("to_layout", (mixed,), (rows,), (mixed,), 0, 2 * row_bytes, shape.token_tiles)
    for operation in ("embedding", "concat", "embedding"):
        frees = (rows,) if operation == "concat" else ()
        yield Step(operation, (), (), frees, 6 * shape.rows * row_bytes, 2 * row_bytes, 6 * shape.rows)
    for _ in range(shape.rows):
        if shape.rows > 1:
            yield Step("slice", (), (), (), 6 * row_bytes, 2 * row_bytes)
        yield Step("copy", (), (), (), 6 * row_bytes, 2 * row_bytes)


def _operation(
    resolved: Resolved,
    net: GatedDeltaNet,
    shape: PassShape,
    parts: tuple[Tensor, ...],
    rates: tuple[Tensor, Tensor],
    given: Tensor,
) -> Iterator[Step]:
    """All rows at once where every head of every row has a core, else one row after another."""
    cores = resolved.board.cores
    at_once = recurrences.route(net.form, shape.rows, net.value_heads, cores) == recurrences.WAVE
    state_tiles = net.value_heads * tiles(net.key_dim) * tiles(net.value_dim)
    rows = [tuple(Tensor(f"{part.name}_{row}", part.tiles // shape.rows, part.dtype) for part in parts) for row in range(shape.rows)]

    def run(reads: tuple[Tensor, ...], made: Tensor, count: int, frees: tuple[Tensor, ...]) -> Step:
        states = 2 * count * state_tiles * WIDE
        cycles = count * net.value_heads / min(count * net.value_heads, cores) * recurrence_cycles(net, shape.tokens)
        return Step(
            "chunk_gated_delta_rule", reads, (made,), frees, states, operation_bytes(net), count * net.value_heads, cycles
        )

    if at_once:
        joined = []
        for index, part in enumerate(parts):
            whole = Tensor(f"{part.name}_rows", part.tiles, part.dtype)
            own = tuple(row[index] for row in rows)
            yield Step("concat", own, (whole,), own, 0, 4 * NARROW, part.tiles)
            joined.append(whole)
        yield Step("concat", (), (), (), 2 * shape.rows * state_tiles * WIDE, 4 * WIDE, state_tiles)
        yield run((*joined, *rates), given, shape.rows, (*joined, *rates))
        for _ in range(shape.rows):
            for operation in ("slice", "copy"):
                yield Step(operation, (), (), (), 2 * state_tiles * WIDE, 4 * WIDE, state_tiles)
        return
    made = []
    for row, own in enumerate(rows):
        if shape.rows > 1:
            for rate in rates:
                yield Step("slice", (), (), (), rate.bytes // shape.rows, 4 * WIDE)
        result = given if shape.rows == 1 else Tensor(f"given_{row}", given.tiles // shape.rows, given.dtype)
        yield run(own, result, 1, (*own, *(rates if row == shape.rows - 1 else ())))
        yield Step("copy", (), (), (), 2 * state_tiles * WIDE, 4 * WIDE, state_tiles)
        made.append(result)
    if shape.rows > 1:
        yield Step("concat", tuple(made), (given,), tuple(made), 0, 4 * WIDE, given.tiles)


def operation_bytes(net: GatedDeltaNet) -> int:
    """Buffers of one core in the phased program: a chunk of every operand, the state, and their products, in float32."""
    keys, values = tiles(net.key_dim), tiles(net.value_dim)
    return (10 * keys + 8 * values + 2 * keys * values + 32) * WIDE


def recurrence_cycles(net: GatedDeltaNet, tokens: int) -> float:
    """Modelled cycles of one value head: per chunk its products in tiles, at the fidelity that the operation fixes, and as many
    again for what is done value by value. Unverified.
    """
    keys, values = tiles(net.key_dim), tiles(net.value_dim)
    products = 2 * keys + 8 + keys + values + 3 * keys * values + values
    return 2 * products * PRODUCT_CYCLES * FIDELITY_PASSES["HiFi4"] * (tokens // TILE)


def _matmuls(
    net: GatedDeltaNet, shape: PassShape, parts: tuple[Tensor, ...], rates: tuple[Tensor, Tensor], given: Tensor
) -> Iterator[Step]:
    """Row by row. Elementwise steps on the matrices of all chunks are many and alike; what lives at once is stated."""
    chunks, tokens = net.value_heads * shape.tokens // net.chunk, tiles(net.chunk)
    square = chunks * tokens * tokens
    keys, values = chunks * tokens * tiles(net.key_dim), chunks * tokens * tiles(net.value_dim)
    state = net.value_heads * tiles(net.key_dim) * tiles(net.value_dim)
    made = []
    for row in range(shape.rows):
        live = tuple(
            Tensor(f"{name}_{row}", count, "float32")
            for name, count in (
                ("wide_query", keys), ("wide_key", keys), ("wide_value", values), ("between", square), ("inverted", square),
                ("scores", square), ("kept", keys), ("queries", keys),
            )
        )
        own = tuple(Tensor(f"{part.name}_{row}", part.tiles // shape.rows, part.dtype) for part in parts)
        yield Step("typecast", own, live, own, 0, 4 * WIDE, 2 * keys + values)
        result = given if shape.rows == 1 else Tensor(f"given_{row}", given.tiles // shape.rows, given.dtype)
        for count, operations in ((square, 2 * len(JOININGS) + 8), (keys, 6), (values, 3)):
            for _ in range(operations):
                yield Step("mul", (), (), (), 3 * count * WIDE, ELEMENTWISE * WIDE, count)
        for role, (rows, inner, columns, *_) in recurrences.products(net.chunk, net.key_dim, net.value_dim).items():
            in_chunks = {"scores": 2, "chunk": 2 * len(JOININGS), "keys": 1, "values": 2, "read": 2, "update": 1}[role]
            products = in_chunks * chunks
            moved = products * (rows * inner + inner * columns + rows * columns) * WIDE
            cycles = products * rows * inner * columns * PRODUCT_CYCLES * FIDELITY_PASSES["HiFi4"] / net.value_heads
            buffers = (2 * (rows * inner + inner * columns) + 2 * rows * columns) * WIDE
            yield Step("matmul", (), (), (), moved, buffers, net.value_heads, cycles)
        last = row == shape.rows - 1
        yield Step("concat", live, (result,), (*live, *(rates if last else ())), 0, 4 * WIDE, result.tiles)
        yield Step("copy", (), (), (), 2 * state * WIDE, 4 * WIDE, state)
        made.append(result)
    if shape.rows > 1:
        yield Step("concat", tuple(made), (given,), tuple(made), 0, 4 * WIDE, given.tiles)

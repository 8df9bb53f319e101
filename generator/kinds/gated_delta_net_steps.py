"""The operations of linear attention as the emitted body runs them, in the order and with the frees of its template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator import recurrences
from generator.matmuls import FIDELITY_PASSES
from generator.steps import Step, Tensor, half_layer_end, norm, sizes
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import GatedDeltaNet, Resolved
    from generator.shapes import PassShape

WIDE, NARROW = TILE_BYTES["float32"], TILE_BYTES["bfloat16"]
# Buffers of an operation on float32 and bfloat16 tiles: two of each and of what is made.
MIXED = 2 * WIDE + 2 * NARROW + 2 * WIDE
REPEATED = 8 * WIDE  # of one on float32 tiles that repeats a row of the second
UNTILIZED = 64 * NARROW  # of one tile row, at most
INDICES = 8  # of a row's pages in the buffers of picking rows
JOININGS = recurrences.JOINED_BLOCKS[1:]  # which products join; the first are joined value by value


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
    valid = Tensor("valid", size.rows * heads, "bfloat16")

    def rate(name: str) -> Tensor:
        return Tensor(name, size.rows * heads, "float32")

    decay, update, shifted, soft, logarithm, decays, updates = map(
        rate, ("decay", "update", "shifted", "soft", "logarithm", "decays", "updates")
    )
    weight_bytes = size.hidden * TILE_BYTES[resolved.dtypes.weights]
    yield Step("mixed", (normed,), (mixed,), (), width * weight_bytes, role="mixed")
    yield Step("output_gate", (normed,), (gate,), (), values * weight_bytes, role="output_gate")
    yield Step("rates", (normed,), (decay,), (), size.hidden * heads * NARROW, role="rates")
    yield Step("rates", (normed,), (update,), (normed,), size.hidden * heads * NARROW, role="rates")
    row, units = heads * WIDE, resolved.board.cores
    yield Step("add", (decay,), (shifted,), (decay,), row, REPEATED, units)
    yield Step("softplus", (shifted,), (soft,), (shifted,), 0, 4 * WIDE, units)
    yield Step("mul", (soft,), (logarithm,), (soft,), row, REPEATED, units)
    yield Step("mul", (logarithm, valid), (decays,), (logarithm,), 0, MIXED, units)
    yield Step("mul", (update, valid), (updates,), (update,), 0, MIXED + WIDE, units)
    parts = tuple(Tensor(name, size.rows * count, size.activation) for name, count in _parts(net))
    yield from _convolution(net, shape, mixed, parts, INDICES * resolved.board.dram_alignment)
    given = Tensor("given", size.rows * values, "float32")
    if net.form == "operation":
        yield from _operation(resolved, net, shape, parts, (decays, updates), given)
    else:
        yield from _matmuls(resolved, net, shape, parts, (decays, updates), given)
    kept, silenced = (Tensor(name, size.rows * values, size.activation) for name in ("kept", "silenced"))
    buffers = recurrences.gated_norm_bytes(net.value_dim)
    units = size.rows * net.value_heads
    norm_bytes = tiles(net.value_dim) * NARROW
    yield Step("sigmoid_gated_rms_norm", (given, gate), (kept,), (given,), norm_bytes, buffers, units)
    yield Step("mul", (kept, gate), (silenced,), (kept, gate), 0, 6 * NARROW, kept.tiles)
    yield from half_layer_end(resolved, size, "delta_output", silenced, values * size.hidden, hidden, summed)


def _parts(net: GatedDeltaNet) -> tuple[tuple[str, int], ...]:
    keys = tiles(net.key_width)
    return ("query", keys), ("key", keys), ("value", tiles(net.value_width))


def _of_rows(part: Tensor, rows: int) -> tuple[Tensor, ...]:
    """What each row has of a tensor of all rows."""
    return tuple(Tensor(f"{part.name}_{row}", part.tiles // rows, part.dtype) for row in range(rows))


def _convolution(
    net: GatedDeltaNet, shape: PassShape, mixed: Tensor, parts: tuple[Tensor, ...], picking_bytes: int
) -> Iterator[Step]:
    """Row by row; then the last tokens of each row become its tail, a few rows of all channels each."""
    row_bytes, tail = net.convolution_width * 2, net.kernel - 1
    several = shape.rows > 1
    taps = net.kernel * tiles(net.convolution_width) * NARROW
    for own, *made in zip(_of_rows(mixed, shape.rows), *(_of_rows(part, shape.rows) for part in parts)):
        if several:
            yield Step("slice", (own,), (own,), (), 0, 2 * NARROW + 12, own.tiles)
        buffers = recurrences.convolution_bytes(net.convolution_width)
        reads = (own,) if several else (mixed,)
        table_bytes = 2 * tail * row_bytes + taps
        yield Step(
            "qkv_causal_conv1d_silu", reads, tuple(made), reads if several else (), table_bytes, buffers, own.tiles
        )
    width = tiles(net.convolution_width)
    selected, lines = (Tensor(name, width, mixed.dtype) for name in ("selected", "lines"))
    yield Step("tails", (mixed,), (selected,), (), shape.token_tiles * NARROW, role="tails")
    yield Step("untilize", (selected,), (lines,), (selected,), 0, UNTILIZED, width)
    picked, tile_rows = tail * shape.rows * row_bytes, TILE * row_bytes
    index_bytes = 4 * tail * shape.rows
    yield Step("concat", (), (), (lines, mixed), 2 * (picked + tile_rows), 2 * row_bytes, tail * shape.rows + TILE)
    yield Step("embedding", (), (), (), 2 * picked + index_bytes, row_bytes + picking_bytes, tail * shape.rows)
    for _ in range(shape.rows):
        if several:
            yield Step("slice", (), (), (), 2 * tail * row_bytes, 2 * row_bytes + 12, tail)
        yield Step("copy", (), (), (), 2 * tail * row_bytes, 2 * row_bytes, tail)


def _operation(
    resolved: Resolved,
    net: GatedDeltaNet,
    shape: PassShape,
    parts: tuple[Tensor, ...],
    rates: tuple[Tensor, Tensor],
    given: Tensor,
) -> Iterator[Step]:
    """All rows at once where every head of every row has a core, else one row after another."""
    cores, rows = resolved.board.cores, shape.rows
    at_once = recurrences.route(net.form, rows, net.value_heads, net.value_dim, cores) == recurrences.WAVE
    state = net.value_heads * tiles(net.key_dim) * tiles(net.value_dim)
    of_rows = list(zip(*(_of_rows(part, rows) for part in parts)))
    if at_once:
        joined = []
        for part in parts:
            own, whole = _of_rows(part, rows), Tensor(f"{part.name}_rows", part.tiles, part.dtype)
            yield Step("concat", own, (whole,), (), 0, 2 * NARROW, part.tiles)
            joined.append(whole)
        yield Step("concat", (), (), (), 2 * rows * state * WIDE, 2 * WIDE, rows * state)
        apart = tuple(one for row in of_rows for one in row)
        yield from _rule(resolved, net, shape.tokens, rows, (*joined, *rates), given, (*joined, *rates, *apart))
        for _ in range(rows):
            yield Step("slice", (), (), (), 2 * state * WIDE, 2 * WIDE + 16, state)
            yield Step("copy", (), (), (), 2 * state * WIDE, 2 * WIDE, state)
        return
    results = _of_rows(given, rows) if rows > 1 else (given,)
    for row, (own, result) in enumerate(zip(of_rows, results)):
        shares = tuple(_of_rows(rate, rows)[row] for rate in rates) if rows > 1 else rates
        if rows > 1:
            for share in shares:
                yield Step("slice", (share,), (share,), (), 0, 2 * WIDE + 12, share.tiles)
        frees = (*own, *(shares if rows > 1 else ()), *(rates if row == rows - 1 else ()))
        yield from _rule(resolved, net, shape.tokens, 1, (*own, *shares), result, frees)
        yield Step("copy", (), (), (), 2 * state * WIDE, 2 * WIDE, state)
    if rows > 1:
        yield Step("concat", results, (given,), results, 0, 2 * WIDE, given.tiles)


def _rule(
    resolved: Resolved,
    net: GatedDeltaNet,
    tokens: int,
    rows: int,
    reads: tuple[Tensor, ...],
    made: Tensor,
    frees: tuple[Tensor, ...],
) -> Iterator[Step]:
    """The operation: in one program, or chunks by themselves over all cores and then their meeting with the states."""
    keys, values, heads = tiles(net.key_dim), tiles(net.value_dim), rows * net.value_heads
    board, count = resolved.board, heads * tokens // TILE
    state = 2 * heads * keys * values * WIDE
    constants = 6 * WIDE

    def cycles(program: str) -> float:
        return recurrences.program_cycles(program, net, tokens, heads, board)

    if recurrences.fuses(net.value_heads, net.value_dim, board.cores):
        name, buffers = recurrences.FUSED, recurrences.FUSED_BYTES[net.value_dim]
        yield Step(name, reads, (made,), frees, state + constants, buffers, board.cores, cycles(name))
        return
    between = Tensor("between", count * (3 * keys + values + 3), "float32")
    name, buffers = recurrences.PREPARE, recurrences.prepare_bytes(net.key_dim, net.value_dim)
    yield Step(name, reads, (between,), (), constants, buffers, count, cycles(name))
    cut = recurrences.value_parts(board.grid, heads, net.value_dim)
    name, buffers = recurrences.SCAN, recurrences.scan_bytes(net.key_dim, net.value_dim, cut)
    yield Step(name, (between,), (made,), (between, *frees), state, buffers, heads * cut, cycles(name))


def _matmuls(
    resolved: Resolved,
    net: GatedDeltaNet,
    shape: PassShape,
    parts: tuple[Tensor, ...],
    rates: tuple[Tensor, Tensor],
    given: Tensor,
) -> Iterator[Step]:
    """Row by row, in outline: steps on the matrices of all chunks are many and alike; what lives at once is stated."""
    chunks, tokens = net.value_heads * shape.tokens // net.chunk, tiles(net.chunk)
    square = chunks * tokens * tokens
    keys, values = chunks * tokens * tiles(net.key_dim), chunks * tokens * tiles(net.value_dim)
    state = net.value_heads * tiles(net.key_dim) * tiles(net.value_dim)
    sizes_of = {"wide_query": keys, "wide_key": keys, "wide_value": values, "between": square, "inverted": square}
    sizes_of |= {"scores": square, "kept": keys, "queries": keys}
    results = _of_rows(given, shape.rows) if shape.rows > 1 else (given,)
    for row, (result, *own) in enumerate(zip(results, *(_of_rows(part, shape.rows) for part in parts))):
        live = tuple(Tensor(f"{name}_{row}", count, "float32") for name, count in sizes_of.items())
        yield Step("typecast", tuple(own), live, tuple(own), 0, 4 * WIDE, 2 * keys + values)
        for count, operations in ((square, 2 * len(JOININGS) + 8), (keys, 6), (values, 3)):
            for _ in range(operations):
                yield Step("mul", (), (), (), 3 * count * WIDE, 6 * WIDE, count)
        for role, (rows, inner, columns, *_) in recurrences.products(net.chunk, net.key_dim, net.value_dim).items():
            in_chunks = {"scores": 2, "chunk": 2 * len(JOININGS), "keys": 1, "values": 2, "read": 2, "update": 1}[role]
            products = in_chunks * chunks
            moved = products * (rows * inner + inner * columns + rows * columns) * WIDE
            each = resolved.board.rates.core.product_cycles * FIDELITY_PASSES["HiFi4"]
            cycles = products * rows * inner * columns * each / net.value_heads
            buffers = (2 * (2 * rows * inner + inner * columns) + rows * columns) * WIDE
            yield Step("matmul", (), (), (), moved, buffers, net.value_heads, cycles)
        last = row == shape.rows - 1
        yield Step("concat", live, (result,), (*live, *(rates if last else ())), 0, 4 * WIDE, result.tiles)
        yield Step("copy", (), (), (), 2 * state * WIDE, 2 * WIDE, state)
    if shape.rows > 1:
        yield Step("concat", results, (given,), results, 0, 4 * WIDE, given.tiles)

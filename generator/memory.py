"""How much DRAM of one device a resolved model takes, counted as the library's allocator counts it.

Interleaved tensors lie page by page over the banks, so that each bank keeps room for the rounded-up share of the pages.
A page is a tile, or a row of a row-major tensor, rounded up to the board's alignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import programs
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.targets import Board

BFLOAT16 = 2  # bytes of an element
TRACE_PAGE = 4096  # bytes; the trace region of each bank is rounded up to it


@dataclass(frozen=True)
class MemoryItem:
    """`count` equal tensors of `pages` pages each; `bytes` is what all take over all banks, rounding included."""

    name: str
    count: int
    pages: int
    page_bytes: int
    bytes: int


@dataclass(frozen=True)
class Memory:
    """DRAM of one device in bytes. `activation_peak` is an estimate: the largest set of tensors alive in one pass of
    `largest_pass` tokens, which is the stage named by `peak_stage`. `captured_rows` are the hidden rows that the trace of
    every pass keeps as its output.
    """

    items: tuple[MemoryItem, ...]
    weights: int
    rotary_tables: int
    key_value: int
    largest_pass: int
    peak_stage: str
    activation_peak: int
    captured_rows: int
    trace_region: int
    total: int
    capacity: int

    @property
    def fits(self) -> bool:
        return self.total <= self.capacity


UNMEASURED = Memory((), 0, 0, 0, 0, "", 0, 0, 0, 0, 0)


def report(resolved: Resolved) -> Memory:
    """The memory of a model whose numbers are resolved; reads no field that depends on memory."""
    board = resolved.board
    weights = tuple(_weights(resolved))
    rotary = tuple(_rotary_tables(resolved))
    stores = (key_value_item(resolved, resolved.key_value_blocks),)
    largest = largest_pass(resolved.lengths, resolved.waves, resolved.wave_tokens)
    peak_bytes, peak_stage = max((size, stage) for stage, size in _stages(resolved, largest))
    sums = [sum(item.bytes for item in items) for items in (weights, rotary, stores)]
    captured = sum(_hidden(resolved, tokens) for tokens in _captured_passes(resolved))
    trace_region = interleaved(board, -(-board.trace_region_bytes // TRACE_PAGE), TRACE_PAGE)
    return Memory(
        items=(*weights, *rotary, *stores),
        weights=sums[0],
        rotary_tables=sums[1],
        key_value=sums[2],
        largest_pass=largest,
        peak_stage=peak_stage,
        activation_peak=peak_bytes,
        captured_rows=captured,
        trace_region=trace_region,
        total=sum(sums) + peak_bytes + captured + trace_region,
        capacity=board.dram_banks * board.dram_bank_bytes,
    )


def largest_pass(lengths: tuple[int, ...], waves: tuple[int, ...], wave_tokens: int) -> int:
    """Tokens of the largest pass: rows x length, at most `wave_tokens`."""
    return max(wave * length for wave in waves for length in lengths if wave == 1 or wave * length <= wave_tokens)


def _captured_passes(resolved: Resolved) -> Iterator[int]:
    """Tokens of every pass that can be captured: each size from the start of a prompt and as a chunk."""
    for length in resolved.lengths:
        for wave in resolved.waves:
            if wave == 1 or wave * length <= resolved.wave_tokens:
                yield wave * length
                yield wave * length


def _hidden(resolved: Resolved, tokens: int) -> int:
    return interleaved(resolved.board, tiles(tokens) * tiles(resolved.hidden), TILE_BYTES[resolved.dtypes.activation])


def most_key_value_blocks(resolved: Resolved, room: int) -> int:
    """Key-value blocks that fit into `room` bytes, possibly none."""
    low, high = 0, room // (2 * resolved.layers * TILE_BYTES[resolved.dtypes.key_value]) + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if key_value_item(resolved, middle).bytes <= room else (low, middle)
    return low


def interleaved(board: Board, pages: int, page_bytes: int) -> int:
    """Bytes over all banks of a tensor whose pages lie interleaved."""
    aligned = -(-page_bytes // board.dram_alignment) * board.dram_alignment
    return -(-pages // board.dram_banks) * aligned * board.dram_banks


def key_value_item(resolved: Resolved, blocks: int) -> MemoryItem:
    """The paged key and value caches of all layers, [blocks, key-value heads, block size, head dim] each."""
    block_tiles = resolved.device_key_value_heads * tiles(resolved.block_size) * tiles(resolved.head_dim)
    return _item(
        resolved.board, "key_value", 2 * resolved.layers, blocks * block_tiles, TILE_BYTES[resolved.dtypes.key_value]
    )


def _item(board: Board, name: str, count: int, pages: int, page_bytes: int) -> MemoryItem:
    return MemoryItem(name, count, pages, page_bytes, count * interleaved(board, pages, page_bytes))


def _weights(resolved: Resolved) -> Iterator[MemoryItem]:
    board, layers, hidden = resolved.board, resolved.layers, resolved.hidden
    projection = TILE_BYTES[resolved.dtypes.weights]
    width = resolved.device_query_key_value_width

    def matrix(name: str, count: int, rows: int, columns: int, page_bytes: int) -> MemoryItem:
        return _item(board, name, count, tiles(rows) * tiles(columns), page_bytes)

    def norm(name: str, count: int, elements: int) -> MemoryItem:
        return _item(board, name, count, tiles(elements), TILE * BFLOAT16)

    yield _item(board, "embedding", 1, resolved.vocabulary, hidden * BFLOAT16)
    yield norm("final_norm", 1, hidden)
    yield matrix("head", 1, hidden, resolved.device_vocabulary, TILE_BYTES[resolved.dtypes.head])
    yield norm("attention_norm", layers, hidden)
    if programs.fuses_residual(resolved):
        yield matrix("ones", 1, 1, hidden, TILE_BYTES[resolved.dtypes.activation])
    yield matrix("query_key_value", layers, hidden, width, projection)
    if resolved.query_key_value_bias:
        yield matrix("query_key_value_bias", layers, 1, width, TILE_BYTES["bfloat16"])
    if resolved.query_key_norm:
        yield norm("query_norm", layers, resolved.head_dim)
        yield norm("key_norm", layers, resolved.head_dim)
    yield matrix("attention_output", layers, resolved.device_query_width, hidden, projection)
    yield norm("mlp_norm", layers, hidden)
    if programs.fuses_gate_up(resolved):
        yield matrix("gate_up", layers, hidden, 2 * resolved.device_intermediate, projection)
    else:
        yield matrix("gate", layers, hidden, resolved.device_intermediate, projection)
        yield matrix("up", layers, hidden, resolved.device_intermediate, projection)
    yield matrix("down", layers, resolved.device_intermediate, hidden, projection)


def _rotary_tables(resolved: Resolved) -> Iterator[MemoryItem]:
    positions = 2 * resolved.context if resolved.rotary_switch else resolved.context
    yield _item(resolved.board, "rotary_cos_and_sin", 2, positions, resolved.head_dim * BFLOAT16)
    if resolved.rotary_style == "interleaved":
        yield _item(resolved.board, "rotary_transformation", 1, 1, TILE_BYTES["bfloat16"])


def _stages(resolved: Resolved, tokens: int) -> Iterator[tuple[str, int]]:
    """Bytes of the tensors alive together at each step of a layer, and at the tail, for one pass, were all in DRAM."""

    def tensor(width: int, dtype: str = resolved.dtypes.activation, rows: int = tokens) -> int:
        return interleaved(resolved.board, tiles(rows) * tiles(width), TILE_BYTES[dtype])

    heads_dtype = programs.heads_dtype(resolved)
    hidden, intermediate = tensor(resolved.hidden), tensor(resolved.device_intermediate)
    query = tensor(resolved.device_query_width, heads_dtype)
    heads = query + 2 * tensor(resolved.device_key_value_width, heads_dtype)
    fused = tensor(resolved.device_query_key_value_width, heads_dtype)
    cached = 2 * tensor(resolved.device_key_value_width, resolved.dtypes.key_value)
    always = hidden + 2 * tensor(resolved.head_dim)  # the layer's input, which it uses up, and the cos and sin rows
    scores = tensor(resolved.device_vocabulary, rows=TILE)
    products = 0 if programs.fuses_residual(resolved) else hidden
    gates = 0 if programs.fuses_gate_up(resolved) else 2 * intermediate
    yield "query_key_value", always + hidden + fused
    yield "split of the heads", always + fused + heads
    yield "rotary of the query heads", always + heads + query
    yield "cache write", always + heads + (cached if resolved.dtypes.key_value != heads_dtype else 0)
    yield "attention", always + heads + 2 * query
    yield "attention_output", always + query + hidden + products
    yield "gate and up", always + max(hidden + intermediate + gates // 2, intermediate + gates)
    yield "down", always + intermediate + hidden + products
    yield "head", hidden + 2 * scores

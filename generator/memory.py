"""How much DRAM of one device a resolved model takes, counted as the library's allocator counts it.

Interleaved tensors lie page by page over the banks, so that each bank keeps room for the rounded-up share of the pages.
A page is a tile, or a row of a row-major tensor, rounded up to the board's alignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from generator import kinds
from generator.attentions import Attention
from generator.kinds.rows import WeightRow, extent, stored_as
from generator.layer import part_steps
from generator.shapes import PassShape, largest_pass, ragged_size
from generator.steps import Tensor
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.targets import Board

ELEMENT_BYTES = {"bfloat16": 2, "uint32": 4}  # in rows
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
    recurrent_states: int = 0  # of all slots, and of the rows of a wave
    state_slot: int = 0  # of them one slot, which holds a sequence's state at its end and at the last boundary before

    @property
    def fits(self) -> bool:
        return self.total <= self.capacity


UNMEASURED = Memory((), 0, 0, 0, 0, "", 0, 0, 0, 0, 0)


def report(resolved: Resolved) -> Memory:
    """The memory of a model whose numbers are resolved; reads no field that depends on memory."""
    board = resolved.board
    rows = tuple(_weights(resolved))
    rotary = tuple(item for item in rows if item.name.startswith("rotary_"))
    weights = tuple(item for item in rows if item not in rotary)
    stores = (key_value_item(resolved, resolved.key_value_blocks),)
    states = state_items(resolved)
    largest = largest_pass(resolved.lengths, resolved.waves, resolved.wave_tokens, resolved.ragged_tokens)
    peak_bytes, peak_stage = max((size, stage) for stage, size in _stages(resolved))
    sums = [sum(item.bytes for item in items) for items in (weights, rotary, stores, states)]
    captured = sum(_hidden(resolved, tokens) for tokens in _captured_passes(resolved))
    trace_region = interleaved(board, -(-board.trace_region_bytes // TRACE_PAGE), TRACE_PAGE)
    return Memory(
        items=(*weights, *rotary, *stores, *states),
        weights=sums[0],
        rotary_tables=sums[1],
        key_value=sums[2],
        recurrent_states=sums[3],
        state_slot=state_slot_bytes(resolved),
        largest_pass=largest,
        peak_stage=peak_stage,
        activation_peak=peak_bytes,
        captured_rows=captured,
        trace_region=trace_region,
        total=sum(sums) + peak_bytes + captured + trace_region,
        capacity=board.dram_banks * board.dram_bank_bytes,
    )


def _captured_passes(resolved: Resolved) -> Iterator[int]:
    """Tokens of every pass that can be captured: each size from the start of a prompt and as a chunk, and ragged waves."""
    yield from resolved.ragged_tokens
    for length in resolved.lengths:
        for wave in resolved.waves:
            if wave == 1 or wave * length <= resolved.wave_tokens:
                yield wave * length
                if wave == 1 or not resolved.ragged_tokens:
                    yield wave * length


def _hidden(resolved: Resolved, tokens: int) -> int:
    return interleaved(resolved.board, tiles(tokens) * tiles(resolved.hidden), TILE_BYTES[resolved.dtypes.activation])


def most_key_value_blocks(resolved: Resolved, room: int) -> int:
    """Key-value blocks that fit into `room` bytes, possibly none."""
    low, high = 0, room // (2 * resolved.attention_layers * TILE_BYTES[resolved.dtypes.key_value]) + 1
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
        resolved.board,
        "key_value",
        2 * resolved.attention_layers,
        blocks * block_tiles,
        TILE_BYTES[resolved.dtypes.key_value],
    )


STATES_OF_A_SLOT = 2  # at the end, and at the last aligned boundary before it


def state_items(resolved: Resolved) -> tuple[MemoryItem, ...]:
    """Recurrent states and convolution tails: of every slot; as many more for the rows of the largest wave, whose new ones are
    written before the old ones are given up; one of zeros; and those that passes work on (runtime.tables.held_states).
    """
    if resolved.gated_delta_net is None:
        return ()
    rows = max(resolved.waves)
    held = 1 + STATES_OF_A_SLOT * (resolved.state_slots + min(resolved.state_slots, rows)) + rows
    return tuple(
        _item(resolved.board, name, held * resolved.recurrent_layers, *pages) for name, *pages in _state(resolved)
    )


def state_slot_bytes(resolved: Resolved) -> int:
    """What one more slot takes."""
    if resolved.gated_delta_net is None:
        return 0
    count = STATES_OF_A_SLOT * resolved.recurrent_layers
    return sum(_item(resolved.board, name, count, *pages).bytes for name, *pages in _state(resolved))


def _state(resolved: Resolved) -> tuple[tuple[str, int, int], ...]:
    """Name, pages and bytes of a page of each part of one sequence's state in one layer."""
    net = resolved.gated_delta_net
    state = net.value_heads * tiles(net.key_dim) * tiles(net.value_dim)
    row_bytes = net.convolution_width * ELEMENT_BYTES[resolved.dtypes.activation]
    return ("states", state, TILE_BYTES[resolved.dtypes.state]), ("tails", net.kernel - 1, row_bytes)


def _item(board: Board, name: str, count: int, pages: int, page_bytes: int) -> MemoryItem:
    return MemoryItem(name, count, pages, page_bytes, count * interleaved(board, pages, page_bytes))


def _weights(resolved: Resolved) -> Iterator[MemoryItem]:
    """Every weight of the module's tables, those of a layer once for each."""
    for row in kinds.model_weights(resolved):
        yield _weight(resolved, row, 1)
    for row in kinds.layer_weights(resolved):
        yield _weight(resolved, row, resolved.layer_kinds.count(row.kind) if row.kind else resolved.layers)


def _weight(resolved: Resolved, row: WeightRow, count: int) -> MemoryItem:
    *outer, rows, columns = (1, *extent(row, resolved))
    dtype = stored_as(row, resolved)
    count *= max(1, row.experts) * row.parts
    if row.layout == "ROW_MAJOR":
        return _item(resolved.board, row.name, count, prod(outer) * rows, columns * ELEMENT_BYTES[dtype])
    return _item(resolved.board, row.name, count, prod(outer) * tiles(rows) * tiles(columns), TILE_BYTES[dtype])


def _stages(resolved: Resolved) -> Iterator[tuple[str, int]]:
    """Bytes of the tensors alive during each operation of the largest passes, and at the tail, were all in DRAM."""

    def size(tensor: Tensor) -> int:
        return interleaved(resolved.board, tensor.tiles, TILE_BYTES[tensor.dtype])

    cut = (
        None if resolved.attention_soft_cap else Attention(TILE, TILE)
    )  # how attention is cut moves none of its tensors
    for shape in _largest_passes(resolved):
        turned = Tensor("cos and sin", shape.token_tiles * tiles(resolved.head_dim), resolved.dtypes.activation)
        for steps in (steps for kind in resolved.kinds for steps in part_steps(resolved, shape, cut, kind)):
            live = {"hidden": size(steps[0].reads[0]), "cos": size(turned), "sin": size(turned)}
            if resolved.local_rope is not None:
                live |= {"local cos": size(turned), "local sin": size(turned)}
            for step in steps:
                live |= {tensor.name: size(tensor) for tensor in step.writes}
                yield step.operation, sum(live.values())
                for tensor in step.frees:
                    live.pop(tensor.name, None)
        scores = Tensor("scores", tiles(resolved.device_vocabulary), resolved.dtypes.activation)
        yield "head", size(steps[0].reads[0]) + 2 * size(scores)


def _largest_passes(resolved: Resolved) -> Iterator[PassShape]:
    """The passes of the most tokens, with the most and the fewest rows that make them: from the start of prompts and as
    chunks.
    """
    tokens = largest_pass(resolved.lengths, resolved.waves, resolved.wave_tokens, resolved.ragged_tokens)
    pages = tokens // resolved.block_size
    waves = [wave for wave in resolved.waves if tokens % wave == 0 and tokens // wave in resolved.lengths]
    if tokens in resolved.ragged_tokens:
        yield PassShape("ragged", *ragged_size(resolved, tokens), pages, 0, "last", "")
    for rows in {min(waves), max(waves)} if waves else ():
        several = rows > 1
        yield PassShape("batched" if several else "single", rows, tokens // rows, pages, 0, "last", "")
        if not resolved.attention_soft_cap:
            yield PassShape("chunked_batched" if several else "chunked", rows, tokens // rows, pages, pages, "last", "")

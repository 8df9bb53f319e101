"""Literal program configurations: for each matmul and attention shape, how its tiles are cut over the cores.

Every number chosen here ends up as an integer in an emitted module. A choice is legal when the library accepts it, which is a
set of divisibility rules and one sum of circular-buffer bytes; among the legal ones the search keeps the least modelled work
for the busiest core. The byte sums were fitted to the sizes that the library itself reports when buffers overflow, and are
exact for the configurations this module can choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd

from generator.tiles import TILE, TILE_BYTES, tiles

ACCUMULATOR_TILE_BYTES = 4096  # partial sums stay in float32 (fp32_dest_acc_en with packer_l1_acc)
SUBBLOCK_TILES = 4  # destination registers left in float32 accumulation
FEW_TOKEN_TILES = 8  # up to here every core may hold all token rows (the 1-D form)
WIDER_SHARES = 4  # widths of a core's share that are tried: one may cut into better subblocks than the narrowest
WIDEST_INNER_BLOCK = 8  # tiles of the inner dimension fetched at a time: more gains nothing and costs L1
ATTENTION_CHUNKS = (256, 128, 64, 32)


@dataclass(frozen=True)
class Matmul:
    """One literal matmul configuration; all fields count tiles, but the grid, which counts cores."""

    form: str  # "multicast_1d" or "multicast_2d"
    grid_columns: int
    grid_rows: int
    inner_block: int
    subblock_rows: int
    subblock_columns: int
    block_rows: int
    block_columns: int
    core_rows: int
    core_columns: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The integers of the emitted table row, in the order of the emitted helper's parameters."""
        return (
            self.grid_columns,
            self.grid_rows,
            self.inner_block,
            self.subblock_rows,
            self.subblock_columns,
            self.block_rows,
            self.block_columns,
            self.core_rows,
            self.core_columns,
        )


@dataclass(frozen=True)
class Attention:
    """Query and key tokens that the attention operation holds at a time."""

    query_chunk: int
    key_chunk: int


class NoProgram(ValueError):
    """No legal configuration exists: the message gives the sizes and the limit."""


@cache
def divisors(number: int) -> tuple[int, ...]:
    return tuple(part for part in range(1, number + 1) if number % part == 0)


def matmul_bytes(choice: Matmul, weight_dtype: str, output_dtype: str, bias_dtype: str | None) -> int:
    """Circular-buffer bytes of one core: inputs double-buffered, one output block, its float32 partial sums, one row of bias."""
    left = 2 * choice.block_rows * choice.inner_block * TILE_BYTES["bfloat16"]
    right = 2 * choice.block_columns * choice.inner_block * TILE_BYTES[weight_dtype]
    block = choice.block_rows * choice.block_columns
    bias = choice.block_columns * TILE_BYTES[bias_dtype] if bias_dtype else 0
    return left + right + block * (TILE_BYTES[output_dtype] + ACCUMULATOR_TILE_BYTES) + bias


def _matmul_cost(choice: Matmul, inner_tiles: int) -> tuple[float, int, int]:
    """Modelled work of the busiest core: tile products at the efficiency of the subblock, then tiles fetched, then fetches.

    A subblock of one tile keeps the matrix unit about half as busy as one of four, since every operand is unpacked for each
    product; re-reading an operand once more for every further output block is the second term.
    """
    subblock = choice.subblock_rows * choice.subblock_columns
    efficiency = {1: 0.5, 2: 0.75, 3: 0.9, 4: 1.0}[subblock]
    products = choice.core_rows * choice.core_columns * inner_tiles / efficiency
    fetched = inner_tiles * (
        choice.core_rows * (choice.core_columns // choice.block_columns)
        + choice.core_columns * (choice.core_rows // choice.block_rows)
    )
    return products, fetched, inner_tiles // choice.inner_block


def _subblocks(block_rows: int, block_columns: int) -> list[tuple[int, int]]:
    """Legal subblocks: they divide the block, fit the registers, and are one row high unless they are as wide as the block."""
    return [
        (rows, columns)
        for rows in divisors(block_rows)
        for columns in divisors(block_columns)
        if rows * columns <= SUBBLOCK_TILES and (rows == 1 or columns == block_columns)
    ]


def _layouts(token_tiles: int, output_tiles: int, grid: tuple[int, int]) -> Iterator[tuple[str, int, int, int, int]]:
    """Form, grid and share of one core: the least share that covers the output, and a few wider ones that may cut better."""
    columns, rows = grid
    core_rows = -(-token_tiles // rows)
    used_rows = -(-token_tiles // core_rows)
    least = -(-output_tiles // columns)
    for core_columns in range(least, least + WIDER_SHARES):
        yield "multicast_2d", columns, used_rows, core_rows, core_columns
    if token_tiles <= FEW_TOKEN_TILES:
        least = -(-output_tiles // (columns * rows))
        for core_columns in range(least, least + WIDER_SHARES):
            yield "multicast_1d", columns, rows, token_tiles, core_columns


def _candidates(token_tiles: int, inner_tiles: int, output_tiles: int, grid: tuple[int, int]) -> Iterator[Matmul]:
    """Every configuration that keeps the divisibility rules, whether or not its buffers fit."""
    inner_blocks = [block for block in divisors(inner_tiles) if block <= WIDEST_INNER_BLOCK]
    for form, grid_columns, grid_rows, core_rows, core_columns in _layouts(token_tiles, output_tiles, grid):
        for block_rows in divisors(core_rows):
            for block_columns in divisors(core_columns):
                for subblock in _subblocks(block_rows, block_columns):
                    for inner_block in inner_blocks:
                        blocks = (inner_block, *subblock, block_rows, block_columns, core_rows, core_columns)
                        yield Matmul(form, grid_columns, grid_rows, *blocks)


@cache
def choose_matmul(
    token_tiles: int,
    inner_tiles: int,
    output_tiles: int,
    grid: tuple[int, int],
    l1_bytes: int,
    weight_dtype: str,
    output_dtype: str,
    bias_dtype: str | None = None,
    inner_block: int | None = None,
) -> Matmul:
    """The cheapest legal configuration of [token_tiles, inner_tiles] x [inner_tiles, output_tiles] on a grid of cores.

    `inner_block` fixes the tiles of the inner dimension that are summed at a time, and with it the order of the sum. Raises
    NoProgram where not even single-tile blocks fit `l1_bytes`.
    """
    legal = (
        choice
        for choice in _candidates(token_tiles, inner_tiles, output_tiles, grid)
        if inner_block in (None, choice.inner_block)
        and matmul_bytes(choice, weight_dtype, output_dtype, bias_dtype) <= l1_bytes
    )
    best = min(legal, key=lambda choice: _matmul_cost(choice, inner_tiles), default=None)
    if best is None:
        sizes = f"{token_tiles} x {inner_tiles} x {output_tiles}"
        raise NoProgram(f"no matmul of {sizes} tiles fits {l1_bytes} bytes of L1 on one core")
    return best


def attention_bytes(choice: Attention, head_dim: int, key_value_dtype: str) -> int:
    """Circular-buffer bytes of one core of the attention operation with float32 accumulation.

    In tiles, with q and k the chunk tiles and d the head tiles: keys and values double-buffered (4kd), scores in float32 (2qk),
    queries, outputs and partial outputs (5qd), running maxima and sums (7q), constants (4).
    """
    query, key, depth = tiles(choice.query_chunk), tiles(choice.key_chunk), tiles(head_dim)
    cached = 4 * key * depth * TILE_BYTES[key_value_dtype]
    rest = 2 * query * key + 5 * query * depth + 7 * query + 4
    return cached + rest * TILE_BYTES["bfloat16"]


@cache
def choose_attention(
    tokens: int,
    rows: int,
    query_heads: int,
    head_dim: int,
    grid: tuple[int, int],
    l1_bytes: int,
    key_value_dtype: str,
    start_multiple: int | None = None,
) -> Attention:
    """Chunks for `rows` rows of `tokens` tokens. `start_multiple` is the alignment of absolute starts (chunked passes only).

    Both chunks divide what they cut: the row, and for chunked passes also every start. The query chunk is the one that leaves
    the busiest core the least to do, where reading the keys costs about one more tile row a chunk; larger chunks win ties.
    """
    cores = grid[0] * grid[1]
    key_limit = start_multiple or tokens
    best = None
    for query_chunk in ATTENTION_CHUNKS:
        if gcd(tokens, start_multiple or tokens) % query_chunk:
            continue
        for key_chunk in ATTENTION_CHUNKS:
            choice = Attention(query_chunk, key_chunk)
            if key_limit % key_chunk or attention_bytes(choice, head_dim, key_value_dtype) > l1_bytes:
                continue
            units = rows * query_heads * (tokens // query_chunk)
            cost = (-(-units // cores) * (query_chunk + TILE), -query_chunk, -key_chunk)
            if best is None or cost < best[0]:
                best = (cost, choice)
    if best is None:
        raise NoProgram(f"no attention over {tokens} tokens of {head_dim} fits {l1_bytes} bytes of L1 on one core")
    return best[1]


def fidelity(dtype: str) -> str:
    """Math fidelity that keeps the mantissa of a stored dtype: 7 bits need four passes, 6 fit two, 3 fit one."""
    return {"bfloat16": "HiFi4", "bfloat8_b": "HiFi2", "bfloat4_b": "LoFi"}[dtype]

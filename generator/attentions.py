"""How attention is cut: the tokens of queries and keys that a core holds at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import TYPE_CHECKING

from generator.matmuls import FIDELITY_PASSES, NoProgram, fidelity
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.targets import CoreRates

ATTENTION_CHUNKS = (256, 128, 64, 32)


@dataclass(frozen=True)
class Attention:
    """Query and key tokens that the attention operation holds at a time."""

    query_chunk: int
    key_chunk: int


def attention_bytes(
    choice: Attention,
    head_dim: int,
    key_value_dtype: str,
    query_dtype: str = "bfloat16",
    windows: int = 0,
    table_pages: int = 0,
    chained: bool = False,
    windowed: bool = False,
    sinks: bool = False,
) -> int:
    """Circular-buffer bytes of one core of the attention operation with float32 accumulation, at most.

    In tiles, with q and k the chunk tiles and d the head tiles: keys and values double-buffered (4kd), queries double-buffered
    and one output (3qd), partial outputs (2qd), scores and mask (2qk), running maxima and sums (7q), constants (4). `windows`
    is the number of bounds of packed rows (0: none): their mask is built on the core, twice as large as scores alone.
    `table_pages` is the width of the page table of a chunk, which a core keeps beside its start (0: no chunk). `chained` is
    whether cores hand bfloat16 keys and values on to each other: with four tile rows of queries they then hold a third pair.
    `windowed`: the mask of a sliding window is made of whole chunks, in bfloat4_b, twice. `sinks` are a tile for each tile row
    of queries.
    """
    query, key, depth = tiles(choice.query_chunk), tiles(choice.key_chunk), tiles(head_dim)
    cached = 4 * key * depth * TILE_BYTES[key_value_dtype]
    queries = 3 * query * depth * TILE_BYTES[query_dtype]
    scores, constants = (4, 6) if windows else (2, 4)
    rest = scores * query * key + 2 * query * depth + 7 * query + constants + (query if sinks else 0)
    mask = 2 * query * key * TILE_BYTES["bfloat4_b"] if windowed else 0
    bounds = -(-4 * windows // 32) * 32
    table = 4 * table_pages + 64 if table_pages else 0
    passed_on = 0
    if chained and key_value_dtype == "bfloat16":
        passed_on = 128 + (2 * key * depth * TILE_BYTES[key_value_dtype] if query >= 4 else 0)
    return cached + queries + rest * TILE_BYTES["bfloat16"] + mask + bounds + table + passed_on


def attention_cycles(
    rates: CoreRates,
    choice: Attention,
    row_squares: int,
    tokens: int,
    behind: int,
    query_heads: int,
    head_dim: int,
    grid: tuple[int, int],
    key_value_dtype: str,
) -> float:
    """Modelled cycles of the busiest core: both products of every tile of scores, and its softmax.

    `row_squares` is the sum of the rows' tiles squared, `tokens` those of the pass. `behind` are cached tokens before the pass, all of which
    every query sees; of its own row it sees half on average. What no row fills sees itself alone.
    """
    query, depth = tiles(choice.query_chunk), tiles(head_dim)
    units = query_heads * (tokens // choice.query_chunk)
    busiest = -(-units // (grid[0] * grid[1]))
    keys = tiles(behind) + (row_squares / tiles(tokens) + query) / 2
    products = 2 * depth * rates.product_cycles * FIDELITY_PASSES[fidelity(key_value_dtype)]
    return busiest * query * keys * (products + rates.softmax_cycles)


@cache
def choose_attention(
    tokens: int,
    rows: int,
    query_heads: int,
    head_dim: int,
    grid: tuple[int, int],
    l1_bytes: int,
    key_value_dtype: str,
    query_dtype: str = "bfloat16",
    windows: int = 0,
    table_pages: int = 0,
    start_multiple: int | None = None,
    chained: bool = False,
    kinds: tuple[str, ...] = ("full",),
    sinks: bool = False,
    most: int = ATTENTION_CHUNKS[0],
) -> Attention:
    """Chunks for `rows` rows of `tokens` tokens. `start_multiple` is the alignment of absolute starts (chunked passes only).

    All `kinds` of layers take the same: "full" ones with the bounds of packed rows, "sliding" ones with a window. Both chunks
    divide what they cut: the row, and for chunked passes also every start. The query chunk is the one that leaves the busiest
    core the least to do, where reading the keys costs about one more tile row a chunk; larger chunks win ties. None is over
    `most` tokens.
    """
    cores = grid[0] * grid[1]
    key_limit = start_multiple or tokens
    best = None
    for query_chunk in ATTENTION_CHUNKS:
        if gcd(tokens, start_multiple or tokens) % query_chunk or query_chunk > most:
            continue
        for key_chunk in (chunk for chunk in ATTENTION_CHUNKS if chunk <= most):
            choice = Attention(query_chunk, key_chunk)
            stored = (choice, head_dim, key_value_dtype, query_dtype)
            size = max(
                (
                    attention_bytes(*stored, windows, table_pages, chained, sinks=sinks)
                    if kind == "full"
                    else attention_bytes(*stored, 0, table_pages, windowed=True, sinks=sinks)
                )
                for kind in kinds
            )
            if key_limit % key_chunk or size > l1_bytes:
                continue
            units = rows * query_heads * (tokens // query_chunk)
            cost = (-(-units // cores) * (query_chunk + TILE), -query_chunk, -key_chunk)
            if best is None or cost < best[0]:
                best = (cost, choice)
    if best is None:
        raise NoProgram(f"no attention over {tokens} tokens of {head_dim} fits {l1_bytes} bytes of L1 on one core")
    return best[1]

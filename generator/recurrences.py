"""How the recurrence of a gated delta net runs: as one operation of the library, or as plain matmuls."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from generator.matmuls import FIDELITY_PASSES, SUBBLOCK_TILES
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import GatedDeltaNet
    from generator.targets import Board, CoreRates

UNIT_EPSILON = 1e-6  # added to the sum of squares of a query or key head
WIDEST_CHANNEL_CHUNK = 256  # channels that a core convolves at a time: a power of two
CHANNEL_GROUP = 4  # of its tiles, as many as half the destination registers hold in float32
CORES_OF_A_FUSED_HEAD = 2
FUSED_BYTES = {32: 249856, 64: 393216, 128: 700416}  # of a core at most, by the columns of a value head
CHUNKS = {"operation": 32, "matmuls": 64}  # tokens at a time; the operation takes raw heads in no other
PREPARE, SCAN, FUSED = "delta_prepare", "delta_scan", "delta_rule"  # programs of the operation: two phases, or one
JOINED_BLOCKS = (1, 2, 4, 8, 16, 32)  # of a chunk of the matmuls, whose inverse is joined from these
ALONE, WAVE, ROWS, MATMULS = "alone", "wave", "rows", "matmuls"  # what a module states of its passes, by their rows


def form(stated: str | None, key_dim: int, value_dim: int) -> str:
    """The operation unless the manifest says otherwise; it takes equal dims of keys and values only."""
    return stated or ("operation" if key_dim == value_dim else "matmuls")


def fuses(value_heads: int, value_dim: int, cores: int) -> bool:
    """Whether one row fits the operation's fused program, which keeps what lies between its two phases on the chip.

    It takes two cores to a head where a head is one, two or four tiles wide: at every number of heads on both boards' grids.
    """
    return value_dim in FUSED_BYTES and CORES_OF_A_FUSED_HEAD * value_heads <= cores


def route(form: str, rows: int, value_heads: int, value_dim: int, cores: int) -> str:
    """How the rows of a pass run: at once where the program that one row takes holds all their heads; else one after another.

    A row by itself in the fused program has all cores; several at once in the phased one pass all that lies between its phases
    through DRAM.
    """
    if form == "matmuls":
        return MATMULS
    if rows == 1:
        return ALONE
    of_a_head = CORES_OF_A_FUSED_HEAD if fuses(value_heads, value_dim, cores) else 1
    return WAVE if of_a_head * rows * value_heads <= cores else ROWS


def products(chunk: int, key_dim: int, value_dim: int) -> dict[str, tuple[int, int, int, int, int]]:
    """Of each product of the matmuls: tiles of the rows, of what is summed over, of the columns, and of a subblock's sides."""
    tokens, keys, values = tiles(chunk), tiles(key_dim), tiles(value_dim)
    sides = {
        "scores": (tokens, keys, tokens),
        "chunk": (tokens, tokens, tokens),
        "keys": (tokens, tokens, keys),
        "values": (tokens, tokens, values),
        "read": (tokens, keys, values),
        "update": (keys, tokens, values),
    }
    return {role: (*one, *subblock(one[0], one[2])) for role, one in sides.items()}


def subblock(rows: int, columns: int) -> tuple[int, int]:
    """The most tiles that the destination registers hold, in sides that divide the block's; of equals, the lowest."""
    sides = [
        (height, width)
        for height in range(1, SUBBLOCK_TILES + 1)
        for width in range(1, SUBBLOCK_TILES // height + 1)
        if rows % height == 0 and columns % width == 0
    ]
    return max(sides, key=lambda side: (side[0] * side[1], side[1]))


# Buffers of one core, as graphs of mock devices state them at many sizes; none depends on the tokens of a pass.


def channel_chunk(width: int) -> int:
    """Channels that a core convolves at a time."""
    return gcd(width, WIDEST_CHANNEL_CHUNK)


def convolution_bytes(width: int) -> int:
    """Of the convolution over so many channels."""
    chunk = channel_chunk(width) // TILE
    return 2304 + 20480 * gcd(chunk, CHANNEL_GROUP) + 22208 * chunk


def gated_norm_bytes(value_dim: int) -> int:
    """Of the gated norm from float32 to bfloat16."""
    return 14336 + tiles(value_dim) * (2 * TILE_BYTES["float32"] + 2 * TILE_BYTES["bfloat16"] + 14336)


def prepare_bytes(key_dim: int, value_dim: int) -> int:
    """Of the first program of the operation, which works on chunks by themselves."""
    return TILE_BYTES["float32"] * (27 + 11 * tiles(key_dim)) + 10240 * tiles(value_dim)


def value_parts(grid: tuple[int, int], heads: int, value_dim: int) -> int:
    """Cores to each head in the second program: as many parts of its values as lie side by side for every head."""
    columns, rows = grid
    values = tiles(value_dim)
    fitting = [part for part in range(2, values + 1) if values % part == 0 and columns // part * rows >= heads]
    return max(fitting, default=1)


def scan_bytes(key_dim: int, value_dim: int, parts: int) -> int:
    """Of the second program, in which chunks meet the state one after another."""
    width = tiles(value_dim) // parts
    return TILE_BYTES["float32"] * ((3 + 4 * width) * tiles(key_dim) + 4 + 5 * width)


# Cycles at the one fidelity that the operation has. Unverified: products alone, doubled for what is done value by value.


def prepare_cycles(rates: CoreRates, key_dim: int, value_dim: int) -> float:
    """Of one chunk: keys against keys and queries, and the inverse by its quadrants."""
    return 2 * (2 * tiles(key_dim) + 8) * rates.product_cycles * FIDELITY_PASSES["HiFi4"]


def scan_cycles(rates: CoreRates, key_dim: int, value_dim: int) -> float:
    """Of one chunk of all values of a head: the state read by keys and by queries, and written; new values made and met."""
    keys, values = tiles(key_dim), tiles(value_dim)
    return 2 * (3 * keys * values + 2 * values) * rates.product_cycles * FIDELITY_PASSES["HiFi4"]


def fused_cycles(rates: CoreRates, key_dim: int, value_dim: int, heads: int, cores: int) -> float:
    """Of one chunk in the fused program: some cores of a head prepare chunks while the others meet them with the state."""
    of_a_head = cores // heads
    cuts = [part for part in range(1, tiles(value_dim) + 1) if tiles(value_dim) % part == 0 and part < of_a_head]
    prepare, scan = prepare_cycles(rates, key_dim, value_dim), scan_cycles(rates, key_dim, value_dim)
    return min(max(prepare / (of_a_head - part), scan / part) for part in cuts)


def program_cycles(program: str, net: GatedDeltaNet, tokens: int, heads: int, board: Board) -> float:
    """Of a program of the operation over so many heads of so many tokens each, on all cores of a board."""
    rates, dims, chunks = board.rates.core, (net.key_dim, net.value_dim), tokens // TILE
    if program == PREPARE:
        return -(-heads * chunks // board.cores) * prepare_cycles(rates, *dims)
    if program == SCAN:
        return chunks * scan_cycles(rates, *dims) / value_parts(board.grid, heads, net.value_dim)
    return chunks * fused_cycles(rates, *dims, heads, board.cores)

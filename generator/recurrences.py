"""How the recurrence of a gated delta net runs: as one operation of the library, or as plain matmuls."""

from __future__ import annotations

from generator.matmuls import SUBBLOCK_TILES
from generator.tiles import tiles

UNIT_EPSILON = 1e-6  # added to the sum of squares of a query or key head
CHUNKS = {"operation": 32, "matmuls": 64}  # tokens at a time; the operation takes raw heads in no other
ALONE, WAVE, ROWS, MATMULS = "alone", "wave", "rows", "matmuls"  # what a module states of its passes, by their rows


def form(stated: str | None, key_dim: int, value_dim: int) -> str:
    """The operation unless the manifest says otherwise; it takes equal dims of keys and values only."""
    return stated or ("operation" if key_dim == value_dim else "matmuls")


def route(form: str, rows: int, value_heads: int, cores: int) -> str:
    """How the rows of a pass run: at once where the operation finds a core for every value head of every row, as its phased
    program demands; else one after another.
    """
    if form == "matmuls":
        return MATMULS
    if rows == 1:
        return ALONE
    return WAVE if rows * value_heads <= cores else ROWS


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

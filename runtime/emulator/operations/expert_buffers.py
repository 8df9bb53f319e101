"""L1 memory that the fused experts take on each core: an upper bound, fitted to the sizes that the library states.

It was compared with 1,472 geometries, types and grids on both boards: nothing that the library refuses passes, and eight
that it accepts within 22 KB of the limit do not.
"""

from __future__ import annotations

from math import lcm

from ..dtypes import TILE_BYTES, DataType

BLOCK_ROWS = 8  # tile rows of tokens that are worked on at a time
DESTINATION_TILES = 8
SCRATCH = 192


def buffer_bytes(hidden: int, width: int, grid: tuple[int, int], dtype: DataType, biased: bool) -> int | str:
    """Bytes of one core for experts of `hidden` x `width` tiles on a grid of columns x rows, or why there is no such program.

    Hidden is cut over the rows of the grid, width over its columns, and the output's columns over all cores.
    """
    columns, rows = grid
    share = -(-hidden // (columns * rows))
    if share > DESTINATION_TILES:
        return f"the output of {share} tiles a core is over {DESTINATION_TILES} destination tiles on a grid of {columns} x {rows}"
    if width < columns:
        return f"an intermediate width of {width} tiles cannot be split across {columns} columns of cores"
    inner = -(-hidden // rows)
    taken = _columns(width, columns, rows)
    largest, common = _slices(taken, rows)
    wide, narrow = TILE_BYTES[DataType.BFLOAT16], TILE_BYTES[DataType.BFLOAT8_B]
    return (
        (2 * inner * taken + 3 * taken * share) * TILE_BYTES[dtype]
        + (2 * taken + share) * wide * biased
        + (5 * BLOCK_ROWS * taken + 2 * rows * largest + common + BLOCK_ROWS * inner) * narrow
        + (3 * common + inner + 3 * BLOCK_ROWS * share) * wide
        + SCRATCH
    )


def _slices(taken: int, rows: int) -> tuple[int, int]:
    """The largest slice of a block that a core reduces, and the least common multiple of the slices of all block heights."""
    sizes = []
    for height in (1, 2, 4, 8):
        total = height * taken
        workers = max(part for part in range(1, rows + 1) if total % part == 0)
        sizes.append(total // workers)
    return max(sizes), lcm(*sizes)


def _columns(width: int, columns: int, rows: int) -> int:
    """Tiles of the width that a column of cores has: the least share whose slices tile a block."""
    taken = -(-width // columns)
    while True:
        largest, common = _slices(taken, rows)
        if (BLOCK_ROWS * taken) % common == 0 and common <= 2 * largest:
            return taken
        taken += 1

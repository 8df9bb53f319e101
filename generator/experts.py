"""Mixtures of experts: what a model has of them, and how the fused operation cuts an expert over the cores.

The bytes of its buffers were fitted to the sizes that the library states when they overflow: over 1,472 geometries, types and
grids on both boards, nothing that it refuses passes, and eight that it accepts within 22 KB of the limit do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import lcm
from typing import TYPE_CHECKING

from generator.matmuls import FIDELITY_PASSES, NoProgram, divisors, fidelity
from generator.tiles import TILE, TILE_BYTES

if TYPE_CHECKING:
    from generator.targets import CoreRates

BLOCK_ROWS = 8  # tile rows of tokens that the operation works on at a time
DESTINATION_TILES = 8  # of bfloat16, which is how it accumulates
SCRATCH_BYTES = 192
LEAST_LINES = 2  # rows of cores
MOST_PUBLISHED = 1024
MOST_EXPERTS, WHY_SO_FEW = 256, "a longer row of counts does not survive its way from tiles to rows"
MOST_ROUTED_TOKENS = 8192  # of a pass: tiles of one expert's tokens are exact in bfloat16 up to 256
WIDEST_HIDDEN = 8192  # eight destination registers of 1024 values, in which a token's experts are summed
NARROWEST = 2 * TILE  # of an expert: one tile for each of two columns of cores


@dataclass(frozen=True)
class Experts:
    """The mixture of experts of a model; see runtime.tables.Experts."""

    count: int
    per_token: int
    intermediate: int
    renormalise: bool
    published: str
    biases: bool
    activation: str
    shared_intermediate: int | None = None


@dataclass(frozen=True)
class ExpertCut:
    """Columns and rows of cores, and the parts that the width of an expert is cut into, each a call of its own."""

    columns: int
    lines: int
    parts: int
    buffer_bytes: int


@cache
def cut_experts(hidden: int, width: int, grid: tuple[int, int], l1_bytes: int, dtype: str, biased: bool) -> ExpertCut:
    """The fewest parts of experts of `hidden` x `width` tiles whose buffers fit `l1_bytes` of each core.

    As many cores as there are: as many columns as the part has tiles, and no more rows than columns. Raises NoProgram.
    """
    for parts in divisors(width):
        part = width // parts
        columns = min(grid[0], part)
        lines = min(grid[1], columns)
        if lines < LEAST_LINES:
            break
        need = buffer_bytes(hidden, part, (columns, lines), dtype, biased)
        if need is not None and need <= l1_bytes:
            return ExpertCut(columns, lines, parts, need)
    raise NoProgram(
        f"no cut of experts of {hidden} x {width} tiles fits {l1_bytes} bytes of L1 on {grid[0]} x {grid[1]} cores"
    )


def buffer_bytes(hidden: int, width: int, grid: tuple[int, int], dtype: str, biased: bool) -> int | None:
    """Bytes of one core at most; None where a core's columns of the output are over its destination tiles.

    Hidden is cut over the rows of the grid, width over its columns, and the output's columns over all cores.
    """
    columns, lines = grid
    share = -(-hidden // (columns * lines))
    if share > DESTINATION_TILES:
        return None
    inner, taken = -(-hidden // lines), _taken(width, columns, lines)
    largest, common = _slices(taken, lines)
    wide, narrow = TILE_BYTES["bfloat16"], TILE_BYTES["bfloat8_b"]
    size = (2 * inner * taken + 3 * taken * share) * TILE_BYTES[dtype]
    size += (2 * taken + share) * wide if biased else 0
    size += (5 * BLOCK_ROWS * taken + 2 * lines * largest + common + BLOCK_ROWS * inner) * narrow
    return size + (3 * common + inner + 3 * BLOCK_ROWS * share) * wide + SCRATCH_BYTES


def _slices(taken: int, lines: int) -> tuple[int, int]:
    """The largest slice of a block that a core reduces, and the least common multiple over all heights of a block."""
    slices = []
    for height in (1, 2, 4, 8):
        total = height * taken
        slices.append(total // max(part for part in range(1, lines + 1) if total % part == 0))
    return max(slices), lcm(*slices)


def _taken(width: int, columns: int, lines: int) -> int:
    """Tiles of the width that a column of cores has: the least share whose slices tile a block."""
    taken = -(-width // columns)
    while True:
        largest, common = _slices(taken, lines)
        if BLOCK_ROWS * taken % common == 0 and common <= 2 * largest:
            return taken
        taken += 1


def slots(tokens: int, experts: Experts) -> int:
    """Rows that hold every choice of `tokens` tokens in whole tiles of each expert."""
    return tokens * experts.per_token + TILE * experts.count


def expected_tiles(tokens: int, experts: Experts) -> tuple[float, float]:
    """Experts that see any of `tokens` tokens, and tile rows that they work on, were the choice uniform.

    Of an expert's last tile half is empty on average.
    """
    seen = experts.count * (1 - (1 - experts.per_token / experts.count) ** tokens)
    return seen, tokens * experts.per_token / TILE + seen / 2


def expert_cycles(rates: CoreRates, hidden: int, width: int, tile_rows: float, cut: ExpertCut, dtype: str) -> float:
    """Modelled cycles of the busiest core for `tile_rows` through a part: three products of hidden x part of the width."""
    part = width // cut.parts
    gate_up = 2 * -(-hidden // cut.lines) * -(-part // cut.columns)
    down = part * -(-hidden // (cut.columns * cut.lines))
    return tile_rows * (gate_up + down) * rates.product_cycles * FIDELITY_PASSES[fidelity(dtype)]


def expert_bytes(hidden: int, width: int, cut: ExpertCut, dtype: str) -> int:
    """Bytes of one expert's three matrices in one part."""
    return 3 * hidden * (width // cut.parts) * TILE_BYTES[dtype]


def scatter_cycles(rates: CoreRates, rows: int, columns: int, written: int, cores: int) -> float:
    """A row belongs to one core, which copies its columns and looks at every index, one after another."""
    return rates.index_cycles * -(-rows // max(1, min(rows, cores))) * (columns + written)

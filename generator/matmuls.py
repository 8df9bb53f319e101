"""How a matmul's tiles are cut over the cores: every legal configuration, and the one that keeps the busiest core least busy.

A choice is legal when the library accepts it, which is a set of divisibility rules and one sum of circular-buffer bytes. The
byte sums were fitted to the sizes that the library itself reports when buffers overflow, and are exact for the configurations
that this module can choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from generator.tiles import TILE_BYTES

if TYPE_CHECKING:
    from generator.targets import CoreRates

ACCUMULATOR_TILE_BYTES = 4096  # partial sums stay in float32 (fp32_dest_acc_en with packer_l1_acc)
SUBBLOCK_TILES = 4  # destination registers left in float32 accumulation
FEW_TOKEN_TILES = 8  # up to here every core may hold all token rows (the 1-D form)
WIDER_SHARES = 4  # widths of a core's share that are tried: one may cut into better subblocks than the narrowest
WIDEST_INNER_BLOCK = 8  # tiles of the inner dimension fetched at a time: more gains nothing and costs L1
MINIMAL_SUBBLOCKS = ((1, 4), (2, 2), (4, 1), (1, 2), (2, 1), (1, 1))  # packed tile by tile, so any form will do
PAIRS, RESIDUAL = "pairs", "residual"  # what a minimal matmul may fuse: silu(gate) * up, or the residual's sum

FIDELITY_PASSES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}  # of the matrix unit over a product of two tiles
NEVER = (float("inf"), 0)  # cycles and bytes of no configuration


class NoProgram(ValueError):
    """No legal configuration exists: the message gives the sizes and the limit."""


def fidelity(dtype: str) -> str:
    """Math fidelity that keeps the mantissa of a stored dtype: 7 bits need four passes, 6 fit two, 3 fit one."""
    return {"bfloat16": "HiFi4", "bfloat8_b": "HiFi2", "bfloat4_b": "LoFi"}[dtype]


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
        return _table_row(self)


@dataclass(frozen=True)
class MinimalMatmul:
    """One literal configuration of the minimal matmul, which also fuses what follows a product; blocks count tiles."""

    grid_columns: int
    grid_rows: int
    block_rows: int
    inner_block: int
    block_columns: int
    subblock_rows: int
    subblock_columns: int
    form: str = "minimal"

    @property
    def numbers(self) -> tuple[int, ...]:
        return _table_row(self)


def _table_row(choice: Matmul | MinimalMatmul) -> tuple[int, ...]:
    """The integers of the emitted table row: all fields but the form, in the order of the emitted helper's parameters."""
    return tuple(getattr(choice, field.name) for field in fields(choice) if field.name != "form")


@cache
def divisors(number: int) -> tuple[int, ...]:
    return tuple(part for part in range(1, number + 1) if number % part == 0)


def matmul_bytes(
    choice: Matmul, weight_dtype: str, output_dtype: str, bias_dtype: str | None, left_dtype: str = "bfloat16"
) -> int:
    """Circular-buffer bytes of one core: inputs double-buffered, one output block, its float32 partial sums, one row of bias."""
    step, rest = _matmul_bytes(
        choice.block_rows, choice.block_columns, weight_dtype, output_dtype, bias_dtype, left_dtype
    )
    return choice.inner_block * step + rest


def _matmul_bytes(
    rows: int, columns: int, weight_dtype: str, output_dtype: str, bias_dtype: str | None, left_dtype: str
) -> tuple[int, int]:
    """Of a block: bytes for each tile of the inner dimension that is summed at a time, and the others."""
    step = 2 * (rows * TILE_BYTES[left_dtype] + columns * TILE_BYTES[weight_dtype])
    bias = columns * TILE_BYTES[bias_dtype] if bias_dtype else 0
    return step, rows * columns * (TILE_BYTES[output_dtype] + ACCUMULATOR_TILE_BYTES) + bias


class _Core:
    """What the busiest core does, which makes rows x columns tiles of the output of a product over `inner` tiles.

    The matrix unit, the packer (which adds to the partial sums once for every step over the inner dimension) and the
    network work at the same time, so the slowest counts; each step also costs one hand-shake between the cores.
    """

    def __init__(self, rates: CoreRates, rows: int, columns: int, inner: int, weight_dtype: str) -> None:
        self.rates, self.rows, self.columns, self.inner = rates, rows, columns, inner
        tiles = rows * columns
        self._multiply = tiles * inner * rates.product_cycles * FIDELITY_PASSES[fidelity(weight_dtype)]
        self._pack = tiles * rates.pack_cycles
        self._left, self._right = rows * TILE_BYTES["bfloat16"], columns * TILE_BYTES[weight_dtype]

    def cycles(self, block_rows: int, block_columns: int, inner_block: int, subblock_tiles: int) -> float:
        """Modelled, in blocks that divide the core's tiles."""
        row_blocks, column_blocks = self.rows // block_rows, self.columns // block_columns
        steps = self.inner // inner_block
        fetch = self.inner * (self._left * column_blocks + self._right * row_blocks) / self.rates.multicast_bytes
        busy = max(self._multiply / self.rates.subblock_efficiency[subblock_tiles - 1], self._pack * steps, fetch)
        return busy + row_blocks * column_blocks * steps * self.rates.step_cycles


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


def _inner_blocks(inner_tiles: int) -> list[int]:
    """Tiles of the inner dimension that may be summed at a time, the most first."""
    return [block for block in reversed(divisors(inner_tiles)) if block <= WIDEST_INNER_BLOCK]


@cache
def choose_matmul(
    rates: CoreRates,
    token_tiles: int,
    inner_tiles: int,
    output_tiles: int,
    grid: tuple[int, int],
    l1_bytes: int,
    weight_dtype: str,
    output_dtype: str,
    bias_dtype: str | None = None,
    inner_block: int | None = None,
    left_dtype: str = "bfloat16",
) -> Matmul:
    """The cheapest legal configuration of [token_tiles, inner_tiles] x [inner_tiles, output_tiles] on a grid of cores.

    `inner_block` fixes the tiles of the inner dimension that are summed at a time, and with it the order of the sum. Raises
    NoProgram where not even single-tile blocks fit `l1_bytes`.
    """
    inner_blocks = [block for block in _inner_blocks(inner_tiles) if inner_block in (None, block)]
    best, least = None, NEVER
    for form, grid_columns, grid_rows, core_rows, core_columns in _layouts(token_tiles, output_tiles, grid):
        core = _Core(rates, core_rows, core_columns, inner_tiles, weight_dtype)
        for block_rows in divisors(core_rows):
            for block_columns in divisors(core_columns):
                step, rest = _matmul_bytes(
                    block_rows, block_columns, weight_dtype, output_dtype, bias_dtype, left_dtype
                )
                inner = _deepest(inner_blocks, step, rest, l1_bytes)
                if inner is None:
                    continue
                for rows, columns in _subblocks(block_rows, block_columns):
                    cost = core.cycles(block_rows, block_columns, inner, rows * columns), inner * step + rest
                    if cost < least:
                        blocks = (inner, rows, columns, block_rows, block_columns, core_rows, core_columns)
                        best, least = Matmul(form, grid_columns, grid_rows, *blocks), cost
    if best is None:
        sizes = f"{token_tiles} x {inner_tiles} x {output_tiles}"
        raise NoProgram(f"no matmul of {sizes} tiles fits {l1_bytes} bytes of L1 on one core")
    return best


def _deepest(inner_blocks: Sequence[int], step: int, rest: int, l1_bytes: int) -> int | None:
    """The first inner block whose buffers fit, `step` bytes for each of its tiles beside `rest`. They come the largest first, and
    the one with the fewest steps over the inner dimension is the cheapest: fewer partial sums are added and fewer hands shaken.
    """
    return next((block for block in inner_blocks if block * step + rest <= l1_bytes), None)


def minimal_matmul_bytes(
    choice: MinimalMatmul, weight_dtype: str, output_dtype: str, bias_dtype: str | None, fused: str
) -> int:
    """Circular-buffer bytes of one core: inputs and output double-buffered, float32 partial sums, and what is fused.

    The output of gated pairs is half as wide; a residual adds one block stored as the weight is and a row of factors.
    """
    step, rest = _minimal_bytes(choice.block_rows, choice.block_columns, weight_dtype, output_dtype, bias_dtype, fused)
    return choice.inner_block * step + rest


def _minimal_bytes(
    rows: int, columns: int, weight_dtype: str, output_dtype: str, bias_dtype: str | None, fused: str
) -> tuple[int, int]:
    """Of a block: bytes for each tile of the inner dimension that is summed at a time, and the others."""
    step = 2 * (rows * TILE_BYTES["bfloat16"] + columns * TILE_BYTES[weight_dtype])
    rest = rows * columns * (ACCUMULATOR_TILE_BYTES + (1 if fused == PAIRS else 2) * TILE_BYTES[output_dtype])
    if bias_dtype is not None:
        rest += columns * TILE_BYTES[bias_dtype]
    if fused == RESIDUAL:
        rest += columns * (rows * TILE_BYTES[weight_dtype] + TILE_BYTES["bfloat16"])
    return step, rest


@cache
def choose_minimal_matmul(
    rates: CoreRates,
    token_tiles: int,
    inner_tiles: int,
    output_tiles: int,
    grid: tuple[int, int],
    l1_bytes: int,
    weight_dtype: str,
    output_dtype: str,
    fused: str,
    bias_dtype: str | None = None,
) -> MinimalMatmul:
    """The cheapest legal blocks of [token_tiles, inner_tiles] x [inner_tiles, output_tiles] on a whole grid of cores.

    A core's last block may be partly empty: what it then computes in vain is counted. In gated pairs a core's columns, its
    block and its subblock are even.
    """
    step = 2 if fused == PAIRS else 1
    core_rows, core_columns = minimal_shares(token_tiles, output_tiles, grid, fused)
    inner_blocks = _inner_blocks(inner_tiles)

    subblocks: dict[tuple[int, int], tuple[int, int]] = (
        {}
    )  # of each block the first that cuts it: no later one is larger
    for subblock in MINIMAL_SUBBLOCKS:
        if subblock[1] % step == 0:
            for block in product(_blocks(core_rows, subblock[0]), _blocks(core_columns, subblock[1])):
                subblocks.setdefault(block, subblock)
    best, least = None, NEVER
    for (block_rows, block_columns), (rows, columns) in subblocks.items():
        each, rest = _minimal_bytes(block_rows, block_columns, weight_dtype, output_dtype, bias_dtype, fused)
        inner = _deepest(inner_blocks, each, rest, l1_bytes)
        if inner is not None:
            whole = _in_blocks(core_rows, block_rows), _in_blocks(core_columns, block_columns)
            cycles = _Core(rates, *whole, inner_tiles, weight_dtype).cycles(
                block_rows, block_columns, inner, rows * columns
            )
            if (cycles, inner * each + rest) < least:
                best = MinimalMatmul(*grid, block_rows, inner, block_columns, rows, columns)
                least = cycles, inner * each + rest
    if best is None:
        sizes = f"{token_tiles} x {inner_tiles} x {output_tiles}"
        raise NoProgram(f"no minimal matmul of {sizes} tiles fits {l1_bytes} bytes of L1 on one core")
    return best


def _in_blocks(share: int, block: int) -> int:
    """What a core computes whose last block may be partly empty."""
    return -(-share // block) * block


@cache
def _blocks(share: int, subblock: int) -> list[int]:
    """The sizes, multiples of a subblock, that cut a core's share into one block, two, three and so on."""
    return sorted({-(-share // (count * subblock)) * subblock for count in range(1, share + 1)})


def minimal_shares(token_tiles: int, output_tiles: int, grid: tuple[int, int], fused: str) -> tuple[int, int]:
    """Rows and columns of the output, in tiles, that the busiest core makes in a minimal matmul.

    The longer side of the output is cut over the columns of the grid; gated pairs stay together.
    """
    columns, rows = grid if token_tiles <= output_tiles else grid[::-1]
    step = 2 if fused == PAIRS else 1
    return -(-token_tiles // rows), -(-output_tiles // (columns * step)) * step


def program_cycles(
    rates: CoreRates,
    choice: Matmul | MinimalMatmul,
    token_tiles: int,
    inner_tiles: int,
    output_tiles: int,
    weight_dtype: str,
    fused: str = "",
) -> float:
    """Modelled cycles of the busiest core under a configuration. A minimal matmul's blocks round a core's share up."""
    rows, columns = choice.block_rows, choice.block_columns
    if isinstance(choice, Matmul):
        core_rows, core_columns = choice.core_rows, choice.core_columns
    else:
        grid = (choice.grid_columns, choice.grid_rows)
        shares = minimal_shares(token_tiles, output_tiles, grid, fused)
        core_rows, core_columns = _in_blocks(shares[0], rows), _in_blocks(shares[1], columns)
    core = _Core(rates, core_rows, core_columns, inner_tiles, weight_dtype)
    return core.cycles(rows, columns, choice.inner_block, choice.subblock_rows * choice.subblock_columns)

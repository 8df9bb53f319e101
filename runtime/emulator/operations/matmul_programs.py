"""What a matmul program must satisfy on a board: block arithmetic, the grid, and the L1 memory that its buffers take.

The rules and the sizes of the buffers were read off the library's refusals on mock devices: the sum below is the
number in its message, byte for byte, for both program kinds, all storage types, with and without bias.
"""

from __future__ import annotations

from typing import Any

from ..configs import (
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    WormholeComputeKernelConfig,
)
from ..device import Device
from ..dtypes import TILE_BYTES, DataType
from ..errors import require
from ..storage import TILE, TensorSpec

MULTICAST_2D = MatmulMultiCoreReuseMultiCastProgramConfig
MULTICAST_1D = MatmulMultiCoreReuseMultiCast1DProgramConfig
SUBBLOCK_TILES = 8  # what the accumulator registers hold; half of it with float32 accumulation


def check_program(
    device: Device,
    name: str,
    a: TensorSpec,
    b: TensorSpec,
    bias: TensorSpec | None,
    output: TensorSpec,
    program: Any,
    compute: WormholeComputeKernelConfig,
) -> int:
    """Refuse an illegal program; return the bytes of L1 that a legal one takes on each core."""
    batch = a.pages * TILE * TILE // (a.padded_shape[-2] * a.padded_shape[-1])
    row_tiles = a.padded_shape[-2] // TILE * (batch if program.fuse_batch else 1)
    inner_tiles = a.padded_shape[-1] // TILE
    column_tiles = output.padded_shape[-1] // TILE
    _check_blocks(name, program, inner_tiles, compute)
    _check_grid(device, name, program)
    columns, rows = program.compute_with_storage_grid_size.x, program.compute_with_storage_grid_size.y
    blocks_down = -(-row_tiles // program.per_core_M)
    blocks_across = -(-column_tiles // program.per_core_N)
    if isinstance(program, MULTICAST_2D):
        require(
            program.per_core_M <= row_tiles and program.per_core_N <= column_tiles,
            name,
            f"per_core_M {program.per_core_M} x per_core_N {program.per_core_N} tiles exceed the output "
            f"of {row_tiles} x {column_tiles}",
        )
        if program.transpose_mcast:
            blocks_across, blocks_down = blocks_down, blocks_across
        require(
            blocks_across <= columns and blocks_down <= rows,
            name,
            f"{row_tiles} x {column_tiles} output tiles in blocks of {program.per_core_M} x {program.per_core_N} need "
            f"{blocks_across} x {blocks_down} cores, the grid has {columns} x {rows}",
        )
    else:
        require(
            blocks_down * blocks_across <= columns * rows,
            name,
            f"{row_tiles} x {column_tiles} output tiles in blocks of {program.per_core_M} x {program.per_core_N} need "
            f"{blocks_down * blocks_across} cores, the grid has {columns * rows}",
        )
        require(
            (blocks_down if program.mcast_in0 else blocks_across) == 1,
            name,
            f"one block must hold all {'rows' if program.mcast_in0 else 'columns'} of the output when "
            f"mcast_in0={program.mcast_in0}; there are {blocks_down} x {blocks_across} blocks",
        )
    return _buffer_bytes(program, inner_tiles, a.dtype, b.dtype, output.dtype, bias, compute)


def check_reuse_program(
    device: Device,
    name: str,
    a: TensorSpec,
    b: TensorSpec,
    output: TensorSpec,
    program: MatmulMultiCoreReuseProgramConfig,
    compute: WormholeComputeKernelConfig,
    inner: int,
    transposed: bool,
) -> int:
    """Refuse an illegal program over a batch of matrices; return the bytes of L1 that a legal one takes on each core.

    A core holds rows of one matrix, or several whole ones. Cores take turns where there are fewer of them than blocks.
    """
    row_tiles, column_tiles = output.padded_shape[-2] // TILE, output.padded_shape[-1] // TILE
    inner_tiles = -(-inner // TILE)
    _check_blocks(name, program, inner_tiles, compute)
    _check_grid(device, name, program)
    rows, columns = program.per_core_M, program.per_core_N
    require(columns == column_tiles, name, f"per_core_N {columns} must be the {column_tiles} tiles of a row")
    require(
        rows % row_tiles == 0 if rows > row_tiles else row_tiles % rows == 0,
        name,
        f"per_core_M {rows} must divide the {row_tiles} tiles of a matrix, or be a multiple of them",
    )
    whole = output.pages // column_tiles
    require(whole % rows == 0, name, f"per_core_M {rows} must divide the {whole} tiles of all matrices")
    require(
        row_tiles % program.out_subblock_h == 0,
        name,
        f"out_subblock_h {program.out_subblock_h} must divide the {row_tiles} tiles of a matrix",
    )
    block_rows = min(rows, row_tiles)
    width = program.in0_block_w
    size = 2 * width * (block_rows * TILE_BYTES[a.dtype] * (2 if transposed else 1) + columns * TILE_BYTES[b.dtype])
    size += rows * columns * TILE_BYTES[output.dtype]
    partial = _partial_type(inner_tiles // width, output.dtype, compute)
    return size if partial is output.dtype else size + rows * columns * TILE_BYTES[partial]


def _check_blocks(name: str, program: Any, inner_tiles: int, compute: WormholeComputeKernelConfig) -> None:
    block_h, block_w = _block(program)
    sizes = {
        "in0_block_w": program.in0_block_w,
        "out_subblock_h": program.out_subblock_h,
        "out_subblock_w": program.out_subblock_w,
        "out_block_h": block_h,
        "out_block_w": block_w,
        "per_core_M": program.per_core_M,
        "per_core_N": program.per_core_N,
    }
    for field, size in sizes.items():
        require(size > 0, name, f"{field} must be positive, got {size}")
    for whole, whole_size, part in (
        ("the inner dimension", inner_tiles, "in0_block_w"),
        ("per_core_M", program.per_core_M, "out_block_h"),
        ("per_core_N", program.per_core_N, "out_block_w"),
        ("out_block_h", block_h, "out_subblock_h"),
        ("out_block_w", block_w, "out_subblock_w"),
    ):
        require(whole_size % sizes[part] == 0, name, f"{part} {sizes[part]} must divide {whole} of {whole_size} tiles")
    limit = SUBBLOCK_TILES // 2 if compute.fp32_dest_acc_en else SUBBLOCK_TILES
    require(
        program.out_subblock_h * program.out_subblock_w <= limit,
        name,
        f"out_subblock {program.out_subblock_h} x {program.out_subblock_w} must have at most {limit} tiles "
        f"with fp32_dest_acc_en={compute.fp32_dest_acc_en}",
    )


def _check_grid(device: Device, name: str, program: Any) -> None:
    grid, board = program.compute_with_storage_grid_size, device.board
    require(
        0 < grid.x <= board.grid[0] and 0 < grid.y <= board.grid[1],
        name,
        f"a grid of {grid.x} x {grid.y} cores is not inside the {board.grid[0]} x {board.grid[1]} of {board.name}",
    )


def _block(program: Any) -> tuple[int, int]:
    if isinstance(program, MatmulMultiCoreReuseProgramConfig):
        return program.per_core_M, program.per_core_N
    block_h = program.per_core_M if program.out_block_h is None else program.out_block_h
    block_w = program.per_core_N if program.out_block_w is None else program.out_block_w
    return block_h, block_w


def _buffer_bytes(
    program: Any,
    inner_tiles: int,
    a: DataType,
    b: DataType,
    output: DataType,
    bias: TensorSpec | None,
    compute: WormholeComputeKernelConfig,
) -> int:
    """Input blocks (twice when there are several), the output block, partial sums where their type is another, and
    the bias.
    """
    block_h, block_w = _block(program)
    steps = inner_tiles // program.in0_block_w
    copies = 2 if steps > 1 else 1
    size = copies * program.in0_block_w * (block_h * TILE_BYTES[a] + block_w * TILE_BYTES[b])
    partial = _partial_type(steps, output, compute)
    size += block_h * block_w * TILE_BYTES[output]
    if partial is not output:
        size += block_h * block_w * TILE_BYTES[partial]
    if bias is not None:
        size += block_w * TILE_BYTES[bias.dtype]
    return size


def _partial_type(steps: int, output: DataType, compute: WormholeComputeKernelConfig) -> DataType:
    """Of the sums before the last of `steps` along the inner dimension."""
    if compute.fp32_dest_acc_en:
        return DataType.FLOAT32
    return DataType.BFLOAT16 if compute.packer_l1_acc and steps > 1 else output

"""What attention requires of its inputs and its program, and the L1 memory that the program takes.

Read off the library's refusals and captured programs on mock devices: the size is the library's byte for byte, or but
one pair of key chunks above it where Blackhole's cores hand them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..configs import DRAM_MEMORY_CONFIG, SDPAProgramConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dtypes import TILE_BYTES, DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec

if TYPE_CHECKING:
    from runtime.tables import Board

STORED = (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B)
BF16_TILE = TILE_BYTES[DataType.BFLOAT16]


def check_inputs(name: str, query: TensorSpec, key: TensorSpec, value: TensorSpec) -> None:
    for role, spec in (("queries", query), ("keys", key), ("values", value)):
        require(
            len(spec.shape) == 4 and spec.layout is Layout.TILE and spec.dtype in STORED,
            name,
            f"{role} must have four dimensions, in tiles of BFLOAT16 or block floats, got {spec!r}",
        )
    require(key.shape == value.shape, name, f"keys {list(key.shape)} and values {list(value.shape)} differ in shape")
    require(
        query.shape[-1] == key.shape[-1] and query.shape[-1] % TILE == 0,
        name,
        f"the head dim must be the same multiple of {TILE}, "
        f"got {query.shape[-1]} in queries and {key.shape[-1]} in keys",
    )
    require(
        query.shape[1] % key.shape[1] == 0,
        name,
        f"{query.shape[1]} query heads do not divide among {key.shape[1]} key-value heads",
    )


def check_program(device: Device, name: str, program: SDPAProgramConfig) -> None:
    grid, board = program.compute_with_storage_grid_size, device.board
    require(
        0 < grid.x <= board.grid[0] and 0 < grid.y <= board.grid[1],
        name,
        f"a grid of {grid.x} x {grid.y} cores is not inside the {board.grid[0]} x {board.grid[1]} of {board.name}",
    )
    for field in ("q_chunk_size", "k_chunk_size"):
        size = getattr(program, field)
        require(size > 0 and size % TILE == 0, name, f"{field} must be a positive multiple of {TILE}, got {size}")


def check_sink(name: str, query: TensorSpec, sink: TensorSpec) -> None:
    """The library takes block floats too; its kernel reads them as if they were bfloat16."""
    require(
        sink.shape == (1, query.shape[1], 1, 1) and sink.layout is Layout.TILE and sink.dtype is DataType.BFLOAT16,
        name,
        f"a sink must be [1, {query.shape[1]}, 1, 1] BFLOAT16 in a tile for each query head, got {sink!r}",
    )
    require(sink.memory_config == DRAM_MEMORY_CONFIG, name, f"a sink must be in DRAM, got {sink!r}")


def check_window(name: str, window: int | None) -> None:
    """The library takes any 32 bits; its kernel counts in signed numbers."""
    if window is not None and not 0 <= window < 2**32:
        raise TypeError(f"{name}(): incompatible function arguments: sliding_window_size: got {window}")
    require(not window or window < 2**31, name, f"a window must be less than 2^31 tokens, got {window}")


def streams(compute: WormholeComputeKernelConfig | None) -> bool:
    """Whether the library takes the kernel that goes past key chunks in front of a window, and needs less L1."""
    return compute is None or not compute.fp32_dest_acc_en


def _hands_on(board: Board, query: TensorSpec, key: TensorSpec, program: SDPAProgramConfig, streaming: bool) -> bool:
    """Whether the cores of whole attention hand keys and values on to each other: Blackhole's do, where the pairs of an
    early and a late query chunk that they are dealt all visit equally many key chunks.
    """
    chunks, (queries, keys) = -(-query.shape[2] // program.q_chunk_size), (program.q_chunk_size, program.k_chunk_size)
    grid = program.compute_with_storage_grid_size
    visits = [-(-(number + 1) * queries // keys) for number in range(chunks)]
    visits = [min(count, -(-key.shape[2] // keys)) for count in visits]
    return (
        board.architecture == "blackhole"
        and grid.x * grid.y >= 64
        and queries <= 4 * TILE
        and (streaming or key.dtype is DataType.BFLOAT16)
        and chunks % 2 == 0
        and len({early + late for early, late in zip(visits, reversed(visits))}) == 1
    )


def program_bytes(
    board: Board,
    query: TensorSpec,
    key: TensorSpec,
    program: SDPAProgramConfig,
    compute: WormholeComputeKernelConfig | None,
    *,
    bounded: bool = False,
    window: int = 0,
    sink: bool = False,
    table: TensorSpec | None = None,
    started: bool = False,
) -> int:
    """L1 bytes of attention on each core. `bounded` is a packed call, `window` a sliding window in tokens (0: none),
    `table` the page table of a chunked call, `started` whether its start is a tensor.
    """
    batch, heads, tokens, dim = query.shape
    q, k, d = program.q_chunk_size // TILE, program.k_chunk_size // TILE, dim // TILE
    query_chunks = -(-tokens // program.q_chunk_size)
    cores = program.compute_with_storage_grid_size.x * program.compute_with_storage_grid_size.y
    alone = bounded or query_chunks % 2 == 1  # an even number is dealt out in pairs, of an early and a late chunk
    query_copies = 1 if alone and batch * heads * query_chunks <= cores else 2
    streaming = streams(compute)
    size = q * d * TILE_BYTES[query.dtype] * query_copies
    size += k * d * TILE_BYTES[key.dtype] * 4  # keys and values, twice each
    if streaming:
        rows = 1 if q == 1 or (q % 2 and d % 8 == 0) else 2  # of tiles, that are taken at a time
        size += 2 * rows * d * TILE_BYTES[query.dtype]  # output
        size += BF16_TILE * (2 * q * d + q * k + 5 * q + 1)  # partial outputs, scores, row statistics
    else:
        size += q * d * TILE_BYTES[query.dtype]
        size += BF16_TILE * (2 * q * d + 2 * q * k + 7 * q)
    size += BF16_TILE * 2  # constants
    if bounded:
        size += BF16_TILE * (2 * q * k + 4) + 32  # the mask, built from bounds, and two copies of the bounds
    elif window and not streaming:
        size += 2 * q * k * TILE_BYTES[DataType.BFLOAT4_B]  # the mask, of whole chunks
    else:
        size += BF16_TILE * (5 if window else 2)  # the few tiles that masks are made of
    if sink:
        size += BF16_TILE * (1 if streaming else q)
    if table is not None:
        row = 4 * table.shape[1]
        return size + (row + 64 if started else -(-row // board.dram_alignment) * board.dram_alignment)
    if bounded or window or not _hands_on(board, query, key, program, streaming):
        return size
    # A third pair of keys and values where it fits. The library leaves it out of some programs that could hold it.
    third = size + 2 * k * d * TILE_BYTES[key.dtype] + 128
    return third if q >= 3 and k <= 8 and third <= board.l1_bank_bytes else size + 96

"""What attention requires of its inputs and its program, and the L1 memory that the program takes.

Read off the library's refusals on mock devices. With float32 accumulation the size is the number in its message byte
for byte; without, it is an upper bound.
"""

from __future__ import annotations

from ..configs import SDPAProgramConfig
from ..device import Device
from ..dtypes import TILE_BYTES, DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec

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


def program_bytes(
    query: TensorSpec,
    key: TensorSpec,
    program: SDPAProgramConfig,
    *,
    windows: int = 0,
    table: TensorSpec | None = None,
    started: bool = False,
) -> int:
    """L1 bytes of attention on each core. `windows` is the number of bounds of a packed call (0: none), `table` the
    page table of a chunked one, `started` whether its start is a tensor.
    """
    batch, heads, tokens, dim = query.shape
    q, k, d = program.q_chunk_size // TILE, program.k_chunk_size // TILE, dim // TILE
    query_chunks = -(-tokens // program.q_chunk_size)
    cores = program.compute_with_storage_grid_size.x * program.compute_with_storage_grid_size.y
    one_task_a_core = batch * heads * query_chunks <= cores and (windows > 0 or query_chunks == 1)
    query_copies = 1 if one_task_a_core else 2
    size = q * d * TILE_BYTES[query.dtype] * (query_copies + 1)  # queries and output
    size += k * d * TILE_BYTES[key.dtype] * 4  # keys and values, twice each
    scores = 4 if windows else 2  # scores and mask; both twice where the mask is built from bounds
    size += BF16_TILE * (
        2 * q * d + scores * q * k + 7 * q + (6 if windows else 4)
    )  # partial outputs, row statistics, constants
    if windows:
        size += -(-4 * windows // 32) * 32
    if table is not None:
        size += 4 * table.shape[1] + (64 if started else 0)
    return size

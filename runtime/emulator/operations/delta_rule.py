"""The gated delta rule over a chunk of tokens: the phased and the fused program of `transformer.chunk_gated_delta_rule`.

Their rules, its buffers and the memory that it takes between its two phases were read off the library's mock devices, those that
the library leaves unchecked off its documentation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..arguments import checked
from ..configs import (
    DRAM_MEMORY_CONFIG,
    ChunkGdnFusedProgramConfig,
    ChunkGdnMonoProgramConfig,
    ChunkGdnPhasedProgramConfig,
    MathFidelity,
    MemoryConfig,
    WormholeComputeKernelConfig,
)
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import TILE_BYTES, DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor
from .delta_rule_math import delta_rule, normalised
from .experts import rounding_of

NAME = "chunk_gated_delta_rule"
PROGRAMS = ChunkGdnPhasedProgramConfig | ChunkGdnFusedProgramConfig | ChunkGdnMonoProgramConfig
# Of the fused program: bytes of a core's buffers at most, by the columns of a value head, where its geometry is left open.
FUSED_BYTES = {32: 249856, 64: 393216, 128: 700416}
GATES = (DataType.BFLOAT16, DataType.FLOAT32)
NAMES = ("q", "k", "v", "g", "beta", "initial_state", "eye", "tril", "ones", "masks")


def _plan(device: Device, *rest: Any) -> Plan:
    q, k, v, g, beta, state, *constants = specs = rest[: len(NAMES)]
    chunk, final, memory_config, compute, fused = rest[len(NAMES) :]
    for name, spec in zip(NAMES, specs):
        require(spec.layout is Layout.TILE, NAME, f"{name} must be in tiles, got {spec!r}")
    flat = len(q.shape) == 3
    require(chunk in (TILE, 2 * TILE), NAME, f"chunk_size must be {TILE} or {2 * TILE}, got {chunk}")
    require(not flat or chunk == TILE, NAME, f"q, k and v of three dimensions need chunk_size {TILE}, got {chunk}")
    batch, tokens, key_heads, value_heads, key_dim, value_dim = _check_shapes(q, k, v, g, beta, state, flat)
    require(
        tokens % chunk == 0,
        NAME,
        f"{tokens} tokens must be a multiple of chunk_size {chunk} (padding in four dimensions is not modelled)",
    )
    require(
        value_heads % key_heads == 0,
        NAME,
        f"{value_heads} value heads must be divisible by the {key_heads} key heads",
    )
    for name, size in (("key_dim", key_dim), ("value_dim", value_dim)):
        require(size % TILE == 0, NAME, f"{name} must be a multiple of {TILE}, got {size}")
    for name, spec in zip(NAMES[:3], specs):
        require(
            spec.dtype is DataType.BFLOAT16, NAME, f"{name} must be BFLOAT16 (casts are not modelled), got {spec!r}"
        )
    for name, spec in (("g", g), ("beta", beta)):
        require(spec.dtype in GATES, NAME, f"{name} must be FLOAT32 or BFLOAT16, got {spec!r}")
    require(state.dtype is DataType.FLOAT32, NAME, f"initial_state must be FLOAT32, got {state!r}")
    for name, spec in zip(NAMES[6:], constants):
        wanted = (1, 1, TILE, 3 * TILE) if name == "masks" else (1, 1, chunk, chunk)
        require(
            spec.dtype is DataType.FLOAT32 and spec.shape == wanted,
            NAME,
            f"{name} must be {list(wanted)} FLOAT32, got {spec!r}",
        )
    columns, rows = device.board.grid
    heads = batch * value_heads
    if fused:
        _check_fused(device, heads, value_dim)
    require(
        heads <= columns * rows,
        NAME,
        f"{batch} rows of {value_heads} value heads are {heads}, which exceeds the {columns * rows} cores of "
        f"{device.board.name}; take fewer rows at a time",
    )
    require(
        compute is None
        or compute.math_fidelity is MathFidelity.HiFi4
        and compute.fp32_dest_acc_en
        and not compute.math_approx_mode,
        NAME,
        f"it computes in HiFi4 with fp32_dest_acc_en and without math_approx_mode, got {compute}",
    )
    place = memory_config or DRAM_MEMORY_CONFIG
    output = tensor_spec((heads, tokens, value_dim), DataType.FLOAT32, Layout.TILE, place)
    behind = tensor_spec(state.shape, DataType.FLOAT32, Layout.TILE, place)
    return Plan(
        (output, behind) if final else (output,),
        l1_bytes=FUSED_BYTES[value_dim] if fused else buffer_bytes((columns, rows), heads, chunk, key_dim, value_dim),
        scratch=() if fused else _between_phases(heads * (tokens // chunk), chunk, key_dim, value_dim, place),
    )


def _check_fused(device: Device, heads: int, value_dim: int) -> None:
    """Each head takes two cores at least; wider heads take more, or none at all where their tiles are no power of two."""
    cores = device.board.grid[0] * device.board.grid[1]
    require(
        value_dim in FUSED_BYTES,
        NAME,
        f"the fused program is modelled for value_dim {list(FUSED_BYTES)}, got {value_dim}",
    )
    require(
        2 * heads <= cores,
        NAME,
        f"{heads} value heads of all rows take {2 * heads} of the {cores} cores of {device.board.name} in the fused program; "
        f"take fewer rows at a time, or the phased program",
    )


def _check_shapes(q, k, v, g, beta, state, flat: bool) -> tuple[int, int, int, int, int, int]:
    """Batch, tokens, key and value heads, and their dimensions, on which all inputs agree."""
    rank = 3 if flat else 4
    require(
        len(q.shape) == len(k.shape) == len(v.shape) == rank,
        NAME,
        f"q, k and v must all be [batch, tokens, heads * dim] or all [batch, tokens, heads, dim], got {q!r}, {k!r} and {v!r}",
    )
    require(
        len(state.shape) == 4, NAME, f"initial_state must be [batch, value heads, key_dim, value_dim], got {state!r}"
    )
    batch, value_heads, key_dim, value_dim = state.shape
    tokens = q.shape[1]
    require(
        not flat or key_dim == value_dim,
        NAME,
        f"q, k and v of three dimensions need key_dim and value_dim to be equal, got {key_dim} and {value_dim}",
    )
    key_heads = q.shape[2] // key_dim if flat else q.shape[2]
    keys = (batch, tokens, key_heads * key_dim) if flat else (batch, tokens, key_heads, key_dim)
    values = (batch, tokens, value_heads * value_dim) if flat else (batch, tokens, value_heads, value_dim)
    for name, spec, shape in (("q", q, keys), ("k", k, keys), ("v", v, values)):
        require(
            spec.shape == shape and key_heads > 0,
            NAME,
            f"{name} must be {list(shape)} beside an initial_state of {list(state.shape)}, got {spec!r}",
        )
    for name, spec in (("g", g), ("beta", beta)):
        require(
            spec.shape == (batch, tokens, value_heads),
            NAME,
            f"{name} must be [batch, tokens, value heads] = {[batch, tokens, value_heads]}, got {spec!r}",
        )
    return batch, tokens, key_heads, value_heads, key_dim, value_dim


def buffer_bytes(grid: tuple[int, int], heads: int, chunk: int, key_dim: int, value_dim: int) -> int:
    """What the buffers of the fuller of the two programs take on each core of a grid (columns, rows), in bytes.

    The second program cuts the values of a head into as many parts as lie side by side in one row of cores for every head.
    """
    columns, rows = grid
    tiles, key_tiles, value_tiles = chunk // TILE, key_dim // TILE, value_dim // TILE
    parts = max(
        part
        for part in range(1, value_tiles + 1)
        if part == 1 or value_tiles % part == 0 and columns // part * rows >= heads
    )
    width = value_tiles // parts
    fixed, fixed_scan = (27, 4) if tiles == 1 else (60, 10)
    prepare = TILE_BYTES[DataType.FLOAT32] * (fixed + tiles * 11 * key_tiles) + tiles * 10240 * value_tiles
    scan = TILE_BYTES[DataType.FLOAT32] * ((3 * tiles + 4 * width) * key_tiles + fixed_scan + 5 * tiles * width)
    return max(prepare, scan)


def _between_phases(
    chunks: int, chunk: int, key_dim: int, value_dim: int, place: MemoryConfig
) -> tuple[TensorSpec, ...]:
    """What the first phase leaves of every chunk of every head for the second, in float32."""
    sizes = (
        (chunk, value_dim),
        (chunk, key_dim),
        (chunk, key_dim),
        (chunk, chunk),
        (key_dim, chunk),
        (TILE, TILE),
        (chunk, chunk),
    )
    return tuple(tensor_spec((chunks, *size), DataType.FLOAT32, Layout.TILE, place) for size in sizes)


def quadrant_masks() -> torch.Tensor:
    """[1, 1, 32, 96]: three tiles that are 1 in the first, the last and the lower left quadrant of 16 x 16."""
    half = TILE // 2
    masks = torch.zeros(3, TILE, TILE)
    masks[0, :half, :half] = masks[1, half:, half:] = masks[2, half:, :half] = 1
    return masks.transpose(0, 1).reshape(1, 1, TILE, 3 * TILE)


@cache
def _constants(chunk: int) -> tuple[tuple[str, torch.Tensor, str], ...]:
    ones = torch.ones(1, 1, chunk, chunk)
    return (
        ("eye", torch.eye(chunk)[None, None], "the identity"),
        ("tril", ones.tril(), "1 on and below the diagonal and 0 above"),
        ("ones", ones, "1 everywhere"),
        ("masks", quadrant_masks(), "1 in the top left, the bottom right and the bottom left quadrant of a tile each"),
    )


def _check_constants(chunk: int, *given: torch.Tensor) -> None:
    for found, (name, values, words) in zip(given, _constants(chunk)):
        if not torch.equal(found, values):
            raise EmulatorError(NAME, f"{name} must hold {words}: the kernels compute with what they are given")


@checked
def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    chunk_size: int = 64,
    output_head_major: bool = False,
    program_config: PROGRAMS | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    eye: Tensor | None = None,
    tril: Tensor | None = None,
    ones: Tensor | None = None,
    masks: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The rule over [batch, tokens, ..] of q, k and v -> [batch * value heads, tokens, value_dim] and the state behind them,
    [batch, value heads, key_dim, value_dim], both FLOAT32.

    q, k and v of three dimensions are raw and are divided by their lengths here; those of four are so already. q is multiplied
    by key_dim^-0.5. g is the logarithm of the decay and must be 0 or below, 0 with beta = 0 where a token is padding.
    """
    require(output_head_major, NAME, "only output_head_major=True is modelled")
    if program_config not in (ChunkGdnPhasedProgramConfig(), ChunkGdnFusedProgramConfig()):
        raise EmulatorError(
            NAME,
            f"only ttnn.ChunkGdnPhasedProgramConfig() and ttnn.ChunkGdnFusedProgramConfig() are modelled, without options, and "
            f"one must be stated; got {program_config}",
        )
    fused = isinstance(program_config, ChunkGdnFusedProgramConfig)
    if initial_state is None:
        raise EmulatorError(NAME, "initial_state must be given: a state of zeros is not modelled")
    constants = [tensor for tensor in (eye, tril, ones, masks) if tensor is not None]
    if len(constants) != 4:
        raise EmulatorError(
            NAME,
            f"eye, tril, ones and masks must all be given, got {len(constants)} of them: where one is missing the library "
            "uploads all four, which a trace cannot",
        )
    flat = len(q.spec.shape) == 3
    rounding = rounding_of(q)

    def check(*values: torch.Tensor) -> None:
        decays = values[3]
        if not bool((decays <= 0).all()):
            largest = "a NaN" if bool(decays.isnan().any()) else f"values up to {decays.max().item():.3g}"
            raise EmulatorError(NAME, f"g must be 0 or below, the logarithm of a decay; it holds {largest}")
        _check_constants(chunk_size, *values[6:])

    def compute(q, k, v, g, beta, state, *constants: torch.Tensor):
        heads, key_dim, value_dim = state.shape[1:]
        if flat:
            queries = normalised(q.unflatten(-1, (-1, key_dim)), key_dim**-0.5)
            keys = normalised(k.unflatten(-1, (-1, key_dim)))
        else:
            queries, keys = rounding(q * key_dim**-0.5, DataType.BFLOAT16), k
        values = v.reshape(*v.shape[:2], heads, value_dim)
        output, behind = delta_rule(queries, keys, values, g, beta, state, chunk_size)
        return (output, behind) if output_final_state else output

    inputs = (q, k, v, g, beta, initial_state, *constants)
    attributes = (chunk_size, output_final_state, memory_config, compute_kernel_config, fused)
    made = launch(NAME, inputs, attributes, _plan, compute, check=check)
    return made[0], made[1] if output_final_state else None

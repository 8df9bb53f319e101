"""Generated calls of the matrix multiplications, with and without program configurations."""

from __future__ import annotations

from typing import Any

from tests.support.generated_cases import (
    BF4,
    BF8,
    BF16,
    DRAM,
    F32,
    FLOATS,
    L1,
    TILE,
    Attribute,
    Call,
    Draw,
    Made,
    Operand,
)


def part(draw: Draw, whole: int) -> int:
    """A divisor of `whole`, mostly."""
    divisors = [size for size in range(1, whole + 1) if whole % size == 0]
    return draw.mostly(draw.choice(divisors), whole + 1, max(whole - 1, 0), 0, often=0.97)


def _tiles(size: int) -> int:
    return -(-size // 32)


def _blocks(draw: Draw, rows: int, inner: int, columns: int) -> dict[str, Any]:
    """Block sizes in tiles. `rows` and `columns` are those of one core."""
    block_h, block_w = part(draw, max(rows, 1)), part(draw, max(columns, 1))
    stated = {"out_block_h": block_h, "out_block_w": block_w} if draw.random() < 0.5 else {}
    whole_h, whole_w = (block_h, block_w) if stated else (rows, columns)
    return {
        "in0_block_w": part(draw, inner),
        "out_subblock_h": draw.mostly(1, part(draw, max(whole_h, 1)), often=0.6),
        "out_subblock_w": draw.mostly(1, part(draw, max(whole_w, 1)), often=0.5),
        **stated,
        "per_core_M": rows,
        "per_core_N": columns,
    }


def program_2d(draw: Draw, rows: int, inner: int, columns: int) -> Made:
    """Blocks over a grid that covers the output, mostly."""
    across, down = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 4, 8))
    fields = {
        "compute_with_storage_grid_size": draw.mostly((8, 8), (across, down), (9, 8), (11, 10), (0, 1), often=0.8),
        **_blocks(draw, max(1, -(-rows // down)), inner, max(1, -(-columns // across))),
        "transpose_mcast": draw.mostly(False, True),
        "fused_activation": draw.mostly(None, 3, often=0.98),
        "fuse_batch": draw.mostly(True, False, often=0.7),
    }
    return Made("MatmulMultiCoreReuseMultiCastProgramConfig", fields)


def program_1d(draw: Draw, rows: int, inner: int, columns: int) -> Made:
    cores = draw.choice((1, 2, 4, 8, 16))
    wide = draw.random() < 0.8
    own_rows, own_columns = (rows, -(-columns // cores)) if wide else (-(-rows // cores), columns)
    fields = {
        "compute_with_storage_grid_size": draw.mostly((8, 8), (4, 2), (8, 9), (2, 1), often=0.85),
        **_blocks(draw, draw.mostly(own_rows, own_rows + 1, often=0.95), inner, own_columns),
        "fuse_batch": draw.mostly(True, False, often=0.9),
        "fused_activation": None,
        "mcast_in0": draw.mostly(wide, not wide, often=0.95),
    }
    return Made("MatmulMultiCoreReuseMultiCast1DProgramConfig", fields)


def linear(draw: Draw) -> Call:
    rows, inner, columns = draw.tiles(8), draw.tiles(6), draw.tiles(12)
    batch = draw.mostly((1, 1), (), (1,), (2, 3), (4, 1), often=0.6)
    transposed = draw.random() < 0.1
    weight = (columns, inner) if transposed else (inner, columns)
    weight = (batch if draw.random() < 0.15 else (1,) * draw.choice((0, 0, 1, 2))) + weight
    arguments: dict[str, Any] = {
        "input_tensor_a": Operand((*batch, rows, inner), draw.dtype(BF16, BF8, F32), TILE, draw.mostly(DRAM, L1)),
        "input_tensor_b": Operand(weight, draw.dtype(BF16, BF8, BF4, F32), TILE, draw.mostly(DRAM, L1)),
        **draw.maybe(
            "bias",
            lambda: Operand(
                draw.mostly((1, 1, 1, columns), (columns,), (1, columns), (1, 1, 2, columns), (1, 1, 1, columns + 1)),
                draw.dtype(BF16, BF8),
                TILE,
            ),
            0.25,
        ),
        **draw.maybe("dtype", lambda: Attribute(draw.dtype(*FLOATS))),
        **draw.memory(),
        **draw.maybe(
            "activation", lambda: draw.mostly("silu", "gelu", "relu", "sigmoid", "other", None, often=0.4), 0.2
        ),
    }
    if transposed:
        arguments["transpose_b"] = True
    if draw.random() < 0.6:
        outer = 1
        for size in batch:
            outer *= size
        program = draw.mostly(program_2d, program_1d, often=0.65)
        together = 1 if len(weight) > 2 and weight[:-2] == batch else outer
        arguments["program_config"] = program(draw, _tiles(rows) * together, _tiles(inner), _tiles(columns))
        arguments |= draw.maybe("compute_kernel_config", draw.compute, 0.95)
    else:
        arguments |= draw.maybe("compute_kernel_config", draw.compute, 0.3)
    return Call("linear", ("input_tensor_a", "input_tensor_b"), arguments)


def _minimal(draw: Draw) -> dict[str, Any]:
    """The configurations that the block-by-block matmuls take."""
    rows, columns = draw.choice((1, 2, 4, 8)), draw.choice((2, 4, 6, 8))
    fields = {
        "M_block_size": draw.mostly(rows, 0, often=0.98),
        "K_block_size": draw.mostly(draw.choice((1, 2, 4, 8)), 0, often=0.98),
        "N_block_size": draw.mostly(columns, 3, 16, often=0.9),
        "subblock_h": draw.mostly(1, 2, 3, 0, often=0.75),
        "subblock_w": draw.mostly(2, 1, 4, 3, often=0.75),
        "compute_with_storage_grid_size": draw.mostly((8, 8), (2, 2), (4, 8), (1, 8), (9, 8), (0, 0), often=0.8),
    }
    fields = {name: value for name, value in fields.items() if draw.random() < 0.97}
    return {
        **draw.maybe("config", lambda: Made("MinimalMatmulConfig", fields), 0.95),
        **draw.maybe("compute_kernel_config", draw.compute, 0.95),
        **draw.maybe("dtype", lambda: Attribute(draw.dtype(*FLOATS))),
        **draw.memory(),
    }


def _minimal_inputs(draw: Draw) -> tuple[Operand, Operand]:
    rows, inner, columns = draw.tiles(8), draw.tiles(6), draw.mostly(64 * draw.randint(1, 4), 32, 96, 65)
    batch = draw.mostly((1, 1), (), (1,), (2, 3), often=0.7)
    kind = draw.dtype(BF16, BF8, F32)
    weight = (1,) * draw.choice((0, 0, 2)) + (inner, columns)
    return (
        Operand((*batch, rows, inner), kind, TILE, draw.mostly(DRAM, L1)),
        Operand(weight, draw.mostly(kind, BF8, BF4, BF16, often=0.6), TILE, draw.mostly(DRAM, L1)),
    )


def minimal_matmul(draw: Draw) -> Call:
    a, b = _minimal_inputs(draw)
    columns = b.shape[-1]
    shapes = ((1, 1, 1, columns), (columns,), (1, columns), (1, 1, 2, columns), (1, 1, 1, columns + 1))
    arguments = {
        "a": a,
        "b": b,
        **draw.maybe("bias_tensor", lambda: Operand(draw.mostly(*shapes), draw.dtype(BF16, BF8, F32), TILE), 0.25),
        **_minimal(draw),
        **draw.maybe("fuse_swiglu", lambda: draw.mostly(True, False), 0.4),
    }
    return Call("experimental.minimal_matmul", ("a", "b"), arguments)


def minimal_matmul_residual(draw: Draw) -> Call:
    a, b = _minimal_inputs(draw)
    shape, columns = (*a.shape[:-1], b.shape[-1]), b.shape[-1]
    base = Operand(
        draw.mostly(shape, (1, *shape), shape[1:]), draw.mostly(b.dtype, BF16, BF8, F32), TILE, draw.mostly(DRAM, L1)
    )
    factors = draw.mostly((1, 1, 1, columns), (columns,), (1, columns), (1, 1, 32, columns), shape)
    arguments = {
        "a": a,
        "b": b,
        "scalar": draw.mostly(1.0, 0.5, 2, "one"),
        "base": base,
        "factors": Operand(factors, draw.dtype(BF16, b.dtype), TILE, draw.mostly(DRAM, L1)),
        **_minimal(draw),
    }
    return Call("experimental.dit_minimal_matmul_addcmul_fused", ("a", "b", "scalar", "base", "factors"), arguments)

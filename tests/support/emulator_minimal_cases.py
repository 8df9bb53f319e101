"""Calls of the minimal matmul, with and without what it fuses, whose outcome on the library's mock device is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]
BF16, BF8, BF4, F32, U32 = "bfloat16", "bfloat8_b", "bfloat4_b", "float32", "uint32"
ROWS, INNER, COLUMNS = 64, 128, 192
BLOCKS = {"M_block_size": 2, "K_block_size": 2, "N_block_size": 2, "subblock_h": 1, "subblock_w": 2}


def _config(t: Any, blocks: dict[str, Any] | None, grid: tuple[int, int]) -> Any:
    return t.MinimalMatmulConfig(**{**BLOCKS, **(blocks or {})}, compute_with_storage_grid_size=grid)


def _compute(t: Any, wide: bool) -> Any:
    return t.WormholeComputeKernelConfig(
        math_fidelity=t.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=wide, packer_l1_acc=True
    )


def minimal(
    a: tuple[int, ...] = (1, 1, ROWS, INNER),
    b: tuple[int, ...] = (INNER, COLUMNS),
    a_dtype: str = BF16,
    b_dtype: str = BF16,
    a_layout: str = "TILE",
    b_layout: str = "TILE",
    place: str = "DRAM",
    bias: tuple[int, ...] | None = None,
    bias_dtype: str = BF16,
    bias_layout: str = "TILE",
    blocks: dict[str, Any] | None = None,
    grid: tuple[int, int] = (8, 8),
    wide: bool = True,
    stated: bool = True,
    dtype: str | None = None,
    to: str | None = None,
    pairs: bool = False,
) -> Case:
    def case(t: Any, make: Any) -> Any:
        options: dict[str, Any] = {"fuse_swiglu": pairs}
        if stated:
            options |= {"config": _config(t, blocks, grid), "compute_kernel_config": _compute(t, wide)}
        if dtype is not None:
            options["dtype"] = getattr(t, dtype)
        if to is not None:
            options["memory_config"] = getattr(t, to)
        if bias is not None:
            options["bias_tensor"] = make(bias, bias_dtype, bias_layout)
        return t.experimental.minimal_matmul(make(a, a_dtype, a_layout, place), make(b, b_dtype, b_layout), **options)

    return case


def residual(
    a: tuple[int, ...] = (1, 1, ROWS, INNER),
    base: tuple[int, ...] = (1, 1, ROWS, COLUMNS),
    factors: tuple[int, ...] = (1, 1, 1, COLUMNS),
    b_dtype: str = BF16,
    base_dtype: str = BF16,
    factor_dtype: str = BF16,
    base_layout: str = "TILE",
    factor_layout: str = "TILE",
    place: str = "DRAM",
    scalar: Any = 1.0,
    blocks: dict[str, Any] | None = None,
    dtype: str | None = None,
) -> Case:
    def case(t: Any, make: Any) -> Any:
        options = {"dtype": getattr(t, dtype)} if dtype is not None else {}
        return t.experimental.dit_minimal_matmul_addcmul_fused(
            make(a),
            make((INNER, COLUMNS), b_dtype),
            scalar,
            make(base, base_dtype, base_layout, place),
            make(factors, factor_dtype, factor_layout),
            config=_config(t, blocks, (8, 8)),
            compute_kernel_config=_compute(t, True),
            memory_config=t.DRAM_MEMORY_CONFIG,
            **options,
        )

    return case


MINIMAL_CASES: dict[str, Case] = {
    "minimal": minimal(),
    "minimal, float32": minimal(a_dtype=F32, b_dtype=F32),
    "minimal, float32 by bfloat16": minimal(a_dtype=F32),
    "minimal, block floats": minimal(a_dtype=BF8, b_dtype=BF8),
    "minimal, block float weight": minimal(b_dtype=BF8),
    "minimal, block float 4 weight": minimal(b_dtype=BF4),
    "minimal, integers": minimal(a_dtype=U32, b_dtype=U32),
    "minimal, rows by tiles": minimal(a_layout="ROW_MAJOR"),
    "minimal, tiles by rows": minimal(b_layout="ROW_MAJOR"),
    "minimal, inner sizes differ": minimal(b=(160, COLUMNS)),
    "minimal, inner size within a tile": minimal(a=(1, 1, 64, 100), b=(100, 192)),
    "minimal, columns within a tile": minimal(b=(INNER, 200)),
    "minimal, rows within a tile": minimal(a=(1, 1, 50, INNER)),
    "minimal, batch": minimal(a=(2, 3, ROWS, INNER)),
    "minimal, 2-D": minimal(a=(ROWS, INNER)),
    "minimal, weight 4-D": minimal(b=(1, 1, INNER, COLUMNS)),
    "minimal, weight batch": minimal(b=(2, 1, INNER, COLUMNS)),
    "minimal, weight 1-D": minimal(b=(INNER,)),
    "minimal, to float32": minimal(dtype=F32),
    "minimal, to block float": minimal(dtype=BF8),
    "minimal, to integers": minimal(dtype=U32),
    "minimal, to L1": minimal(to="L1_MEMORY_CONFIG"),
    "minimal, from L1": minimal(place="L1"),
    "minimal, from L1 to DRAM": minimal(place="L1", to="DRAM_MEMORY_CONFIG"),
    "minimal, nothing stated": minimal(stated=False),
    "minimal, subblock does not divide rows": minimal(blocks={"M_block_size": 3, "subblock_h": 2, "subblock_w": 1}),
    "minimal, subblock does not divide columns": minimal(blocks={"N_block_size": 3}),
    "minimal, subblock of eight": minimal(blocks={"N_block_size": 4, "subblock_h": 2, "subblock_w": 4}),
    "minimal, subblock of eight in bfloat16": minimal(
        blocks={"N_block_size": 4, "subblock_h": 2, "subblock_w": 4}, wide=False
    ),
    "minimal, subblock of sixteen": minimal(
        blocks={"M_block_size": 4, "N_block_size": 4, "subblock_h": 4, "subblock_w": 4}, wide=False
    ),
    "minimal, no rows in a block": minimal(blocks={"M_block_size": 0}),
    "minimal, inner block does not divide": minimal(blocks={"K_block_size": 3}),
    "minimal, blocks beyond L1": minimal(blocks={"M_block_size": 32, "K_block_size": 32, "N_block_size": 32}),
    "minimal, grid of one column": minimal(grid=(1, 8)),
    "minimal, grid of one row": minimal(grid=(8, 1)),
    "minimal, grid of four": minimal(grid=(2, 2)),
    "minimal, grid beyond the board": minimal(grid=(12, 10)),
    "minimal, bias": minimal(bias=(1, 1, 1, COLUMNS)),
    "minimal, bias 1-D": minimal(bias=(COLUMNS,)),
    "minimal, bias of many rows": minimal(bias=(1, 1, 32, COLUMNS)),
    "minimal, bias too short": minimal(bias=(1, 1, 1, 160)),
    "minimal, bias in block float": minimal(bias=(1, 1, 1, COLUMNS), bias_dtype=BF8),
    "minimal, bias in rows": minimal(bias=(1, 1, 1, COLUMNS), bias_layout="ROW_MAJOR"),
    "minimal, pairs": minimal(pairs=True),
    "minimal, pairs with a bias": minimal(pairs=True, bias=(1, 1, 1, COLUMNS)),
    "minimal, pairs of one tile": minimal(b=(INNER, 64), pairs=True),
    "minimal, half a pair": minimal(b=(INNER, 96), pairs=True),
    "minimal, pairs within a tile": minimal(b=(INNER, 200), pairs=True),
    "minimal, pairs in odd blocks": minimal(blocks={"N_block_size": 3, "subblock_w": 1}, pairs=True),
    "minimal, pairs in subblocks of one": minimal(blocks={"subblock_w": 1}, pairs=True),
    "minimal, pairs to block float": minimal(pairs=True, dtype=BF8),
    "minimal, freed output": lambda t, make: t.deallocate(minimal()(t, make)),
    "residual": residual(),
    "residual, block float": residual(b_dtype=BF8, base_dtype=BF8),
    "residual, stored unlike the weight": residual(b_dtype=BF8),
    "residual, weight stored unlike it": residual(base_dtype=BF8),
    "residual, float32": residual(base_dtype=F32),
    "residual, other shape": residual(base=(1, 1, 32, COLUMNS)),
    "residual, 2-D": residual(base=(ROWS, COLUMNS)),
    "residual, batch": residual(a=(1, 2, ROWS, INNER), base=(1, 2, ROWS, COLUMNS)),
    "residual, in rows": residual(base_layout="ROW_MAJOR"),
    "residual, in L1": residual(place="L1"),
    "residual, factors 1-D": residual(factors=(COLUMNS,)),
    "residual, factors of every row": residual(factors=(1, 1, ROWS, COLUMNS)),
    "residual, factors of some rows": residual(factors=(1, 1, 32, COLUMNS)),
    "residual, factors too short": residual(factors=(1, 1, 1, 160)),
    "residual, factors in block float": residual(factor_dtype=BF8),
    "residual, factors in rows": residual(factor_layout="ROW_MAJOR"),
    "residual, whole scalar": residual(scalar=1),
    "residual, no scalar": residual(scalar=None),
    "residual, to block float": residual(dtype=BF8),
    "residual, subblock of eight": residual(blocks={"N_block_size": 4, "subblock_h": 2, "subblock_w": 4}),
    "residual, blocks beyond L1": residual(blocks={"M_block_size": 32, "K_block_size": 16, "N_block_size": 32}),
}

STATED = "what the library would choose itself is not modelled"
MINIMAL_STRICTER: dict[str, str] = {
    "minimal, to integers": "a float product in an integer type means nothing",
    "minimal, nothing stated": STATED,
    "minimal, pairs in subblocks of one": "the kernel walks a subblock by twos and reads past its end",
    "residual, 2-D": "shapes that differ in rank are a mistake of the caller's",
    "residual, factors of every row": "factors of one row are all that is modelled",
}

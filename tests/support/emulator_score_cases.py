"""Calls that explicit attention scores are made of: matmuls of each batch item with its own second input, and masks that a sum
broadcasts. Their outcome on the library's mock device is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]
BF16, BF8, F32 = "bfloat16", "bfloat8_b", "float32"
BLOCKS = {
    "in0_block_w": 2,
    "out_subblock_h": 1,
    "out_subblock_w": 2,
    "out_block_h": 2,
    "out_block_w": 4,
    "per_core_M": 2,
    "per_core_N": 4,
}


def each(
    a: tuple[int, ...] = (2, 3, 128, 64),
    b: tuple[int, ...] = (2, 3, 128, 64),
    a_dtype: str = BF16,
    b_dtype: str = BF16,
    dtype: str | None = None,
    transpose: bool = True,
    form: str | None = "2d",
    fuse_batch: bool = False,
    grid: tuple[int, int] = (8, 8),
    bias: tuple[int, ...] | None = None,
    **blocks: int,
) -> Case:
    """`a` times `b`, of which each batch item may have its own."""

    def case(t: Any, make: Any) -> Any:
        options: dict[str, Any] = {"transpose_b": transpose}
        if dtype is not None:
            options["dtype"] = getattr(t, dtype)
        if bias is not None:
            options["bias"] = make(bias)
        if form is not None:
            cut = {**BLOCKS, **blocks, "compute_with_storage_grid_size": grid, "fuse_batch": fuse_batch}
            if form == "2d":
                options["program_config"] = t.MatmulMultiCoreReuseMultiCastProgramConfig(transpose_mcast=False, **cut)
            else:
                options["program_config"] = t.MatmulMultiCoreReuseMultiCast1DProgramConfig(
                    mcast_in0=form == "1d", **cut
                )
            options["compute_kernel_config"] = t.WormholeComputeKernelConfig(
                math_fidelity=t.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
            )
        return t.linear(make(a, a_dtype), make(b, b_dtype), **options)

    return case


def summed(
    a: tuple[int, ...],
    b: tuple[int, ...],
    b_dtype: str = BF16,
    b_layout: str = "TILE",
    operation: str = "add",
) -> Case:
    def case(t: Any, make: Any) -> Any:
        return getattr(t, operation)(make(a), make(b, b_dtype, b_layout), dtype=t.bfloat16)

    return case


WIDE = {
    "a": (1, 2, 1024, 256),
    "b": (1, 2, 512, 256),
    "out_subblock_w": 4,
    "per_core_M": 4,
    "out_block_h": 4,
    "per_core_N": 2,
}
SCORE_CASES: dict[str, Case] = {
    "each, transposed": each(),
    "each, plain": each(b=(2, 3, 64, 128), transpose=False),
    "each, batches fused": each(fuse_batch=True),
    "each, batches fused, one item": each((1, 1, 128, 64), (1, 1, 128, 64), fuse_batch=True),
    "each, no program": each(form=None),
    "each, three dimensions": each((6, 128, 64), (6, 128, 64)),
    "each, second input of one item": each(b=(1, 1, 128, 64)),
    "each, second input of one matrix": each(b=(128, 64)),
    "each, second input of other items": each(b=(2, 1, 128, 64)),
    "each, second input of more items": each((1, 3, 128, 64)),
    "each, first input of one item": each((1, 1, 128, 64)),
    "each, items in another order": each((3, 2, 128, 64)),
    "each, items folded": each((1, 6, 128, 64)),
    "each, fewer dimensions": each((6, 128, 64), (2, 3, 128, 64)),
    "each, widths differ": each(b=(2, 3, 128, 96)),
    "each, block-float keys": each(b_dtype=BF8),
    "each, block floats": each(a_dtype=BF8, b_dtype=BF8),
    "each, block floats out": each(dtype=BF8),
    "each, float32 out": each(dtype=F32),
    "each, along one side": each(form="1d", per_core_M=4, out_block_h=4, per_core_N=2, out_block_w=2),
    "each, along one side, batches fused": each(
        form="1d", fuse_batch=True, per_core_M=4, out_block_h=4, per_core_N=2, out_block_w=2
    ),
    "each, along the other side": each(form="1d of rows", per_core_M=2, per_core_N=4),
    "each, bias": each(bias=(1, 128)),
    "each, too many blocks": each((2, 3, 1024, 64), per_core_M=2),
    "each, blocks over the output": each(per_core_N=8, out_block_w=8),
    "each, inner block that does not divide": each(in0_block_w=4),
    "each, rows of padding": each((2, 3, 100, 64), (2, 3, 100, 64)),
    "each, grid too large": each(grid=(9, 8)),
    "each, wide": each(**{**WIDE, "out_subblock_w": 2, "out_block_w": 2}),
    "each, over the memory of a core": each(
        (1, 2, 8192, 256),
        (1, 2, 4096, 256),
        in0_block_w=8,
        out_subblock_w=4,
        per_core_M=32,
        out_block_h=32,
        per_core_N=16,
        out_block_w=16,
    ),
    "mask, of every head": summed((2, 4, 64, 96), (1, 1, 64, 96)),
    "mask, of every row": summed((2, 4, 64, 96), (2, 1, 64, 96)),
    "mask, of every item": summed((2, 4, 64, 96), (1, 4, 64, 96)),
    "mask, one row": summed((2, 4, 64, 96), (1, 1, 1, 96)),
    "mask, one column": summed((2, 4, 64, 96), (1, 1, 64, 1)),
    "mask, one value": summed((2, 4, 64, 96), (1, 1, 1, 1)),
    "mask, larger than what it masks": summed((1, 1, 64, 96), (2, 4, 64, 96)),
    "mask, too few rows": summed((2, 4, 64, 96), (1, 1, 32, 96)),
    "mask, two of four heads": summed((2, 4, 64, 96), (1, 2, 64, 96)),
    "mask, fewer dimensions": summed((2, 4, 64, 96), (64, 96)),
    "mask, block floats": summed((2, 4, 64, 96), (1, 1, 64, 96), BF8),
    "mask, float32": summed((2, 4, 64, 96), (1, 1, 64, 96), F32),
    "mask, row-major": summed((2, 4, 64, 96), (1, 1, 64, 96), b_layout="ROW_MAJOR"),
    "product of heads with a row": summed((2, 4, 64, 96), (1, 1, 1, 96), operation="mul"),
}
NOT_MODELLED = "emitted modules do not use it"
SCORE_STRICTER = {
    "each, bias": "a bias beside a transposed second input is not modelled",
    "each, blocks over the output": "a block beyond the output computes nothing that is kept",
    "mask, fewer dimensions": NOT_MODELLED,
    "mask, row-major": NOT_MODELLED,
}

"""Calls that copy, join and repeat tensors, and that multiply batches of small matrices; their outcome on the library's mock
device is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]
BF16, BF8, BF4, F32, U32, I32 = "bfloat16", "bfloat8_b", "bfloat4_b", "float32", "uint32", "int32"
TILE, ROW_MAJOR = "TILE", "ROW_MAJOR"
Made = tuple[Any, ...]  # what `make` takes: shape, type, layout, place


def copied(source: Made, target: Made) -> Case:
    return lambda t, make: t.copy(make(*source), make(*target))


def joined(*tensors: Made, dim: int, place: str | None = None) -> Case:
    def case(t: Any, make: Any) -> Any:
        more = {} if place is None else {"memory_config": getattr(t, f"{place}_MEMORY_CONFIG")}
        return t.concat([make(*one) for one in tensors], dim, **more)

    return case


def repeated(tensor: Made, repeats: int, dim: int, place: str | None = None) -> Case:
    def case(t: Any, make: Any) -> Any:
        more = {} if place is None else {"memory_config": getattr(t, f"{place}_MEMORY_CONFIG")}
        return t.repeat_interleave(make(*tensor), repeats, dim, **more)

    return case


def softplus(tensor: Made, **options: Any) -> Case:
    return lambda t, make: t.softplus(make(*tensor), **options)


SQUARES, STATE = (1, 4, 64, 64), (1, 4, 32, 32)
TAIL, TAILS = ((1, 3, 256), BF16, ROW_MAJOR), ((1, 6, 256), BF16, ROW_MAJOR)
ONE = ((1, 64, 32), BF16, TILE)
JOIN_CASES: dict[str, Case] = {
    "copied": copied((STATE, F32), (STATE, F32)),
    "copied rows": copied(TAIL, TAIL),
    "copied odd rows": copied(((1, 3, 250), BF16, ROW_MAJOR), ((1, 3, 250), BF16, ROW_MAJOR)),
    "copied into bfloat16": copied((STATE, F32), (STATE, BF16)),
    "copied into float32": copied((STATE, BF16), (STATE, F32)),
    "copied into block floats": copied((STATE, BF16), (STATE, BF8)),
    "copied block floats": copied((STATE, BF8), (STATE, BF8)),
    "copied tiles into rows": copied((STATE, BF16, TILE), (STATE, BF16, ROW_MAJOR)),
    "copied rows into tiles": copied((STATE, BF16, ROW_MAJOR), (STATE, BF16, TILE)),
    "copied rows into another type": copied(((1, 3, 256), F32, ROW_MAJOR), TAIL),
    "copied into another shape": copied((STATE, F32), ((1, 2, 32, 32), F32)),
    "copied into another shape of equal size": copied((STATE, F32), ((1, 2, 64, 32), F32)),
    "copied into another rank": copied(((4, 32, 32), F32), (STATE, F32)),
    "copied numbers": copied(((1, 3, 256), U32, ROW_MAJOR), ((1, 3, 256), U32, ROW_MAJOR)),
    "copied numbers into floats": copied((STATE, U32), (STATE, F32)),
    "copied from L1": copied((STATE, F32, TILE, "L1"), (STATE, F32)),
    "copied into L1": copied((STATE, F32), (STATE, F32, TILE, "L1")),
    "copied part of a tile": copied(((1, 4, 5, 7), BF16), ((1, 4, 5, 7), BF16)),
    "joined states": joined((STATE, F32), (STATE, F32), dim=0),
    "joined rows": joined(TAIL, TAIL, TAILS, dim=1),
    "joined columns of rows": joined(TAIL, TAIL, dim=2),
    "joined rows of odd width": joined(((1, 3, 5), BF16, ROW_MAJOR), ((1, 3, 5), BF16, ROW_MAJOR), dim=1),
    "joined rows of tiles": joined(ONE, ONE, dim=1),
    "joined columns of tiles": joined(ONE, ONE, dim=-1),
    "joined parts of tiles": joined(((1, 3, 32), BF16), ((1, 3, 32), BF16), dim=1),
    "joined columns within tiles": joined(((1, 64, 20), BF16), ((1, 64, 20), BF16), dim=2),
    "joined batches of parts of tiles": joined(((1, 40, 32), BF16), ((1, 40, 32), BF16), dim=0),
    "joined along -2": joined(ONE, ONE, dim=-2),
    "joined along 3 of 3": joined(ONE, ONE, dim=3),
    "joined, one": joined(ONE, dim=0),
    "joined, one from L1": joined(((1, 64, 32), BF16, TILE, "L1"), dim=0),
    "joined, one into L1": joined(ONE, dim=0, place="L1"),
    "joined, none": joined(dim=0),
    "joined, many": joined(*(TAIL,) * 40, dim=1),
    "joined, two types": joined(ONE, ((1, 64, 32), F32), dim=0),
    "joined, two layouts": joined(ONE, ((1, 64, 32), BF16, ROW_MAJOR), dim=0),
    "joined, two ranks": joined(ONE, ((64, 32), BF16), dim=0),
    "joined, sizes differ": joined(ONE, ((1, 32, 32), BF16), dim=0),
    "joined block floats": joined(((1, 64, 32), BF8), ((1, 64, 32), BF8), dim=2),
    "joined numbers": joined(((1, 64, 32), U32), ((1, 64, 32), U32), dim=0),
    "joined into L1": joined(ONE, ONE, dim=0, place="L1"),
    "joined from L1": joined(((1, 64, 32), BF16, TILE, "L1"), ONE, dim=0),
    "repeated heads": repeated(((1, 2, 64, 64), BF16), 2, 1),
    "repeated heads, float32": repeated(((1, 2, 64, 64), F32), 3, 1),
    "repeated batches": repeated(((2, 64, 64), F32), 2, 0),
    "repeated along -3": repeated(((1, 2, 64, 64), BF16), 2, -3),
    "repeated rows": repeated(((1, 2, 64, 64), BF16), 2, 2),
    "repeated columns": repeated(((1, 2, 64, 64), BF16), 2, 3),
    "repeated along 5 of 4": repeated(((1, 2, 64, 64), BF16), 2, 5),
    "repeated once": repeated(((1, 2, 64, 64), BF16), 1, 1),
    "repeated once into L1": repeated(((1, 2, 64, 64), BF16), 1, 1, "L1"),
    "repeated never": repeated(((1, 2, 64, 64), BF16), 0, 1),
    "repeated block floats": repeated(((1, 2, 64, 64), BF8), 2, 1),
    "repeated row-major heads": repeated(((1, 2, 64, 64), BF16, ROW_MAJOR), 2, 1),
    "repeated parts of tiles": repeated(((1, 2, 40, 50), F32), 2, 1),
    "repeated from L1": repeated(((1, 2, 64, 64), BF16, TILE, "L1"), 2, 1),
    "repeated into L1": repeated(((1, 2, 64, 64), BF16), 2, 1, "L1"),
    "softplus": softplus(((1, 1, 64, 40), F32), beta=1.0, threshold=20.0),
    "softplus, defaults": softplus(((1, 1, 64, 40), BF16)),
    "softplus, rows": softplus(((1, 1, 64, 40), BF16, ROW_MAJOR)),
    "softplus, block floats": softplus(((64, 40), BF8)),
    "softplus, numbers": softplus(((1, 1, 64, 40), U32)),
    "softplus, beta 0": softplus(((1, 1, 64, 40), BF16), beta=0.0),
    "softplus, whole numbers": softplus(((1, 1, 64, 40), BF16), beta=2, threshold=5),
}
NOT_MODELLED = "emitted modules do not use it"
JOIN_STRICTER = {
    "copied numbers into floats": NOT_MODELLED,
    "joined parts of tiles": "the library takes tiles apart first",
    "joined columns within tiles": "the library takes tiles apart first",
    "joined, two layouts": NOT_MODELLED,
    "repeated rows": NOT_MODELLED,
    "repeated columns": NOT_MODELLED,
    "softplus, beta 0": "it divides by beta",
}


# --- batches of small matrices ---


def batched(
    a: tuple[int, ...] = (1, 8, 64, 64),
    b: tuple[int, ...] = (1, 8, 64, 64),
    a_dtype: str = F32,
    b_dtype: str = F32,
    dtype: str | None = F32,
    a_layout: str = TILE,
    grid: tuple[int, int] = (8, 8),
    program: bool = True,
    configured: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **blocks: int,
) -> Case:
    """A batch of products, each of its own pair of matrices."""
    fields = {
        "in0_block_w": 2,
        "out_subblock_h": 1,
        "out_subblock_w": 2,
        "per_core_M": 2,
        "per_core_N": 2,
        **blocks,
    }

    def case(t: Any, make: Any) -> Any:
        more: dict[str, Any] = dict(options or {})
        if dtype is not None:
            more["dtype"] = getattr(t, dtype)
        if program:
            more["program_config"] = t.MatmulMultiCoreReuseProgramConfig(compute_with_storage_grid_size=grid, **fields)
            more["compute_kernel_config"] = t.WormholeComputeKernelConfig(
                **{
                    "math_fidelity": t.MathFidelity.HiFi4,
                    "math_approx_mode": False,
                    "fp32_dest_acc_en": True,
                    "packer_l1_acc": True,
                    **(configured or {}),
                }
            )
        return t.matmul(make(a, a_dtype, a_layout), make(b, b_dtype), **more)

    return case


TURNED_A, TURNED_B = {"options": {"transpose_a": True}}, {"options": {"transpose_b": True}}
WIDE = {"b": (1, 8, 64, 256), "per_core_N": 8}
BATCHED_CASES: dict[str, Case] = {
    "batched": batched(),
    "batched, rows of one": batched(per_core_M=1),
    "batched, two on a core": batched(per_core_M=4),
    "batched, all on a core": batched(per_core_M=16),
    "batched, all and more on a core": batched(per_core_M=32),
    "batched, three of five on a core": batched(a=(1, 5, 32, 64), b=(1, 5, 64, 64), per_core_M=3),
    "batched, subblock of two matrices": batched(
        a=(1, 6, 32, 64), b=(1, 6, 64, 64), out_subblock_h=2, out_subblock_w=1
    ),
    "batched, three tiles of two": batched(per_core_M=3),
    "batched, two tiles of three": batched(a=(1, 8, 96, 64)),
    "batched, six tiles of three": batched(a=(1, 8, 96, 64), per_core_M=6),
    "batched, four tiles of three": batched(a=(1, 8, 96, 64), per_core_M=4),
    "batched, part of a row": batched(per_core_N=1, out_subblock_w=1),
    "batched, more than a row": batched(b=(1, 8, 64, 32), out_subblock_w=1),
    "batched, one inner tile at a time": batched(in0_block_w=1),
    "batched, inner block that does not divide": batched(in0_block_w=3),
    "batched, inner block of 0": batched(in0_block_w=0),
    "batched, no rows": batched(per_core_M=0),
    "batched, subblock of four": batched(out_subblock_h=2),
    "batched, subblock of eight": batched(per_core_M=4, out_subblock_h=4),
    "batched, subblock of eight without float32 sums": batched(
        **WIDE, out_subblock_h=2, out_subblock_w=4, configured={"fp32_dest_acc_en": False}
    ),
    "batched, subblock of 2 x 2 in a wide row": batched(**WIDE, out_subblock_h=2, out_subblock_w=2),
    "batched, subblock that does not divide rows": batched(out_subblock_h=3),
    "batched, subblock that does not divide columns": batched(out_subblock_w=3),
    "batched, first transposed": batched(
        a=(1, 8, 64, 32), b=(1, 8, 64, 96), per_core_M=1, per_core_N=3, out_subblock_w=3, **TURNED_A
    ),
    "batched, second transposed": batched(
        a=(1, 8, 64, 32), b=(1, 8, 96, 32), in0_block_w=1, per_core_N=3, out_subblock_w=3, **TURNED_B
    ),
    "batched, one second": batched(b=(1, 1, 64, 64)),
    "batched, one first": batched(a=(1, 1, 64, 64)),
    "batched, second of two dimensions": batched(b=(64, 64)),
    "batched, one pair": batched(a=(1, 1, 64, 64), b=(1, 1, 64, 64)),
    "batched, two by four": batched(a=(2, 4, 64, 64), b=(2, 4, 64, 64)),
    "batched, two by four and eight": batched(a=(2, 4, 64, 64)),
    "batched, three dimensions": batched(a=(8, 64, 64), b=(8, 64, 64)),
    "batched, three and four dimensions": batched(a=(8, 64, 64)),
    "batched, no program": batched(program=False),
    "batched, bfloat16": batched(a_dtype=BF16, b_dtype=BF16),
    "batched, two types": batched(b_dtype=BF16),
    "batched, block floats": batched(b_dtype=BF8),
    "batched, bfloat16 out": batched(dtype=BF16),
    "batched, no type": batched(dtype=None),
    "batched, grid too large": batched(grid=(9, 8)),
    "batched, grid beyond any board": batched(grid=(13, 8)),
    "batched, one core": batched(grid=(1, 1)),
    "batched, no core": batched(grid=(0, 0)),
    "batched, more than cores": batched(a=(1, 300, 64, 64), b=(1, 300, 64, 64)),
    "batched, rows of padding": batched(a=(1, 8, 40, 64)),
    "batched, inner padding": batched(a=(1, 8, 64, 40), b=(1, 8, 40, 64)),
    "batched, sides differ": batched(b=(1, 8, 96, 64)),
    "batched, first in rows": batched(a_layout=ROW_MAJOR),
    "batched, HiFi2 sums in bfloat16": batched(configured={"fp32_dest_acc_en": False}),
    "batched, over the memory of a core": batched(
        a=(1, 8, 1024, 1024), b=(1, 8, 1024, 1024), in0_block_w=32, per_core_M=32, per_core_N=32
    ),
}

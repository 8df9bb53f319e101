"""Calls whose outcome on the library's mock device is known: what the emulator must accept and refuse alike.

A case is a function of a namespace `t` (the library or the emulator) and a factory `make(shape, dtype, layout,
place)` of device tensors. It needs no torch, so that it also runs where only the library is installed. `STRICTER`
names the cases that the library lets pass and the emulator refuses, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tests.support.emulator_delta_cases import (
    CONVOLUTION_CASES,
    CONVOLUTION_STRICTER,
    DELTA_CASES,
    DELTA_STRICTER,
    NORM_CASES,
)
from tests.support.emulator_join_cases import BATCHED_CASES, JOIN_CASES, JOIN_STRICTER
from tests.support.emulator_minimal_cases import MINIMAL_CASES, MINIMAL_STRICTER
from tests.support.emulator_score_cases import SCORE_CASES, SCORE_STRICTER
from tests.support.emulator_tail_cases import TAIL_CASES, TAIL_STRICTER
from tests.support.emulator_window_cases import WINDOW_CASES, WINDOW_STRICTER

Case = Callable[[Any, Any], Any]

BF16, BF8, BF4, F32 = "bfloat16", "bfloat8_b", "bfloat4_b", "float32"
U32, I32, U16 = "uint32", "int32", "uint16"


def outcome(t: Any, case: Case, make: Any) -> str:
    """Shapes, types, layouts and places of a call's results as text; "refused" or "type error" where there are none."""
    try:
        result = case(t, make)
    except TypeError:
        return "type error"
    except RuntimeError:
        return "refused"
    if result is None:
        return "done"
    return "; ".join(_describe(tensor) for tensor in (result if isinstance(result, (tuple, list)) else (result,)))


def _describe(tensor: Any) -> str:
    dtype, layout = str(tensor.dtype).rsplit(".", 1)[-1], str(tensor.layout).rsplit(".", 1)[-1]
    place = str(tensor.memory_config().buffer_type).rsplit(".", 1)[-1]
    return f"{list(tensor.shape)} padded {list(tensor.padded_shape)} {dtype} {layout} {place}"


def factory(t: Any, create: Callable[..., Any]) -> Any:
    """`make` on namespace `t`; `create(shape, dtype, layout, memory_config, values)` makes one device tensor.

    `values` matter to the emulator only, which reads them: integers that must be legal, or what constants must hold.
    """

    def make(
        shape: tuple[int, ...],
        dtype: str = BF16,
        layout: str = "TILE",
        place: str = "DRAM",
        values: Sequence[int] | None = None,
    ) -> Any:
        memory_config = t.DRAM_MEMORY_CONFIG if place == "DRAM" else t.L1_MEMORY_CONFIG
        return create(list(shape), getattr(t, dtype), getattr(t, f"{layout}_LAYOUT"), memory_config, values)

    return make


def rows(make: Any, shape: tuple[int, ...], dtype: str = BF16) -> Any:
    return make(shape, dtype, "ROW_MAJOR")


def compute(t: Any, **changes: Any) -> Any:
    values = {
        "math_fidelity": t.MathFidelity.HiFi2,
        "math_approx_mode": False,
        "fp32_dest_acc_en": True,
        "packer_l1_acc": True,
    }
    return t.WormholeComputeKernelConfig(**{**values, **changes})


def program_2d(t: Any, **changes: Any) -> Any:
    values = {
        "compute_with_storage_grid_size": (8, 8),
        "in0_block_w": 4,
        "out_subblock_h": 1,
        "out_subblock_w": 1,
        "per_core_M": 4,
        "per_core_N": 4,
        "transpose_mcast": False,
        "fused_activation": None,
        "fuse_batch": True,
    }
    return t.MatmulMultiCoreReuseMultiCastProgramConfig(**{**values, **changes})


def program_1d(t: Any, **changes: Any) -> Any:
    values = {
        "compute_with_storage_grid_size": (8, 8),
        "in0_block_w": 6,
        "out_subblock_h": 1,
        "out_subblock_w": 1,
        "per_core_M": 1,
        "per_core_N": 24,
        "fuse_batch": True,
        "fused_activation": None,
        "mcast_in0": True,
    }
    return t.MatmulMultiCoreReuseMultiCast1DProgramConfig(**{**values, **changes})


def attention_program(t: Any, query: int = 128, key: int = 128, grid: tuple[int, int] = (8, 8)) -> Any:
    return t.SDPAProgramConfig(
        compute_with_storage_grid_size=grid, q_chunk_size=query, k_chunk_size=key, exp_approx_mode=False
    )


# --- transfers and views ---------------------------------------------------------------------------------------------

CASES: dict[str, Case] = {
    "empty rows": lambda t, make: rows(make, (1, 7), I32),
    "empty tiles": lambda t, make: make((3, 5, 33)),
    "empty vector in tiles": lambda t, make: make((5,)),
    "empty block float": lambda t, make: make((1, 1, 40, 40), BF8),
    "empty block float rows": lambda t, make: rows(make, (1, 1, 40, 40), BF8),
    "empty block float 4": lambda t, make: make((32, 32), BF4),
    "empty in L1": lambda t, make: make((1, 1, 64, 64), BF16, "TILE", "L1"),
    "unsqueeze 2": lambda t, make: t.unsqueeze_to_4D(make((64, 64))),
    "unsqueeze 3": lambda t, make: t.unsqueeze_to_4D(make((1, 40, 64))),
    "unsqueeze 4": lambda t, make: t.unsqueeze_to_4D(make((1, 1, 64, 64))),
    "unsqueeze 5": lambda t, make: t.unsqueeze_to_4D(make((1, 1, 1, 64, 64))),
    "reshape outer": lambda t, make: t.reshape(make((2, 3, 64, 64)), [1, 6, 64, 64]),
    "reshape joins whole tiles": lambda t, make: t.reshape(make((1, 3, 64, 64)), [1, 1, 192, 64]),
    "reshape inferred": lambda t, make: t.reshape(make((1, 3, 64, 64)), [1, 1, -1, 64]),
    "reshape volume": lambda t, make: t.reshape(make((1, 1, 64, 64)), [1, 1, 64, 32]),
    "reshape rows": lambda t, make: t.reshape(rows(make, (2, 3, 64)), [1, 1, 6, 64]),
    "reshape moves tiles": lambda t, make: t.reshape(make((1, 1, 64, 64)), [1, 1, 32, 128]),
    "reshape moves rows": lambda t, make: t.reshape(rows(make, (64, 64)), [32, 128]),
    "slice tiles": lambda t, make: t.slice(make((1, 1, 128, 64)), (0, 0, 96, 0), (1, 1, 128, 64)),
    "slice inside a tile": lambda t, make: t.slice(make((1, 1, 128, 64)), (0, 0, 5, 0), (1, 1, 9, 64)),
    "slice rows": lambda t, make: t.slice(rows(make, (1, 1, 128, 64)), (0, 0, 5, 0), (1, 1, 9, 64)),
    "slice block float": lambda t, make: t.slice(make((1, 1, 128, 64), BF8), (0, 0, 32, 0), (1, 1, 64, 64)),
    "slice beyond": lambda t, make: t.slice(make((1, 1, 128, 64)), (0, 0, 96, 0), (1, 1, 160, 64)),
    "slice empty": lambda t, make: t.slice(make((1, 1, 128, 64)), (0, 0, 96, 0), (1, 1, 96, 64)),
    "slice rank": lambda t, make: t.slice(make((1, 1, 128, 64)), (0, 0), (1, 1)),
    "slice to L1": lambda t, make: t.slice(
        make((1, 1, 128, 64)), (0, 0, 96, 0), (1, 1, 128, 64), memory_config=t.L1_MEMORY_CONFIG
    ),
    "to rows": lambda t, make: t.to_layout(make((1, 1, 32, 64)), t.ROW_MAJOR_LAYOUT),
    "to rows, padded": lambda t, make: t.to_layout(make((1, 1, 5, 50)), t.ROW_MAJOR_LAYOUT),
    "to rows, block float": lambda t, make: t.to_layout(make((1, 1, 32, 64), BF8), t.ROW_MAJOR_LAYOUT),
    "to tiles": lambda t, make: t.to_layout(rows(make, (1, 1, 32, 64)), t.TILE_LAYOUT),
    "to tiles, padded": lambda t, make: t.to_layout(rows(make, (1, 1, 5, 50)), t.TILE_LAYOUT),
    "to tiles, indices": lambda t, make: t.to_layout(rows(make, (1, 32), U32), t.TILE_LAYOUT),
    "to the layout it has": lambda t, make: t.to_layout(make((1, 1, 32, 64)), t.TILE_LAYOUT),
    "to rows in L1": lambda t, make: t.to_layout(
        make((1, 1, 32, 64)), t.ROW_MAJOR_LAYOUT, memory_config=t.L1_MEMORY_CONFIG
    ),
    "deallocate twice": lambda t, make: _twice(t, make((1, 1, 32, 32))),
    "use after deallocate": lambda t, make: _after(t, make((1, 1, 32, 32)), lambda x: t.add(x, x)),
    "address after deallocate": lambda t, make: _after(t, make((1, 1, 32, 32)), lambda x: x.buffer_address()),
    "reshape after deallocate": lambda t, make: _after(t, make((1, 1, 32, 32)), lambda x: t.reshape(x, [32, 32])),
}


def _twice(t: Any, tensor: Any) -> None:
    t.deallocate(tensor)
    t.deallocate(tensor)


def _after(t: Any, tensor: Any, use: Callable[[Any], Any]) -> Any:
    t.deallocate(tensor)
    use(tensor)


# --- embedding -------------------------------------------------------------------------------------------------------


def embedding(
    ids=(1, 64), table=(128, 96), ids_dtype=U32, table_dtype=BF16, table_layout="ROW_MAJOR", ids_layout="ROW_MAJOR", **k
):
    def case(t: Any, make: Any) -> Any:
        arguments = {"layout": t.TILE_LAYOUT, **{name: getattr(t, value) for name, value in k.items()}}
        return t.embedding(make(ids, ids_dtype, ids_layout), make(table, table_dtype, table_layout), **arguments)

    return case


CASES |= {
    "embedding": embedding(),
    "embedding, dtype": embedding(dtype=BF16),
    "embedding, block float out": embedding(dtype=BF8),
    "embedding, float32 out": embedding(dtype=F32),
    "embedding, rows out": embedding(layout="ROW_MAJOR_LAYOUT"),
    "embedding, to L1": embedding(memory_config="L1_MEMORY_CONFIG"),
    "embedding, no layout": lambda t, make: t.embedding(rows(make, (1, 64), U32), rows(make, (128, 96))),
    "embedding, 40 ids": embedding(ids=(1, 40)),
    "embedding, table 4-D": embedding(table=(1, 1, 128, 96)),
    "embedding, table of two matrices": embedding(table=(1, 2, 128, 96)),
    "embedding, table in tiles": embedding(table_layout="TILE"),
    "embedding, table block float": embedding(table_dtype=BF8, table_layout="TILE"),
    "embedding, table float32": embedding(table_dtype=F32),
    "embedding, table integers": embedding(table_dtype=U32),
    "embedding, signed ids": embedding(ids_dtype=I32),
    "embedding, ids bfloat16": embedding(ids_dtype=BF16),
    "embedding, ids uint16": embedding(ids_dtype=U16),
    "embedding, ids in tiles": embedding(ids_layout="TILE", ids=(1, 32)),
    "embedding, two rows of ids": embedding(ids=(2, 32)),
    "embedding, ids 1-D": embedding(ids=(64,)),
    "embedding, ids 3-D": embedding(ids=(1, 1, 64)),
    "embedding, ids 4-D": embedding(ids=(1, 1, 1, 64)),
    "embedding, width 50": embedding(table=(128, 50)),
    "embedding, positional layout": lambda t, make: t.embedding(
        rows(make, (1, 64), U32), rows(make, (128, 96)), t.TILE_LAYOUT
    ),
}

# --- rms_norm --------------------------------------------------------------------------------------------------------


def norm(
    x=(1, 1, 64, 96),
    weight=(1, 1, 3, 32),
    x_dtype=BF16,
    weight_dtype=BF16,
    weight_layout="ROW_MAJOR",
    x_layout="TILE",
    **k,
):
    def case(t: Any, make: Any) -> Any:
        arguments = {name: getattr(t, value) if isinstance(value, str) else value for name, value in k.items()}
        return t.rms_norm(make(x, x_dtype, x_layout), weight=make(weight, weight_dtype, weight_layout), **arguments)

    return case


CASES |= {
    "norm": norm(epsilon=1e-5),
    "norm, block float": norm(x_dtype=BF8),
    "norm, block float 4": norm(x_dtype=BF4),
    "norm, float32": norm(x_dtype=F32),
    "norm, rows": norm(x_layout="ROW_MAJOR"),
    "norm, to L1": norm(memory_config="L1_MEMORY_CONFIG"),
    "norm, heads": norm(x=(1, 4, 64, 96)),
    "norm, 3-D": norm(x=(1, 64, 96)),
    "norm, 2-D": norm(x=(64, 96)),
    "norm, 40 rows": norm(x=(1, 1, 40, 96)),
    "norm, width 80": norm(x=(1, 1, 64, 80), weight=(80,), weight_layout="TILE"),
    "norm, weight one row of tiles": norm(weight=(1, 1, 1, 96), weight_layout="TILE"),
    "norm, weight vector in tiles": norm(weight=(96,), weight_layout="TILE"),
    "norm, weight one row, row-major": norm(weight=(1, 1, 1, 96)),
    "norm, weight vector, row-major": norm(weight=(96,)),
    "norm, weight 2-D row-major": norm(weight=(3, 32)),
    "norm, weight float32": norm(weight_dtype=F32),
    "norm, weight block float": norm(weight=(1, 1, 1, 96), weight_dtype=BF8, weight_layout="TILE"),
    "norm, weight too short": norm(weight=(1, 1, 2, 32)),
    "norm, weight too long": norm(weight=(1, 1, 4, 32)),
    "norm, weight tiles too short": norm(weight=(1, 1, 1, 64), weight_layout="TILE"),
    "norm, weight integers": norm(weight_dtype=U32),
    "norm, unknown keyword": lambda t, make: t.rms_norm(
        make((1, 1, 64, 96)), weight=rows(make, (1, 1, 3, 32)), eps=1e-5
    ),
    "norm, positional weight": lambda t, make: t.rms_norm(make((1, 1, 64, 96)), rows(make, (1, 1, 3, 32))),
    "norm, host weight missing": lambda t, make: t.rms_norm(make((1, 1, 64, 96)), weight=3),
}

# --- linear ----------------------------------------------------------------------------------------------------------


def linear(
    a=(1, 1, 64, 64),
    b=(64, 96),
    a_dtype=BF16,
    b_dtype=BF16,
    a_layout="TILE",
    a_place="DRAM",
    bias=None,
    bias_dtype=BF16,
    **k,
):
    def case(t: Any, make: Any) -> Any:
        arguments = {name: _resolve(t, name, value) for name, value in k.items()}
        if bias is not None:
            arguments["bias"] = make(bias, bias_dtype)
        return t.linear(make(a, a_dtype, a_layout, a_place), make(b, b_dtype), **arguments)

    return case


def _resolve(t: Any, name: str, value: Any) -> Any:
    if callable(value):
        return value(t)
    return getattr(t, value) if isinstance(value, str) and name != "activation" else value


def square(changes: dict[str, Any] | None = None, compute_changes: dict[str, Any] | None = None, **k: Any) -> Case:
    """1024 x 1024 x 1024 on an 8 x 8 grid."""
    return linear(
        **{"a": (1, 1, 1024, 1024), "b": (1024, 1024), **k},
        program_config=lambda t: program_2d(t, **(changes or {})),
        compute_kernel_config=lambda t: compute(t, **(compute_changes or {})),
    )


def head(changes: dict[str, Any] | None = None, rows_: int = 32, **k: Any) -> Case:
    """32 x 576 x 49152 on all cores."""
    return linear(
        **{"a": (1, 1, rows_, 576), "b": (576, 49152), **k},
        program_config=lambda t: program_1d(t, **(changes or {})),
        compute_kernel_config=compute,
    )


CASES |= {
    "linear": linear(),
    "linear, 3-D": linear(a=(1, 64, 64)),
    "linear, 2-D": linear(a=(64, 64)),
    "linear, weight 4-D": linear(b=(1, 1, 64, 96)),
    "linear, batched input": linear(a=(2, 3, 64, 64)),
    "linear, transposed weight": linear(b=(96, 64), transpose_b=True),
    "linear, transposed weight, wrong width": linear(b=(96, 32), transpose_b=True),
    "linear, widths differ": linear(b=(96, 96)),
    "linear, widths equal after padding only": linear(a=(1, 1, 40, 50), b=(64, 70)),
    "linear, padded": linear(a=(1, 1, 40, 50), b=(50, 70)),
    "linear, rows": linear(a_layout="ROW_MAJOR"),
    "linear, integers": linear(a_dtype=U32),
    "linear, integer weight": linear(b_dtype=I32),
    "linear, block float weight": linear(b_dtype=BF8),
    "linear, block float 4 weight": linear(b_dtype=BF4),
    "linear, block float input": linear(a_dtype=BF8),
    "linear, block float out": linear(dtype=BF8),
    "linear, float32": linear(a_dtype=F32, b_dtype=F32),
    "linear, float32 out": linear(dtype=F32),
    "linear, bias vector": linear(bias=(96,)),
    "linear, bias 2-D": linear(bias=(1, 96)),
    "linear, bias 4-D": linear(bias=(1, 1, 1, 96)),
    "linear, bias block float": linear(bias=(1, 1, 1, 96), bias_dtype=BF8),
    "linear, bias float32": linear(bias=(1, 1, 1, 96), bias_dtype=F32),
    "linear, bias too short": linear(bias=(1, 1, 1, 64)),
    "linear, bias two rows": linear(bias=(1, 1, 2, 96)),
    "linear, from L1": linear(a_place="L1"),
    "linear, to L1": linear(memory_config="L1_MEMORY_CONFIG"),
    "linear, silu": linear(activation="silu"),
    "linear, unknown activation": linear(activation="silly"),
    "linear, unknown keyword": linear(epsilon=1),
    "linear, positional bias": lambda t, make: t.linear(make((1, 1, 64, 64)), make((64, 96)), make((1, 96))),
    "linear, no weight": lambda t, make: t.linear(make((1, 1, 64, 64)), None),
    "linear, attention program": linear(program_config=attention_program),
    "square": square(),
    "square, in0 block 3": square({"in0_block_w": 3}),
    "square, in0 block 0": square({"in0_block_w": 0}),
    "square, in0 block float": square({"in0_block_w": 4.0}),
    "square, in0 block bool": square({"in0_block_w": True}),
    "square, subblock h 3": square({"out_subblock_h": 3}),
    "square, subblock h 0": square({"out_subblock_h": 0}),
    "square, subblock w 5": square({"out_subblock_w": 5}),
    "square, subblock 2x2": square({"out_subblock_h": 2, "out_subblock_w": 2}),
    "square, subblock 4x1": square({"out_subblock_h": 4}),
    "square, subblock 2x4": square({"out_subblock_h": 2, "out_subblock_w": 4}),
    "square, subblock 2x4, bfloat16 accumulation": square(
        {"out_subblock_h": 2, "out_subblock_w": 4}, {"fp32_dest_acc_en": False}
    ),
    "square, subblock 4x4, bfloat16 accumulation": square(
        {"out_subblock_h": 4, "out_subblock_w": 4}, {"fp32_dest_acc_en": False}
    ),
    "square, rows per core 3": square({"per_core_M": 3}),
    "square, rows per core 5": square({"per_core_M": 5}),
    "square, rows per core 0": square({"per_core_M": 0}),
    "square, rows per core 64": square({"per_core_M": 64}),
    "square, columns per core 3": square({"per_core_N": 3}),
    "square, columns per core 5": square({"per_core_N": 5}),
    "square, columns per core 64": square({"per_core_N": 64}),
    "square, grid 8x4": square({"compute_with_storage_grid_size": (8, 4)}),
    "square, grid 4x8": square({"compute_with_storage_grid_size": (4, 8)}),
    "square, grid 9x8": square({"compute_with_storage_grid_size": (9, 8)}),
    "square, grid 8x9": square({"compute_with_storage_grid_size": (8, 9)}),
    "square, grid 0x0": square({"compute_with_storage_grid_size": (0, 0)}),
    "square, grid of cores": square({"compute_with_storage_grid_size": [8, 8]}),
    "square, block 2x2": square({"out_block_h": 2, "out_block_w": 2}),
    "square, block h 3": square({"out_block_h": 3}),
    "square, block w 3": square({"out_block_w": 3}),
    "square, block 8": square({"out_block_h": 8, "out_block_w": 8}),
    "square, block 0": square({"out_block_h": 0, "out_block_w": 0}),
    "square, subblock wider than block": square({"out_block_w": 2, "out_subblock_w": 4}),
    "square, batch apart": square({"fuse_batch": False}),
    "square, unknown field": square({"out_block": 2}),
    "square, missing field": lambda t, make: t.MatmulMultiCoreReuseMultiCastProgramConfig(in0_block_w=4),
    "square, batch of rows joined": square(a=(8, 1, 128, 1024)),
    "square, batch of rows joined, too many": square(a=(8, 2, 1024, 1024)),
    "square, batch of rows apart": square({"fuse_batch": False}, a=(8, 2, 1024, 1024)),
    "square, 1000 rows": square(a=(1, 1, 1000, 1024)),
    "square, 1000 columns": square(b=(1024, 1000)),
    "square, 128 rows": square({"per_core_M": 1}, a=(1, 1, 128, 1024)),
    "square, bias": square(bias=(1, 1, 1, 1024)),
    "wide, fits": square({"per_core_M": 16, "per_core_N": 8}, a=(1, 1, 4096, 1024), b=(1024, 2048)),
    "wide, beyond L1": square({"per_core_M": 16, "per_core_N": 24}, a=(1, 1, 4096, 1024), b=(1024, 6144)),
    "wide, beyond L1 but in blocks": square(
        {"per_core_M": 16, "per_core_N": 24, "out_block_h": 8, "out_block_w": 12}, a=(1, 1, 4096, 1024), b=(1024, 6144)
    ),
    "wide, two blocks of K, packed in L1": square(
        {"per_core_M": 16, "per_core_N": 24, "in0_block_w": 2},
        {"fp32_dest_acc_en": False},
        a=(1, 1, 4096, 128),
        b=(128, 6144),
        dtype=BF8,
    ),
    "head": head(),
    "head, block float": head(b_dtype=BF8),
    "head, blocks": head({"out_block_w": 24, "out_subblock_w": 4}),
    "head, 23 columns per core": head({"per_core_N": 23}),
    "head, 25 columns per core": head({"per_core_N": 25}),
    "head, 48 columns per core": head({"per_core_N": 48}),
    "head, 48 columns per core, block float": head({"per_core_N": 48}, b_dtype=BF8),
    "head, block w 5": head({"out_block_w": 5}),
    "head, rows per core 2": head({"per_core_M": 2}),
    "head, 64 rows": head(rows_=64),
    "head, 64 rows, 2 per core": head({"per_core_M": 2}, rows_=64),
    "head, grid 9x8": head({"compute_with_storage_grid_size": (9, 8)}),
    "head, grid 8x4": head({"compute_with_storage_grid_size": (8, 4)}),
    "head, in0 block 5": head({"in0_block_w": 5}),
}

# --- heads, rotary and cache -----------------------------------------------------------------------------------------


def create_heads(shape=(1, 1, 64, 320), heads=3, key_value_heads=1, dtype=BF16, layout="TILE", transpose=False, **k):
    return lambda t, make: t.experimental.nlp_create_qkv_heads(
        make(shape, dtype, layout),
        num_heads=heads,
        num_kv_heads=key_value_heads,
        transpose_k_heads=transpose,
        memory_config=getattr(t, k.get("place", "DRAM_MEMORY_CONFIG")),
    )


def rotary(
    name,
    x=(1, 3, 64, 64),
    table=(1, 1, 64, 64),
    x_dtype=BF16,
    table_dtype=BF16,
    layout="TILE",
    decode=False,
    matrix=None,
):
    def case(t: Any, make: Any) -> Any:
        tables = (make(table, table_dtype, layout), make(table, table_dtype, layout))
        if name == "rotary_embedding_llama":
            tables = (*tables, make(matrix or (1, 1, 32, 32)))
        return getattr(t.experimental, name)(make(x, x_dtype, layout), *tables, is_decode_mode=decode)

    return case


def fill(
    cache=(16, 2, 32, 64),
    x=(1, 2, 128, 64),
    table=(1, 4),
    cache_dtype=BF16,
    x_dtype=BF16,
    table_dtype=I32,
    layout="TILE",
    **k,
):
    return lambda t, make: t.experimental.paged_fill_cache(
        make(cache, cache_dtype),
        make(x, x_dtype, layout),
        _table(make, table, table_dtype, k.get("table_layout", "ROW_MAJOR")),
        **{name: value for name, value in k.items() if name != "table_layout"},
    )


def _table(make: Any, shape: tuple[int, ...], dtype: str, layout: str) -> Any:
    return make(shape, dtype, layout, values=range(prod(shape)))


CASES |= {
    "heads": create_heads(),
    "heads, block float": create_heads(dtype=BF8),
    "heads, float32": create_heads(dtype=F32),
    "heads, batch of 2": create_heads(shape=(2, 1, 64, 320)),
    "heads, L1": create_heads(place="L1_MEMORY_CONFIG"),
    "heads, rows": create_heads(layout="ROW_MAJOR"),
    "heads, 3-D": create_heads(shape=(1, 64, 320)),
    "heads, axis 1 of 2": create_heads(shape=(1, 2, 64, 320)),
    "heads, 40 tokens": create_heads(shape=(1, 1, 40, 320)),
    "heads, dim 80": create_heads(shape=(1, 1, 64, 400)),
    "heads, width not divisible": create_heads(shape=(1, 1, 64, 500), heads=3, key_value_heads=2),
    "heads, more key-value heads than heads": create_heads(shape=(1, 1, 64, 320), heads=1, key_value_heads=2),
    "heads, transposed": create_heads(transpose=True),
    "heads, default transposition": lambda t, make: t.experimental.nlp_create_qkv_heads(
        make((1, 1, 64, 320)), num_heads=3, num_kv_heads=1
    ),
    "heads, no key-value heads": lambda t, make: t.experimental.nlp_create_qkv_heads(
        make((1, 1, 64, 576)), num_heads=3, transpose_k_heads=False
    ),
    "heads, positional count": lambda t, make: t.experimental.nlp_create_qkv_heads(make((1, 1, 64, 320)), 3, 1),
    "concat": lambda t, make: t.experimental.nlp_concat_heads(make((1, 3, 64, 64))),
    "concat, batch of 2": lambda t, make: t.experimental.nlp_concat_heads(make((2, 3, 64, 64))),
    "concat, block float": lambda t, make: t.experimental.nlp_concat_heads(make((1, 3, 64, 64), BF8)),
    "concat, dim 80": lambda t, make: t.experimental.nlp_concat_heads(make((1, 3, 64, 80))),
    "concat, 40 tokens": lambda t, make: t.experimental.nlp_concat_heads(make((1, 3, 40, 64))),
    "concat, rows": lambda t, make: t.experimental.nlp_concat_heads(rows(make, (1, 3, 64, 64))),
    "concat, L1": lambda t, make: t.experimental.nlp_concat_heads(
        make((1, 3, 64, 64)), memory_config=t.L1_MEMORY_CONFIG
    ),
    "concat, 3-D": lambda t, make: t.experimental.nlp_concat_heads(make((3, 64, 64))),
}
for _dim in (32, 64, 80, 96, 128, 160, 256, 288, 320):
    CASES[f"rotary halves, dim {_dim}"] = rotary("rotary_embedding_hf", (1, 3, 64, _dim), (1, 1, 64, _dim))
    CASES[f"rotary pairs, dim {_dim}"] = rotary("rotary_embedding_llama", (1, 3, 64, _dim), (1, 1, 64, _dim))
for _name, _kind in (("rotary_embedding_hf", "halves"), ("rotary_embedding_llama", "pairs")):
    CASES |= {
        f"rotary {_kind}, block float": rotary(_name, x_dtype=BF8),
        f"rotary {_kind}, all block float": rotary(_name, x_dtype=BF8, table_dtype=BF8),
        f"rotary {_kind}, float32": rotary(_name, x_dtype=F32),
        f"rotary {_kind}, all float32": rotary(_name, x_dtype=F32, table_dtype=F32),
        f"rotary {_kind}, tables float32": rotary(_name, table_dtype=F32),
        f"rotary {_kind}, rows": rotary(_name, layout="ROW_MAJOR"),
        f"rotary {_kind}, batch of 2": rotary(_name, x=(2, 3, 64, 64)),
        f"rotary {_kind}, longer tables": rotary(_name, table=(1, 1, 128, 64)),
        f"rotary {_kind}, shorter tables": rotary(_name, table=(1, 1, 32, 64)),
        f"rotary {_kind}, wider tables": rotary(_name, table=(1, 1, 64, 128)),
        f"rotary {_kind}, narrower tables": rotary(_name, table=(1, 1, 64, 32)),
        f"rotary {_kind}, tables 3-D": rotary(_name, table=(1, 64, 64)),
        f"rotary {_kind}, tables of two heads": rotary(_name, table=(1, 2, 64, 64)),
        f"rotary {_kind}, tables of all heads": rotary(_name, table=(1, 3, 64, 64)),
        f"rotary {_kind}, 40 tokens": rotary(_name, x=(1, 3, 40, 64)),
        f"rotary {_kind}, 3-D": rotary(_name, x=(3, 64, 64)),
        f"rotary {_kind}, many heads": rotary(_name, x=(1, 40, 64, 64)),
    }
CASES |= {
    "rotary pairs, matrix 64": rotary("rotary_embedding_llama", matrix=(1, 1, 64, 64)),
    "rotary pairs, matrix 2-D": rotary("rotary_embedding_llama", matrix=(32, 32)),
    "fill": fill(),
    "fill, block float": fill(cache_dtype=BF8, x_dtype=BF8),
    "fill, block float 4": fill(cache_dtype=BF4, x_dtype=BF4),
    "fill, float32": fill(cache_dtype=F32, x_dtype=F32),
    "fill, dtypes differ": fill(cache_dtype=BF8),
    "fill, wider table": fill(table=(1, 9)),
    "fill, narrower table": fill(table=(1, 3)),
    "fill, table of two rows": fill(table=(2, 4), batch_idx=1),
    "fill, row beyond the table": fill(table=(2, 4), batch_idx=2),
    "fill, negative row": fill(batch_idx=-1),
    "fill, table uint32": fill(table_dtype=U32),
    "fill, table uint16": fill(table_dtype=U16),
    "fill, table in tiles": fill(table_layout="TILE"),
    "fill, table 1-D": fill(table=(4,)),
    "fill, table 4-D": fill(table=(1, 1, 1, 4)),
    "fill, batch of 2": fill(x=(2, 2, 128, 64)),
    "fill, heads differ": fill(x=(1, 3, 128, 64)),
    "fill, dims differ": fill(x=(1, 2, 128, 32)),
    "fill, 100 tokens": fill(x=(1, 2, 100, 64)),
    "fill, tokens not whole blocks": fill(cache=(16, 2, 64, 64), x=(1, 2, 96, 64)),
    "fill, blocks of 16": fill(cache=(16, 2, 16, 64), table=(1, 8)),
    "fill, blocks of 64": fill(cache=(16, 2, 64, 64), table=(1, 2)),
    "fill, blocks of 128": fill(cache=(16, 2, 128, 64), table=(1, 1)),
    "fill, blocks of 40": fill(cache=(16, 2, 40, 64)),
    "fill, rows": fill(layout="ROW_MAJOR"),
    "fill, 3-D": fill(x=(2, 128, 64)),
    "fill, unknown keyword": fill(slot=1),
}

# --- attention -------------------------------------------------------------------------------------------------------


def attention(
    query=(1, 4, 256, 64),
    key=(1, 2, 256, 64),
    value=None,
    dtypes=(BF16, BF16, BF16),
    chunks=(128, 128),
    bounds=None,
    **k,
):
    def case(t: Any, make: Any) -> Any:
        arguments = {
            name: _resolve(t, name, item)
            for name, item in k.items()
            if name not in ("layout", "bounds_dtype", "bounds_layout")
        }
        if chunks is not None:
            arguments.setdefault("program_config", attention_program(t, *chunks))
        if bounds is not None:
            step = query[2] // max(prod(bounds) - 1, 1)
            arguments["cu_window_seqlens"] = make(
                bounds,
                k.get("bounds_dtype", I32),
                k.get("bounds_layout", "ROW_MAJOR"),
                values=range(0, query[2] + 1, step),
            )
        shapes = (query, key, value or key)
        tensors = [make(shape, dtype, k.get("layout", "TILE")) for shape, dtype in zip(shapes, dtypes)]
        return t.transformer.scaled_dot_product_attention(
            *tensors, **{"is_causal": True, "scale": 0.125, "compute_kernel_config": compute(t), **arguments}
        )

    return case


def chunked(
    query=(1, 4, 128, 64),
    cache=(32, 2, 32, 64),
    table=(1, 16),
    dtypes=(BF16, BF16),
    chunks=(128, 128),
    start="tensor",
    **k,
):
    def case(t: Any, make: Any) -> Any:
        arguments = {
            name: _resolve(t, name, item)
            for name, item in k.items()
            if name not in ("table_dtype", "table_layout", "start_shape", "start_dtype", "value", "start_layout")
        }
        if chunks is not None:
            arguments["program_config"] = attention_program(t, *chunks)
        if start in ("tensor", "both"):
            arguments["chunk_start_idx_tensor"] = make(
                k.get("start_shape", (1,)), k.get("start_dtype", I32), k.get("start_layout", "ROW_MAJOR")
            )
        if start == "both":
            arguments["chunk_start_idx"] = 128
        if isinstance(start, int):
            arguments["chunk_start_idx"] = start
        return t.transformer.chunked_scaled_dot_product_attention(
            make(query, dtypes[0]),
            make(cache, dtypes[1]),
            make(k.get("value", cache), dtypes[1]),
            _table(make, table, k.get("table_dtype", I32), k.get("table_layout", "ROW_MAJOR")),
            **{"scale": 0.125, "compute_kernel_config": compute(t), **arguments},
        )

    return case


CASES |= {
    "attention": attention(),
    "attention, heads joined": attention(output_concat_heads=True),
    "attention, no program": attention(chunks=None),
    "attention, no program, heads joined": attention(chunks=None, output_concat_heads=True),
    "attention, block float": attention(dtypes=(BF8, BF8, BF8)),
    "attention, block float keys and values": attention(dtypes=(BF16, BF8, BF8)),
    "attention, block float 4 keys and values": attention(dtypes=(BF16, BF4, BF4)),
    "attention, keys and values differ": attention(dtypes=(BF16, BF16, BF8)),
    "attention, float32": attention(dtypes=(F32, F32, F32)),
    "attention, rows": attention(layout="ROW_MAJOR"),
    "attention, batch of 2": attention(query=(2, 4, 256, 64), key=(2, 2, 256, 64)),
    "attention, batches differ": attention(query=(2, 4, 256, 64)),
    "attention, batch of 2, heads joined": attention(
        query=(2, 4, 256, 64), key=(2, 2, 256, 64), output_concat_heads=True
    ),
    "attention, heads not divisible": attention(query=(1, 3, 256, 64)),
    "attention, lengths differ": attention(key=(1, 2, 128, 64)),
    "attention, value length differs": attention(value=(1, 2, 128, 64)),
    "attention, value dim differs": attention(value=(1, 2, 256, 32)),
    "attention, dims differ": attention(key=(1, 2, 256, 32)),
    "attention, dim 80": attention(query=(1, 4, 256, 80), key=(1, 2, 256, 80)),
    "attention, dim 96": attention(query=(1, 4, 256, 96), key=(1, 2, 256, 96)),
    "attention, dim 128": attention(query=(1, 4, 256, 128), key=(1, 2, 256, 128)),
    "attention, dim 256": attention(query=(1, 4, 256, 256), key=(1, 2, 256, 256)),
    "attention, 96 tokens": attention(query=(1, 4, 96, 64), key=(1, 2, 96, 64)),
    "attention, 160 tokens": attention(query=(1, 4, 160, 64), key=(1, 2, 160, 64)),
    "attention, 100 tokens": attention(query=(1, 4, 100, 64), key=(1, 2, 100, 64)),
    "attention, chunks 32": attention(chunks=(32, 32)),
    "attention, chunks 64 and 256": attention(chunks=(64, 256)),
    "attention, chunks 256 and 256": attention(chunks=(256, 256)),
    "attention, chunks 512": attention(query=(1, 4, 1024, 64), key=(1, 2, 1024, 64), chunks=(512, 512)),
    "attention, chunks 512, dim 128": attention(query=(1, 4, 1024, 128), key=(1, 2, 1024, 128), chunks=(512, 512)),
    "attention, chunks 1024": attention(query=(1, 4, 1024, 64), key=(1, 2, 1024, 64), chunks=(1024, 1024)),
    "attention, chunk 48": attention(chunks=(48, 128)),
    "attention, key chunk 48": attention(chunks=(128, 48)),
    "attention, chunk 0": attention(chunks=(0, 128)),
    "attention, key chunk 0": attention(chunks=(128, 0)),
    "attention, chunk 100": attention(chunks=(100, 100)),
    "attention, grid 9x8": attention(chunks=None, program_config=lambda t: attention_program(t, grid=(9, 8))),
    "attention, grid 4x4": attention(chunks=None, program_config=lambda t: attention_program(t, grid=(4, 4))),
    "attention, to L1": attention(memory_config="L1_MEMORY_CONFIG"),
    "attention, scale integer": attention(scale=1),
    "attention, scale double": attention(scale=128**-0.5),
    "attention, no scale": attention(scale=None),
    "attention, 3-D": attention(query=(4, 256, 64), key=(2, 256, 64)),
    "attention, unknown keyword": attention(causal=True),
    "packed": attention(bounds=(3,)),
    "packed, heads joined": attention(bounds=(3,), output_concat_heads=True),
    "packed, bounds uint32": attention(bounds=(3,), bounds_dtype=U32),
    "packed, bounds float": attention(bounds=(3,), bounds_dtype=BF16),
    "packed, bounds 2-D": attention(bounds=(1, 3)),
    "packed, bounds in tiles": attention(bounds=(32,), bounds_layout="TILE"),
    "packed, one bound": attention(bounds=(1,)),
    "packed, batch of 2": attention(query=(2, 4, 256, 64), key=(2, 2, 256, 64), bounds=(3,)),
    "packed, no program": attention(bounds=(3,), chunks=None),
    "packed, block float": attention(bounds=(3,), dtypes=(BF16, BF8, BF8)),
    "packed, 160 tokens": attention(query=(1, 4, 160, 64), key=(1, 2, 160, 64), bounds=(3,)),
    "packed, many bounds": attention(query=(1, 4, 2048, 64), key=(1, 2, 2048, 64), bounds=(65,)),
    "chunked": chunked(),
    "chunked, start a number": chunked(start=128),
    "chunked, start 0": chunked(start=0),
    "chunked, no start": chunked(start=None),
    "chunked, both starts": chunked(start="both"),
    "chunked, start 64": chunked(start=64),
    "chunked, start 64, key chunks 64": chunked(start=64, chunks=(128, 64)),
    "chunked, start 64, chunks 64": chunked(start=64, chunks=(64, 64)),
    "chunked, start 16 without a program": chunked(start=16, chunks=None),
    "chunked, negative start": chunked(start=-128),
    "chunked, start beyond the table": chunked(start=512),
    "chunked, start at the end of the table": chunked(start=384),
    "chunked, no program": chunked(chunks=None),
    "chunked, scale double": chunked(scale=128**-0.5),
    "chunked, scale integer": chunked(scale=1),
    "chunked, no scale": chunked(scale=None),
    "chunked, block float cache": chunked(dtypes=(BF16, BF8)),
    "chunked, block float 4 cache": chunked(dtypes=(BF16, BF4)),
    "chunked, block float query": chunked(dtypes=(BF8, BF8)),
    "chunked, float32": chunked(dtypes=(F32, F32)),
    "chunked, table width 8": chunked(table=(1, 8)),
    "chunked, table width 9": chunked(table=(1, 9)),
    "chunked, table width 12": chunked(table=(1, 12)),
    "chunked, table width 4": chunked(table=(1, 4)),
    "chunked, table of two rows": chunked(table=(2, 16)),
    "chunked, batch of 2": chunked(query=(2, 4, 128, 64), table=(2, 16)),
    "chunked, table uint32": chunked(table_dtype=U32),
    "chunked, table in tiles": chunked(table_layout="TILE", table=(32, 32)),
    "chunked, table 1-D": chunked(table=(16,)),
    "chunked, start uint32": chunked(start_dtype=U32),
    "chunked, start of two values": chunked(start_shape=(2,)),
    "chunked, start 2-D": chunked(start_shape=(1, 1)),
    "chunked, start in tiles": chunked(start_layout="TILE"),
    "chunked, 100 tokens": chunked(query=(1, 4, 100, 64), start=0),
    "chunked, 96 tokens": chunked(query=(1, 4, 96, 64), start=0),
    "chunked, 160 tokens": chunked(query=(1, 4, 160, 64), start=0),
    "chunked, heads not divisible": chunked(query=(1, 3, 128, 64)),
    "chunked, dims differ": chunked(query=(1, 4, 128, 32)),
    "chunked, dim 80": chunked(query=(1, 4, 128, 80), cache=(32, 2, 32, 80)),
    "chunked, values differ": chunked(value=(32, 1, 32, 64)),
    "chunked, blocks of 16": chunked(cache=(64, 2, 16, 64)),
    "chunked, blocks of 64": chunked(cache=(64, 2, 64, 64)),
    "chunked, blocks of 128": chunked(cache=(64, 2, 128, 64)),
    "chunked, chunks beyond L1": chunked(query=(1, 4, 1024, 64), chunks=(1024, 1024), table=(1, 64)),
    "chunked, to L1": chunked(memory_config="L1_MEMORY_CONFIG"),
    "chunked, heads joined": chunked(output_concat_heads=True),
}

# --- element by element and searches ---------------------------------------------------------------------------------


def binary(
    name: str, a=(1, 1, 64, 96), b=None, dtypes=(BF16, BF16), layouts=("TILE", "TILE"), place="DRAM", **k: Any
) -> Case:
    def case(t: Any, make: Any) -> Any:
        arguments = {key: _resolve(t, key, value) for key, value in k.items()}
        return getattr(t, name)(
            make(a, dtypes[0], layouts[0], place), make(b or a, dtypes[1], layouts[1], place), **arguments
        )

    return case


CASES |= {
    "add": binary("add"),
    "add, 2-D": binary("add", a=(64, 96)),
    "add, 40 rows": binary("add", a=(1, 1, 40, 50)),
    "add, dtype": binary("add", dtype=BF16),
    "add, block float out": binary("add", dtype=BF8),
    "add, float32 out": binary("add", dtype=F32),
    "add, block float": binary("add", dtypes=(BF8, BF8)),
    "add, block float and bfloat16": binary("add", dtypes=(BF8, BF16)),
    "add, bfloat16 and block float": binary("add", dtypes=(BF16, BF8)),
    "add, float32": binary("add", dtypes=(F32, F32)),
    "add, float32 and bfloat16": binary("add", dtypes=(F32, BF16)),
    "add, to L1": binary("add", memory_config="L1_MEMORY_CONFIG"),
    "add, in L1": binary("add", place="L1"),
    "add, rows": binary("add", layouts=("ROW_MAJOR", "ROW_MAJOR")),
    "add, rows and tiles": binary("add", layouts=("TILE", "ROW_MAJOR")),
    "add, shapes differ": binary("add", b=(1, 1, 32, 96)),
    "add, widths differ": binary("add", b=(1, 1, 64, 32)),
    "add, one row": binary("add", b=(1, 1, 1, 96)),
    "add, ranks differ": binary("add", b=(64, 96)),
    "add, unknown keyword": binary("add", out=1),
    "mul": binary("mul"),
    "mul, silu": binary("mul", input_tensor_a_activations=lambda t: [t.UnaryOpType.SILU]),
    "mul, silu, block float": binary(
        "mul", dtypes=(BF8, BF8), dtype=BF8, input_tensor_a_activations=lambda t: [t.UnaryOpType.SILU]
    ),
    "mul, silu, block float out": binary("mul", dtype=BF8, input_tensor_a_activations=lambda t: [t.UnaryOpType.SILU]),
    "mul, silu as text": binary("mul", input_tensor_a_activations=lambda t: ["silu"]),
    "cast to block float": lambda t, make: t.typecast(make((1, 2, 64, 64)), t.bfloat8_b),
    "cast to block float 4": lambda t, make: t.typecast(make((1, 2, 64, 64)), t.bfloat4_b),
    "cast to float32": lambda t, make: t.typecast(make((1, 2, 64, 64)), t.float32),
    "cast from block float": lambda t, make: t.typecast(make((1, 2, 64, 64), BF8), t.bfloat16),
    "cast to the same": lambda t, make: t.typecast(make((1, 2, 64, 64)), t.bfloat16),
    "cast, L1": lambda t, make: t.typecast(make((1, 2, 64, 64)), t.bfloat8_b, memory_config=t.L1_MEMORY_CONFIG),
    "cast in L1": lambda t, make: t.typecast(make((1, 2, 64, 64), BF16, "TILE", "L1"), t.bfloat8_b),
    "cast rows to block float": lambda t, make: t.typecast(rows(make, (1, 2, 64, 64)), t.bfloat8_b),
    "cast rows": lambda t, make: t.typecast(rows(make, (1, 2, 64, 64)), t.float32),
    "argmax": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320)), dim=-1),
    "argmax, kept": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320)), dim=-1, keepdim=True),
    "argmax, dim 3": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320)), dim=3),
    "argmax, dim 4": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320)), dim=4),
    "argmax, tiles": lambda t, make: t.argmax(make((1, 1, 32, 320)), dim=-1),
    "argmax, float32": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320), F32), dim=-1),
    "argmax, block float": lambda t, make: t.argmax(make((1, 1, 32, 320), BF8), dim=-1),
    "argmax, integers": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320), U32), dim=-1),
    "argmax, 2-D": lambda t, make: t.argmax(rows(make, (32, 320)), dim=-1),
    "argmax, 5 rows": lambda t, make: t.argmax(rows(make, (1, 1, 5, 320)), dim=-1),
    "argmax, L1": lambda t, make: t.argmax(rows(make, (1, 1, 32, 320)), dim=-1, memory_config=t.L1_MEMORY_CONFIG),
    "topk": lambda t, make: t.topk(make((1, 1, 32, 320)), k=32, dim=-1),
    "topk, 4": lambda t, make: t.topk(make((1, 1, 32, 320)), k=4, dim=-1),
    "topk, 64": lambda t, make: t.topk(make((1, 1, 32, 320)), k=64, dim=-1),
    "topk, wide": lambda t, make: t.topk(make((1, 1, 32, 131072)), k=32, dim=-1),
    "topk, 65536": lambda t, make: t.topk(make((1, 1, 32, 65536)), k=32, dim=-1),
    "topk, 49152": lambda t, make: t.topk(make((1, 1, 32, 49152)), k=32, dim=-1),
    "topk, block float": lambda t, make: t.topk(make((1, 1, 32, 320), BF8), k=32, dim=-1),
    "topk, float32": lambda t, make: t.topk(make((1, 1, 32, 320), F32), k=32, dim=-1),
    "topk, rows": lambda t, make: t.topk(rows(make, (1, 1, 32, 320)), k=32, dim=-1),
    "topk, 2-D": lambda t, make: t.topk(make((32, 320)), k=32, dim=-1),
    "topk, 5 rows": lambda t, make: t.topk(make((1, 1, 5, 320)), k=32, dim=-1),
    "topk, k too large": lambda t, make: t.topk(make((1, 1, 32, 64)), k=96, dim=-1),
    "topk, k 0": lambda t, make: t.topk(make((1, 1, 32, 64)), k=0, dim=-1),
}

# --- what follows the body, and what some families add ----------------------------------------------------------------

CASES |= TAIL_CASES | MINIMAL_CASES | WINDOW_CASES | SCORE_CASES
CASES |= DELTA_CASES | CONVOLUTION_CASES | NORM_CASES | JOIN_CASES | BATCHED_CASES

# --- where the emulator is stricter than the library -----------------------------------------------------------------

NOT_MODELLED = "emitted modules do not use it"
STRICTER = (
    {
        "slice empty": "an empty tensor is a mistake of the caller's",
        "embedding, ids bfloat16": "bfloat16 holds whole numbers up to 256 only",
        "embedding, ids 1-D": NOT_MODELLED,
        "embedding, ids 3-D": NOT_MODELLED,
        "embedding, ids 4-D": NOT_MODELLED,
        "norm, weight block float": NOT_MODELLED,
        "heads, 40 tokens": "tokens are padded to whole tiles before",
        "heads, transposed": NOT_MODELLED,
        "heads, default transposition": NOT_MODELLED,
        "concat, dim 80": "heads of 80 columns share tiles",
        "rotary pairs, dim 80": "the last tile would be rotated in part",
        "rotary pairs, shorter tables": "rows beyond the tables would be read",
        "rotary pairs, tables of all heads": NOT_MODELLED,
        "rotary halves, 3-D": NOT_MODELLED,
        "fill, table in tiles": "the kernel reads rows",
        "fill, 100 tokens": "the last block would hold padding",
        "fill, tokens not whole blocks": "the last block would hold padding",
        "fill, blocks of 40": "a block is whole tiles, or half a tile",
        "fill, rows": "the kernel moves tiles",
        "packed, batch of 2": NOT_MODELLED,
        "chunked, both starts": "one of them is ignored without a word",
        "chunked, start 16 without a program": "the start must be a multiple of the chunks that the library then takes",
        "chunked, 100 tokens": "padding would be attended to",
        "add, rows": NOT_MODELLED,
        "add, rows and tiles": NOT_MODELLED,
        "add, ranks differ": NOT_MODELLED,
        "argmax, integers": NOT_MODELLED,
        "topk, k 0": "an empty tensor is a mistake of the caller's",
    }
    | TAIL_STRICTER
    | MINIMAL_STRICTER
    | WINDOW_STRICTER
    | SCORE_STRICTER
)
STRICTER |= DELTA_STRICTER | CONVOLUTION_STRICTER | JOIN_STRICTER

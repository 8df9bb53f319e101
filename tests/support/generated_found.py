"""Calls that draws from other seeds came upon: rare ones, in which the emulator was kinder or stricter than the library."""

from __future__ import annotations

from tests.support.generated_cases import (
    BF8,
    BF16,
    DEVICE,
    F32,
    FREED,
    HOST,
    I32,
    L1,
    ROW_MAJOR,
    TILE,
    U32,
    Attribute,
    Call,
    Operand,
)

HF, LLAMA = "experimental.rotary_embedding_hf", "experimental.rotary_embedding_llama"
CHUNKED = "transformer.chunked_scaled_dot_product_attention"
FILL = "experimental.paged_fill_cache"
SWAP = Operand((1, 1, 32, 32))


def _embedding(table: tuple[int, ...], **options: Attribute) -> Call:
    arguments = {"input_tensor": Operand((2, 64), U32, ROW_MAJOR), "weight": Operand(table, BF16, ROW_MAJOR), **options}
    return Call("embedding", ("input_tensor", "weight"), arguments)


def _norm(hidden: Operand, weight: Operand) -> Call:
    return Call("rms_norm", ("input_tensor",), {"input_tensor": hidden, "weight": weight})


def _linear(a: Operand, b: Operand, bias: Operand, **options: object) -> Call:
    arguments = {"input_tensor_a": a, "input_tensor_b": b, "bias": bias, **options}
    return Call("linear", ("input_tensor_a", "input_tensor_b"), arguments)


def _rotary(operation: str, x: Operand, cos: Operand, sin: Operand, **matrix: Operand) -> Call:
    return Call(operation, ("input", "cos", "sin", *matrix), {"input": x, "cos": cos, "sin": sin, **matrix})


def _fill(cache: Operand, new: Operand, table: Operand) -> Call:
    return Call(FILL, ("cache", "input", "page_table"), {"cache": cache, "input": new, "page_table": table})


def _chunked(k: Operand, v: Operand) -> Call:
    arguments = {
        "q": Operand((1, 2, 64, 64)),
        "k": k,
        "v": v,
        "page_table": Operand((1, 8), I32, ROW_MAJOR, values=tuple(range(8))),
        "chunk_start_idx_tensor": Operand((1,), I32, ROW_MAJOR),
    }
    return Call(CHUNKED, ("q", "k", "v", "page_table"), arguments)


X, TABLE = Operand((2, 3, 32, 64)), Operand((1, 1, 32, 64))
FOUND = (
    Call("unsqueeze_to_4D", ("tensor",), {"tensor": Operand((64, 96), place=FREED)}),
    Call(
        "reshape", ("input_tensor", "shape"), {"input_tensor": Operand((0, 2, 31, 96), F32, ROW_MAJOR), "shape": [-1]}
    ),
    Call("to_layout", ("tensor", "layout"), {"tensor": Operand((1, 0, 129), I32), "layout": Attribute("TILE_LAYOUT")}),
    Call("to_device", ("tensor", "device"), {"tensor": Operand((), BF8, place=HOST), "device": DEVICE}),
    Call("topk", ("input_tensor",), {"input_tensor": Operand((1, 1, 64, 64)), "k": True}),
    Call(
        "slice",
        ("input_tensor", "slice_start", "slice_end"),
        {"input_tensor": Operand((1, 31, 32), I32), "slice_start": [0, 0, 0], "slice_end": [1, 32, 32]},
    ),
    Call(
        "experimental.nlp_create_qkv_heads",
        ("input",),
        {"input": Operand((1, 1, 128, 384), BF8), "num_heads": 2, "num_kv_heads": True, "transpose_k_heads": False},
    ),
    Call(
        "experimental.nlp_create_qkv_heads",
        ("input",),
        {"input": Operand((2, 1, 32, 320), F32), "num_heads": 1, "num_kv_heads": 0, "transpose_k_heads": False},
    ),
    _embedding((64,), layout=Attribute("TILE_LAYOUT"), dtype=Attribute(BF16)),
    _embedding((160, 96), layout=Attribute("ROW_MAJOR_LAYOUT"), dtype=Attribute(F32)),
    _norm(Operand((1, 1, 32, 64)), Operand((), BF16, ROW_MAJOR)),
    _norm(Operand((1, 1, 64, 64)), Operand((1, 1, 2, 64))),
    _norm(Operand((1, 1, 64, 33)), Operand((1, 1, 2, 32), BF16, ROW_MAJOR)),
    _linear(Operand((1, 1, 64, 96)), Operand((96, 384)), Operand((1, 2, 1, 384))),
    _linear(Operand((1, 1, 64, 96)), Operand((96, 384)), Operand((1, 1, 1, 384), layout=ROW_MAJOR)),
    _linear(Operand((1, 1, 64, 96)), Operand((96, 384)), Operand((1, 1, 1, 384), U32)),
    _linear(Operand((1, 1, 64, 96)), Operand((384, 96)), Operand((1, 1, 1, 384)), transpose_b=True),
    _linear(Operand((1, 96, 192)), Operand((96, 192), place=L1), Operand((1, 1, 1, 96)), transpose_b=True),
    _rotary(HF, X, Operand((1, 1, 32, 63)), TABLE),
    _rotary(HF, X, TABLE, Operand((1, 1, 33, 64))),
    _rotary(LLAMA, X, TABLE, Operand((1, 1, 33, 64)), matrix=SWAP),
    _rotary(LLAMA, X, TABLE, TABLE, matrix=Operand((1, 1, 1, 32, 32))),
    _fill(Operand((16, 2, 32, 63), F32), Operand((1, 2, 64, 64), F32), Operand((1, 2), I32, ROW_MAJOR, values=(0, 1))),
    _fill(Operand((16, 2, 16, 64)), Operand((1, 2, 32, 64)), Operand((1, 1), I32, ROW_MAJOR)),
    _fill(Operand((16, 2, 32, 64)), Operand((1, 1, 2, 64, 64)), Operand((1, 2), I32, ROW_MAJOR, values=(0, 1))),
    _chunked(Operand((32, 2, 32, 64)), Operand((31, 2, 32, 64))),
    _chunked(Operand((32, 2, 32, 64)), Operand((32, 2, 32, 64), BF8, TILE)),
)

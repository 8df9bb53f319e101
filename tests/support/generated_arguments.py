"""A generator of calls for each operation of the emulator: shapes, types, layouts, places and options as a model could
choose them, and beside the edges of what is allowed.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tests.support.generated_attention import attention, chunked_attention, fill_cache
from tests.support.generated_cases import (
    BF4,
    BF8,
    BF16,
    DEVICE,
    DRAM,
    F32,
    FLOATS,
    I32,
    L1,
    ROW_MAJOR,
    TILE,
    U16,
    U32,
    Attribute,
    Call,
    Draw,
    Operand,
    drawn,
    numbered,
)
from tests.support.generated_delta import GENERATORS as DELTA_NETWORKS
from tests.support.generated_experts import GENERATORS as EXPERTS
from tests.support.generated_found import FOUND
from tests.support.generated_matmuls import linear, minimal_matmul, minimal_matmul_residual
from tests.support.generated_transfers import TRANSFERS


def _place(draw: Draw) -> str:
    return draw.mostly(DRAM, L1, often=0.85)


def _shape(draw: Draw, rank: int | None = None) -> tuple[int, ...]:
    """[.., rows, columns] with a batch in front now and then."""
    rank = rank or draw.mostly(4, 2, 3, 5, often=0.75)
    outer = tuple(draw.mostly(1, 2, 3, often=0.7) for _ in range(rank - 2))
    return (*outer, draw.tiles(), draw.tiles())


def _tensor(draw: Draw, *dtypes: str, layout: str | None = None) -> Operand:
    dtype = draw.dtype(*(dtypes or FLOATS))
    return Operand(_shape(draw), dtype, layout or draw.mostly(TILE, ROW_MAJOR), _place(draw))


# --- views and moves ---------------------------------------------------------------------------------------------------


def unsqueeze(draw: Draw) -> Call:
    shape = _shape(draw, draw.choice((2, 3, 4, 4, 5)))[draw.mostly(0, 1) :]
    tensor = Operand(shape, draw.dtype(*FLOATS, U32, I32, U16), draw.mostly(TILE, ROW_MAJOR, often=0.6), _place(draw))
    return Call("unsqueeze_to_4D", ("tensor",), {"tensor": tensor})


def reshape(draw: Draw) -> Call:
    """Another split of the same volume, mostly; tiles stay whole or move."""
    batch, heads, rows, columns = draw.choice((1, 2)), draw.choice((1, 2, 4)), draw.tiles(), draw.tiles()
    shape = (batch, heads, rows, columns)[draw.mostly(0, 1, 2) :]
    volume = prod(shape)
    targets = [
        [1, 1, volume // columns, columns],
        [volume // columns, columns],
        [1, volume // columns, 1, columns],
        [*shape[:-2], shape[-1], shape[-2]],
        [1, 1, 1, volume],
        [1, 1, -1, columns],
        [1, 1, volume // 32, 32],
        [2, -1, columns],
        [1, -1, -1, columns],
        [1, 1, volume // columns + 1, columns],
        [-1],
    ]
    tensor = Operand(shape, draw.dtype(*FLOATS, U32, I32), draw.mostly(TILE, ROW_MAJOR, often=0.6), _place(draw))
    return Call("reshape", ("input_tensor", "shape"), {"input_tensor": tensor, "shape": draw.choice(targets)})


def transpose(draw: Draw) -> Call:
    dims = draw.mostly((0, 1), (1, 0), (-4, -3), (1, 2), (2, 3), (0, 4), (1, 1), often=0.5)
    tensor = _tensor(draw, *FLOATS, U32)
    arguments = {"input_tensor": tensor, "dim1": dims[0], "dim2": dims[1], **draw.memory()}
    return Call("transpose", ("input_tensor", "dim1", "dim2"), arguments)


def slice_(draw: Draw) -> Call:
    tensor = _tensor(draw, *FLOATS, U32, I32)
    starts = [draw.choice((0, 0, size // 64 * 32, size // 2)) for size in tensor.shape]
    ends = [
        draw.mostly(size, max(low + 1, size - 1), max(low + 1, size // 32 * 32), often=0.7)
        for low, size in zip(starts, tensor.shape)
    ]
    if draw.random() < 0.1:
        at = draw.randrange(len(starts))
        ends[at] = draw.choice((starts[at], ends[at] + 1, starts[at] - 1))
    arguments = {"input_tensor": tensor, "slice_start": starts, "slice_end": ends, **draw.memory()}
    return Call("slice", ("input_tensor", "slice_start", "slice_end"), arguments)


def to_layout(draw: Draw) -> Call:
    tensor = _tensor(draw, *FLOATS, U32, I32, U16)
    layout = Attribute(draw.choice(("TILE_LAYOUT", "ROW_MAJOR_LAYOUT")))
    return Call("to_layout", ("tensor", "layout"), {"tensor": tensor, "layout": layout, **draw.memory()})


# --- look-ups, norm and heads ------------------------------------------------------------------------------------------


def embedding(draw: Draw) -> Call:
    ids = draw.mostly((draw.choice((1, 1, 2, 3)), draw.tiles(8)), (64,), (1, 1, 64), (1, 1, 1, 32), often=0.9)
    in_tiles = draw.random() < 0.25
    table = (draw.tiles(8), draw.mostly(draw.tiles(), 50, 576))
    arguments = {
        "input_tensor": Operand(
            ids, draw.mostly(U32, I32, U16, BF16, often=0.93), draw.mostly(ROW_MAJOR, TILE), _place(draw)
        ),
        "weight": Operand(
            (1,) * draw.choice((0, 0, 2)) + table,
            draw.dtype(BF16, BF8) if in_tiles else BF16,
            TILE if in_tiles else ROW_MAJOR,
            _place(draw),
        ),
        **draw.maybe("layout", lambda: Attribute(draw.mostly("TILE_LAYOUT", "ROW_MAJOR_LAYOUT", often=0.7)), 0.8),
        **draw.maybe("dtype", lambda: Attribute(draw.mostly(BF16, BF8, BF4, F32, U32, often=0.6))),
        **draw.memory(),
    }
    return Call("embedding", ("input_tensor", "weight"), arguments)


def rms_norm(draw: Draw) -> Call:
    hidden = _tensor(draw, BF16, BF8, F32)
    width = hidden.shape[-1]
    rows = [(1, 1, width // 32, 32), (1, 1, width // 32 + 1, 32), (width // 32, 32), (width,), (1, 1, 1, width)]
    vectors = [(1, 1, 1, width), (width,), (1, width), (1, 1, 1, width + 32)]
    layout = draw.choice((TILE, ROW_MAJOR))
    shapes = rows if layout == ROW_MAJOR else vectors
    weight = Operand(draw.mostly(shapes[0], *shapes[1:], often=0.75), draw.dtype(BF16, F32), layout, _place(draw))
    arguments = {
        "input_tensor": hidden,
        "weight": weight,
        **draw.maybe("epsilon", lambda: draw.mostly(1e-5, 1e-6, 1, "small", often=0.8)),
        **draw.memory(),
        **draw.maybe("compute_kernel_config", draw.compute),
    }
    return Call("rms_norm", ("input_tensor",), arguments)


def create_heads(draw: Draw) -> Call:
    heads, key_value_heads, dim = (
        draw.choice((1, 2, 3, 4, 8)),
        draw.choice((1, 2)),
        draw.mostly(64, 32, 96, 128, 80, 16),
    )
    width = (heads + 2 * key_value_heads) * dim + draw.mostly(0, 1, 32, often=0.93)
    tensor = Operand((draw.choice((1, 1, 2)), 1, draw.tiles(), width), draw.dtype(*FLOATS), TILE, _place(draw))
    arguments = {
        "input": tensor,
        "num_heads": heads,
        "num_kv_heads": draw.mostly(key_value_heads, 0, heads + 1, often=0.95),
        "transpose_k_heads": draw.mostly(False, True, often=0.95),
        **draw.memory(0.6),
    }
    return Call("experimental.nlp_create_qkv_heads", ("input",), arguments)


def concat_heads(draw: Draw) -> Call:
    shape = (
        draw.choice((1, 1, 2)),
        draw.choice((1, 2, 3, 8)),
        draw.tiles(),
        draw.mostly(64, 32, 96, 128, 80, often=0.6),
    )
    arguments = {"input": Operand(shape, draw.dtype(*FLOATS), TILE, _place(draw)), **draw.memory()}
    return Call("experimental.nlp_concat_heads", ("input",), arguments)


def _rotary(draw: Draw, dim: int, *dtypes: str) -> dict[str, Any]:
    tokens = draw.tiles()
    heads = Operand(
        (draw.choice((1, 1, 2)), draw.choice((1, 3, 4)), tokens, dim), draw.dtype(*dtypes), TILE, _place(draw)
    )
    table = (1, 1, tokens + draw.mostly(0, 32, 96, -1, -32, often=0.7), dim)
    kind = heads.dtype if draw.random() < 0.6 else draw.dtype(*dtypes)
    return {
        "input": heads,
        "cos": Operand(table, kind, TILE, _place(draw)),
        "sin": Operand(table, kind, TILE, _place(draw)),
    }


def rotary_halves(draw: Draw) -> Call:
    arguments = {
        **_rotary(draw, draw.mostly(64, 32, 128, 192, 96, 80, 256, often=0.4), BF16, BF8, F32),
        **draw.maybe("is_decode_mode", lambda: draw.mostly(False, True), 0.8),
        **draw.memory(),
        **draw.maybe("compute_kernel_config", draw.compute),
    }
    return Call("experimental.rotary_embedding_hf", ("input", "cos", "sin"), arguments)


def rotary_pairs(draw: Draw) -> Call:
    arguments = {
        **_rotary(draw, draw.mostly(64, 32, 96, 128, 256, 288, 80, often=0.4), BF16),
        "matrix": Operand(draw.mostly((1, 1, 32, 32), (32, 32), (1, 1, 64, 64)), draw.dtype(BF16), TILE, _place(draw)),
        **draw.maybe("is_decode_mode", lambda: draw.mostly(False, True), 0.8),
        **draw.memory(),
        **draw.maybe("compute_kernel_config", draw.compute),
    }
    return Call("experimental.rotary_embedding_llama", ("input", "cos", "sin", "matrix"), arguments)


# --- element by element and along rows ----------------------------------------------------------------------------------


def _activations(draw: Draw) -> list[Any]:
    names = ("SILU", "GELU", "GELU_TANH", "RELU", "SIGMOID", "TANH", "EXP")
    return [
        draw.mostly(Attribute(f"UnaryOpType.{draw.choice(names)}"), "silu", 7) for _ in range(draw.choice((1, 1, 2)))
    ]


def binary(name: str) -> Any:
    def call(draw: Draw) -> Call:
        a = _tensor(draw)
        b = Operand(
            draw.mostly(a.shape, (1, *a.shape), (*a.shape[:-1], 1), (*a.shape[:-2], 1, a.shape[-1]), a.shape[1:]),
            a.dtype if draw.random() < 0.6 else draw.dtype(*FLOATS),
            draw.mostly(a.layout, TILE, ROW_MAJOR),
            _place(draw),
        )
        if name == "subtract" and draw.random() < 0.3:
            b = Operand((*a.shape[:-1], 1), b.dtype, b.layout, b.place)
        arguments = {
            "a": a,
            "b": b,
            **draw.maybe("dtype", lambda: Attribute(draw.dtype(*FLOATS))),
            **draw.memory(),
        }
        if name != "subtract":
            arguments |= draw.maybe("input_tensor_a_activations", lambda: _activations(draw), 0.3)
            arguments |= draw.maybe("input_tensor_b_activations", lambda: _activations(draw), 0.2)
        if draw.random() < 0.2:
            arguments["b"] = draw.mostly(draw.choice((30.0, 1 / 30, -2, 0)), True, float("inf"), 1e40, often=0.8)
        return Call(name, ("a", "b"), arguments)

    return call


def unary(name: str) -> Any:
    def call(draw: Draw) -> Call:
        return Call(name, ("input_tensor",), {"input_tensor": _tensor(draw), **draw.memory()})

    return call


def gelu(draw: Draw) -> Call:
    kinds = (Attribute("GeluVariant.Tanh"), Attribute("GeluVariant.Accurate"))
    arguments = {
        "input_tensor": _tensor(draw),
        **draw.maybe("variant", lambda: draw.mostly(draw.choice(kinds), 2, None, "tanh"), 0.7),
        **draw.memory(),
    }
    return Call("gelu", ("input_tensor",), arguments)


def softcap(draw: Draw) -> Call:
    beta = draw.mostly(draw.choice((30.0, 50, 0.5, -4.0)), 0.0, 0, True, None, "30")
    arguments = {"input_tensor": _tensor(draw, BF16, BF8), "beta": beta, **draw.memory()}
    return Call("softcap", ("input_tensor", "beta"), arguments)


def typecast(draw: Draw) -> Call:
    source = draw.choice((*FLOATS, U32, I32, U16))
    tensor = Operand(_shape(draw), source, draw.mostly(TILE, ROW_MAJOR, often=0.75), _place(draw))
    target = Attribute(draw.choice((*FLOATS, U32, I32, U16)))
    return Call("typecast", ("input_tensor", "dtype"), {"input_tensor": tensor, "dtype": target, **draw.memory()})


def _dim(draw: Draw, rank: int) -> int:
    return draw.mostly(-1, rank - 1, rank, 0, -2, often=0.7)


def reduction(name: str) -> Any:
    def call(draw: Draw) -> Call:
        tensor = _tensor(draw)
        arguments = {
            "input_tensor": tensor,
            "dim": _dim(draw, len(tensor.shape)),
            **draw.maybe("keepdim", lambda: draw.mostly(True, False, 1, often=0.7), 0.7),
            **draw.memory(),
            **draw.maybe("compute_kernel_config", draw.compute, 0.2),
        }
        return Call(name, ("input_tensor",), arguments)

    return call


def argmax(draw: Draw) -> Call:
    tensor = Operand(_shape(draw), draw.dtype(BF16, F32), draw.choice((ROW_MAJOR, ROW_MAJOR, TILE)), _place(draw))
    arguments = {
        "input_tensor": tensor,
        "dim": _dim(draw, len(tensor.shape)),
        **draw.maybe("keepdim", lambda: draw.mostly(True, False, often=0.7), 0.6),
        **draw.memory(),
    }
    return Call("argmax", ("input_tensor",), arguments)


def topk(draw: Draw) -> Call:
    shape = (*_shape(draw)[:-1], draw.mostly(32 * draw.choice((1, 2, 4, 8, 10)), 50, 308, 1))
    arguments = {
        "input_tensor": Operand(shape, draw.dtype(BF16, BF8, F32), draw.mostly(TILE, ROW_MAJOR), _place(draw)),
        "k": draw.mostly(draw.choice((1, 4, 5, 8, 31, 32)), 33, 64, 0, shape[-1] + 1, often=0.8),
        **draw.maybe("dim", lambda: _dim(draw, len(shape)), 0.8),
        **draw.memory(),
    }
    return Call("topk", ("input_tensor",), arguments)


def gather(draw: Draw) -> Call:
    source = _tensor(draw, BF16, F32, BF8, layout=draw.mostly(TILE, ROW_MAJOR, often=0.93))
    index = (*source.shape[:-1], draw.mostly(1, 32, source.shape[-1], 2 * source.shape[-1], often=0.5))
    arguments = {
        "input": source,
        "dim": _dim(draw, len(source.shape)),
        "index": Operand(index, draw.mostly(U32, U16, I32, often=0.6), draw.mostly(source.layout, TILE), _place(draw)),
        **draw.memory(),
    }
    return Call("gather", ("input", "dim", "index"), arguments)


# --- drawing a token ----------------------------------------------------------------------------------------------------


def sampling(draw: Draw) -> Call:
    rows = draw.mostly(32, 1, 5, 16, 31, 33, 64, often=0.5)
    shape = (1, 1, rows, 32 * draw.mostly(1, 2, 4, 3, often=0.6))
    ones = (1,) * rows
    arguments = {
        "values": Operand(shape, BF16, TILE, _place(draw)),
        "indices": Operand(shape, draw.mostly(U32, I32, U16, often=0.7), ROW_MAJOR, _place(draw)),
        "k": Operand((rows,), draw.mostly(U32, I32), ROW_MAJOR, _place(draw), ones),
        "p": Operand((rows,), BF16, ROW_MAJOR, _place(draw), ones),
        "temp": Operand((rows,), BF16, ROW_MAJOR, _place(draw), ones),
        **draw.maybe("seed", lambda: draw.mostly(draw.randrange(8), -1, 2**32, 1.0, often=0.8)),
    }
    return Call("sampling", draw.choice((("values", "indices"), ("values", "indices", "k", "p", "temp"))), arguments)


def manual_seed(draw: Draw) -> Call:
    if draw.random() < 0.3:
        seeds = draw.mostly(draw.randrange(16), 2**32 - 1, 2**32, -1, 1.0, often=0.7)
        return Call("manual_seed", ("seeds",), {"seeds": seeds, "device": DEVICE})
    rows = draw.mostly(32, 1, 5, 16, often=0.5)
    users = tuple(range(rows))
    arguments = {
        "seeds": Operand((rows,), draw.dtype(U32), ROW_MAJOR, _place(draw)),
        "device": DEVICE,
        "user_ids": Operand(
            draw.mostly((rows,), (rows + 1,), (1, rows)), draw.dtype(U32), ROW_MAJOR, _place(draw), users
        ),
    }
    return Call("manual_seed", ("seeds",), arguments)


GENERATORS = {
    **TRANSFERS,
    "unsqueeze_to_4D": unsqueeze,
    "reshape": reshape,
    "transpose": transpose,
    "slice": slice_,
    "to_layout": to_layout,
    "embedding": embedding,
    "rms_norm": rms_norm,
    "linear": linear,
    "experimental.minimal_matmul": minimal_matmul,
    "experimental.dit_minimal_matmul_addcmul_fused": minimal_matmul_residual,
    "experimental.nlp_create_qkv_heads": create_heads,
    "experimental.nlp_concat_heads": concat_heads,
    "experimental.rotary_embedding_hf": rotary_halves,
    "experimental.rotary_embedding_llama": rotary_pairs,
    "experimental.paged_fill_cache": fill_cache,
    "transformer.scaled_dot_product_attention": attention,
    "transformer.chunked_scaled_dot_product_attention": chunked_attention,
    "add": binary("add"),
    "mul": binary("mul"),
    "subtract": binary("subtract"),
    "ceil": unary("ceil"),
    "exp": unary("exp"),
    "log": unary("log"),
    "tanh": unary("tanh"),
    "gelu": gelu,
    "softcap": softcap,
    "typecast": typecast,
    "max": reduction("max"),
    "sum": reduction("sum"),
    "argmax": argmax,
    "topk": topk,
    "gather": gather,
    "sampling": sampling,
    "manual_seed": manual_seed,
    **EXPERTS,
    **DELTA_NETWORKS,
}
SETS = 250
MORE_SETS = {
    "linear": 500,
    "experimental.minimal_matmul": 400,
    "experimental.dit_minimal_matmul_addcmul_fused": 400,
    "transformer.scaled_dot_product_attention": 700,
    "transformer.chunked_scaled_dot_product_attention": 700,
    "transformer.chunk_gated_delta_rule": 500,
    "matmul": 400,
}
CALLS = {
    name: call
    for operation, generator in GENERATORS.items()
    for name, call in numbered(drawn(operation, generator, MORE_SETS.get(operation, SETS))).items()
} | {f"found {number}": call for number, call in enumerate(FOUND)}

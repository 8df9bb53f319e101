"""Calls of the operations of gated delta networks, of copies, joins and batched products, and where the emulator is stricter
than the library on them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.emulator_delta_cases import CONSTANTS, constant
from tests.support.generated_cases import (
    BF8,
    BF16,
    DRAM,
    F32,
    FLOATS,
    I32,
    INTEGERS,
    L1,
    ROW_MAJOR,
    TILE,
    U32,
    Attribute,
    Call,
    Draw,
    Made,
    Operand,
)
from tests.support.generated_matmuls import part
from tests.support.generated_properties import Rule, any_tensor, shape_of, size_of, tensor_is, type_named

DELTA, CONVOLUTION, NORM = "chunk_gated_delta_rule", "qkv_causal_conv1d_silu", "sigmoid_gated_rms_norm"
PHASED = "ChunkGdnPhasedProgramConfig"


def _place(draw: Draw) -> str:
    return draw.mostly(DRAM, L1, often=0.9)


def _compute(draw: Draw, **usual: Any) -> dict[str, Any]:
    """What a kernel takes, mostly, or nothing."""
    if draw.random() < 0.3:
        return {}
    config = draw.compute()
    if draw.random() < 0.85:
        config = replace(config, fields=config.fields | usual)
    return {"compute_kernel_config": config}


def delta_rule(draw: Draw) -> Call:
    batch, tokens = draw.choice((1, 1, 2, 3)), draw.mostly(32 * draw.randint(1, 4), 40, 1, often=0.95)
    key_heads = draw.choice((1, 2, 4))
    value_heads = key_heads * draw.choice((1, 2, 4)) + draw.mostly(0, 1, 32, often=0.94)
    key_dim = 32 * draw.choice((1, 2, 3, 4)) + draw.mostly(0, 16, often=0.97)
    flat = draw.random() < 0.7
    value_dim = key_dim if flat and draw.random() < 0.95 else 32 * draw.choice((1, 2, 4))
    chunk = draw.mostly(32 if flat else draw.choice((32, 64)), 64, 16, often=0.95)

    def heads(count: int, dim: int) -> Operand:
        shape = (batch, tokens, count * dim) if flat else (batch, tokens, count, dim)
        return Operand(shape, draw.mostly(BF16, F32, BF8, often=0.97), TILE, _place(draw))

    def gate() -> Operand:
        return Operand((batch, tokens, value_heads), draw.mostly(F32, BF16, BF8, often=0.8), TILE, _place(draw))

    arguments: dict[str, Any] = {
        "q": heads(key_heads, key_dim),
        "k": heads(key_heads, key_dim),
        "v": heads(value_heads, value_dim),
        "g": gate(),
        "beta": gate(),
        "initial_state": Operand((batch, value_heads, key_dim, value_dim), F32, TILE, _place(draw)),
        "output_final_state": draw.mostly(True, False),
        "chunk_size": chunk,
        "output_head_major": draw.mostly(True, False, often=0.96),
        "program_config": draw.mostly(Made(PHASED, {}), None, often=0.97),
        **_compute(draw, math_fidelity=Attribute("MathFidelity.HiFi4"), math_approx_mode=False, fp32_dest_acc_en=True),
        **draw.memory(),
    }
    for name in CONSTANTS:
        shape = (1, 1, 32, 96) if name == "masks" else (1, 1, chunk, chunk)
        arguments[name] = Operand(shape, F32, TILE, _place(draw), constant(name, chunk))
    return Call(f"transformer.{DELTA}", ("q", "k", "v", "g", "beta"), arguments)


def convolution(draw: Draw) -> Call:
    widths = [draw.mostly(32 * draw.randint(1, 4), 48, 0, often=0.98) for _ in range(3)]
    channels, tokens = sum(widths), draw.mostly(32 * draw.randint(1, 4), 40, often=0.95)
    offset = draw.mostly(0, 32, 16, often=0.8)
    chunk = 32 * draw.choice([size for size in range(1, 17) if channels // 32 % size == 0])
    row = draw.mostly((1, 1, 1, channels), (channels,), (1, channels), often=0.7)
    history = Operand((1, 3, channels), BF16, ROW_MAJOR, _place(draw))
    arguments: dict[str, Any] = {
        "input": Operand(
            (1, tokens, channels + draw.choice((offset, 64))),
            BF16,
            draw.mostly(TILE, ROW_MAJOR, often=0.95),
            _place(draw),
        ),
        "history": history,
        **{f"tap{index}": Operand(row, BF16, TILE, _place(draw)) for index in range(4)},
        **dict(zip(("q_width", "k_width", "v_width"), widths)),
        "program_config": Made(
            "QkvCausalConv1dSiluProgramConfig", {"channel_chunk_size": draw.mostly(chunk, 48, 32 * 17, often=0.95)}
        ),
        "actual_start": Operand(draw.mostly((1,), (1, 1), (2,)), draw.mostly(U32, I32, often=0.97), ROW_MAJOR),
        "predecessor_carry": draw.mostly(history, replace(history, place=L1)),
        **_compute(draw, packer_l1_acc=False, math_approx_mode=False),
        **draw.memory(),
        **({"input_column_offset": offset} if offset or draw.random() < 0.3 else {}),
    }
    by_place = ("input", "history", "tap0", "tap1", "tap2", "tap3", "q_width", "k_width", "v_width")
    return Call(f"experimental.kda.{CONVOLUTION}", by_place, arguments)


def gated_norm(draw: Draw) -> Call:
    batch, heads = draw.choice((1, 1, 2)), draw.choice((1, 2, 4))
    tokens = draw.mostly(32 * draw.randint(1, 4), 40, often=0.95)
    dim = draw.mostly(32 * draw.randint(1, 8), 48, 4096, often=0.95)
    offset = draw.mostly(0, 32, 16, often=0.8)
    arguments: dict[str, Any] = {
        "input": Operand((batch * heads, tokens, dim), draw.mostly(draw.choice((F32, BF16)), BF8), TILE, _place(draw)),
        "gate": Operand((batch, tokens, heads * dim + draw.choice((offset, 64))), BF16, TILE, _place(draw)),
        "weight": Operand(draw.mostly((dim,), (1, dim), (dim + 32,)), BF16, TILE, _place(draw)),
        "num_heads": draw.mostly(heads, heads + 1, 2 * heads, often=0.95),
        **draw.maybe("epsilon", lambda: draw.mostly(1e-6, 0.0, float("inf")), 0.7),
        **draw.maybe("output_dtype", lambda: Attribute(draw.mostly(draw.choice((BF16, F32)), BF8, U32)), 0.7),
        **_compute(draw, packer_l1_acc=False),
        **draw.memory(),
        **({"gate_column_offset": offset} if offset or draw.random() < 0.3 else {}),
    }
    return Call(f"experimental.kda.{NORM}", ("input", "gate", "weight", "num_heads"), arguments)


def copy(draw: Draw) -> Call:
    rank = draw.choice((2, 3, 4, 4))
    shape = (*(draw.choice((1, 2, 3)) for _ in range(rank - 2)), draw.tiles(), draw.tiles())
    layout = draw.choice((TILE, TILE, ROW_MAJOR))
    dtype = draw.dtype(BF16, F32, BF8, U32) if layout == TILE else draw.choice((BF16, F32, U32, I32))
    source = Operand(shape, dtype, layout, _place(draw))
    target = Operand(
        draw.mostly(shape, (1, *shape), shape[::-1]),
        draw.mostly(dtype, BF16, F32, U32, often=0.6),
        draw.mostly(layout, TILE, ROW_MAJOR),
        _place(draw),
    )
    return Call("copy", ("input_a", "input_b"), {"input_a": source, "input_b": target})


def concat(draw: Draw) -> Call:
    rank = draw.choice((2, 3, 4, 4))
    layout = draw.choice((TILE, ROW_MAJOR))
    shape = [*(draw.choice((1, 2, 3)) for _ in range(rank - 2)), draw.tiles(), draw.tiles()]
    dtype = draw.choice((BF16, F32, BF8, U32) if layout == TILE else (BF16, F32, U32))
    dim = draw.mostly(draw.randrange(-rank, rank), rank, often=0.97)
    tensors = []
    for _ in range(draw.mostly(2, 1, 3, 5, often=0.5)):
        own = list(shape)
        if dim < rank and draw.random() < 0.3:
            own[dim] += draw.choice((32, 1)) if dim % rank >= rank - 2 else 1
        kind = draw.mostly(dtype, BF16, F32, often=0.97)
        tensors.append(Operand(tuple(own), kind, layout, _place(draw)))
    if draw.random() < 0.1:
        at = draw.randrange(len(tensors))
        other = draw.choice(("layout", "shape", "rank"))
        one = tensors[at]
        tensors[at] = {
            "layout": replace(one, layout=ROW_MAJOR if one.layout == TILE and one.dtype != BF8 else TILE),
            "shape": replace(one, shape=tuple(size + 1 for size in one.shape)),
            "rank": replace(one, shape=one.shape[1:] if rank > 2 else (1, *one.shape)),
        }[other]
    return Call("concat", ("tensors", "dim"), {"tensors": tensors, "dim": dim, **draw.memory()})


def repeat_interleave(draw: Draw) -> Call:
    rank = draw.choice((2, 3, 4, 4, 5))
    shape = (*(draw.choice((1, 2, 3)) for _ in range(rank - 2)), draw.tiles(), draw.tiles())
    layout = draw.mostly(TILE, ROW_MAJOR)
    dtype = draw.dtype(BF16, F32, BF8) if layout == TILE else draw.choice((BF16, F32, U32))
    dims = (*range(-rank, -2), *range(rank - 2)) or (0,)
    arguments = {
        "input_tensor": Operand(shape, dtype, layout, _place(draw)),
        "repeats": draw.mostly(draw.choice((2, 3, 4)), 1, 0),
        "dim": draw.mostly(draw.choice(dims), rank, -1, rank - 2, often=0.85),
        **draw.memory(),
    }
    return Call("repeat_interleave", ("input_tensor", "repeats", "dim"), arguments)


def cumsum(draw: Draw) -> Call:
    rank = draw.choice((2, 3, 4, 4))
    shape = (*(draw.choice((1, 2, 3)) for _ in range(rank - 2)), draw.tiles(), draw.tiles())
    arguments = {
        "input": Operand(shape, draw.dtype(BF16, F32), draw.mostly(TILE, ROW_MAJOR), _place(draw)),
        "dim": draw.mostly(draw.randrange(-rank, rank), rank, -rank - 1),
        **draw.maybe("dtype", lambda: Attribute(draw.mostly(F32, BF16, U32, BF8, often=0.6))),
        **draw.memory(),
    }
    return Call("cumsum", ("input", "dim"), arguments)


def permute(draw: Draw) -> Call:
    rank = draw.choice((2, 3, 4, 4, 4, 5))
    shape = (*(draw.choice((1, 2, 3)) for _ in range(rank - 2)), draw.tiles(3), draw.tiles(3))
    order = draw.sample(range(rank), rank)
    order = [dim - rank if draw.random() < 0.1 else dim for dim in order]
    if draw.random() < 0.1:
        order[draw.randrange(rank)] = draw.choice((0, rank, -rank - 1))
    if draw.random() < 0.05:
        order.pop()
    tensor = Operand(shape, draw.dtype(BF16, F32), draw.mostly(TILE, ROW_MAJOR), _place(draw))
    return Call("permute", ("input_tensor", "dims"), {"input_tensor": tensor, "dims": order, **draw.memory()})


def softplus(draw: Draw) -> Call:
    layout = draw.mostly(TILE, ROW_MAJOR)
    dtype = draw.dtype(*FLOATS) if layout == TILE else draw.choice((BF16, F32, U32))
    arguments = {
        "input_tensor": Operand((1, draw.choice((1, 3)), draw.tiles(), draw.tiles()), dtype, layout, _place(draw)),
        **draw.maybe("beta", lambda: draw.mostly(1.0, 2, 0.5, 0.0, -1.0, often=0.7), 0.6),
        **draw.maybe("threshold", lambda: draw.mostly(20.0, 5, 0.0), 0.5),
        **draw.memory(),
    }
    return Call("softplus", ("input_tensor",), arguments)


def _reused(draw: Draw, rows: int, inner: int, columns: int) -> Made:
    own = draw.mostly(
        draw.choice([size for size in range(1, rows + 1) if rows % size == 0]), 2 * rows, rows + 1, often=0.8
    )
    width = draw.mostly(columns, columns + 1, 1, often=0.93)
    fields = {
        "compute_with_storage_grid_size": draw.mostly((8, 8), (2, 2), (9, 8), (11, 10), (0, 1), often=0.8),
        "in0_block_w": part(draw, inner),
        "out_subblock_h": draw.mostly(1, part(draw, own), often=0.6),
        "out_subblock_w": draw.mostly(1, part(draw, width), often=0.5),
        "per_core_M": own,
        "per_core_N": width,
    }
    return Made("MatmulMultiCoreReuseProgramConfig", fields)


def matmul(draw: Draw) -> Call:
    rows, inner, columns = (draw.tiles(4) for _ in range(3))
    batch = draw.mostly((1, 6), (2, 3), (5,), (1, 1), (), often=0.5)
    turned = [draw.random() < 0.25 for _ in range(2)]
    other = draw.mostly(batch, (1,) * len(batch), batch[1:], often=0.93)
    kind = draw.choice((F32, F32, BF16))
    arguments: dict[str, Any] = {
        "input_tensor_a": Operand(
            (*batch, *((inner, rows) if turned[0] else (rows, inner))),
            kind,
            draw.mostly(TILE, ROW_MAJOR, often=0.98),
            _place(draw),
        ),
        "input_tensor_b": Operand(
            (*other, *((columns, inner) if turned[1] else (inner, columns))),
            draw.mostly(kind, BF8, BF16, F32),
            TILE,
            _place(draw),
        ),
        **{name: True for name, is_turned in zip(("transpose_a", "transpose_b"), turned) if is_turned},
        **draw.maybe("dtype", lambda: Attribute(draw.dtype(F32, BF16)), 0.6),
        **draw.memory(),
    }
    if draw.random() < 0.8:
        tiles = (-(-size // 32) for size in (rows, inner, columns))
        arguments |= {"program_config": _reused(draw, *tiles), "compute_kernel_config": draw.compute()}
    return Call("matmul", ("input_tensor_a", "input_tensor_b"), arguments)


GENERATORS = {
    f"transformer.{DELTA}": delta_rule,
    f"experimental.kda.{CONVOLUTION}": convolution,
    f"experimental.kda.{NORM}": gated_norm,
    "copy": copy,
    "concat": concat,
    "repeat_interleave": repeat_interleave,
    "softplus": softplus,
    "cumsum": cumsum,
    "permute": permute,
    "matmul": matmul,
}


# --- where the emulator is stricter ---


def _delta_disagrees(call: Call) -> bool:
    """Whether shapes that the library reads from one input are others in another."""
    shapes = {name: shape_of(call, name) for name in ("q", "k", "v", "g", "beta", "initial_state")}
    state = shapes["initial_state"]
    if not all(shapes.values()):
        return False
    if len(state) != 4 or not len(shapes["q"]) == len(shapes["k"]) == len(shapes["v"]) in (3, 4):
        return True
    batch, heads, key_dim, value_dim = state
    tokens = shapes["q"][1]
    if len(shapes["q"]) == 4:
        keys, values = (batch, tokens, shapes["q"][2], key_dim), (batch, tokens, heads, value_dim)
    else:
        whole = key_dim and shapes["q"][2] // key_dim * key_dim
        keys, values = (batch, tokens, whole), (batch, tokens, heads * value_dim)
        if key_dim != value_dim:
            return True
    wanted = {"q": keys, "k": keys, "v": values, "g": (batch, tokens, heads), "beta": (batch, tokens, heads)}
    return any(shapes[name] != shape for name, shape in wanted.items())


def _odd_constants(call: Call) -> bool:
    chunk = call["chunk_size"]
    return any(
        isinstance(call[name], Operand)
        and call[name].shape != ((1, 1, 32, 96) if name == "masks" else (1, 1, chunk, chunk))
        for name in CONSTANTS
    )


def _delta_casts(call: Call) -> bool:
    taken = {"q": (BF16,), "k": (BF16,), "v": (BF16,), "g": (BF16, F32), "beta": (BF16, F32), "initial_state": (F32,)}
    return any(tensor_is(call, name, lambda one, kinds=kinds: one.dtype not in kinds) for name, kinds in taken.items())


def _delta_without_parts(call: Call) -> bool:
    whole = ("initial_state", "program_config", *CONSTANTS)
    return call["output_head_major"] is not True or any(call[name] is None for name in whole)


def _joined(call: Call) -> list[Operand]:
    tensors = call["tensors"]
    return tensors if isinstance(tensors, list) else []


def _joined_within_tiles(call: Call) -> bool:
    tensors, dim = _joined(call), call["dim"] if "dim" in call.arguments else 0
    if len(tensors) < 2 or not isinstance(dim, int):
        return False
    rank = len(tensors[0].shape)
    return (
        -rank <= dim < rank
        and dim % rank >= rank - 2
        and any(one.layout == TILE and one.shape[dim] % 32 for one in tensors if len(one.shape) == rank)
    )


def _repeated_inside(call: Call) -> bool:
    rank, dim = len(shape_of(call, "input_tensor")), call["dim"]
    return isinstance(dim, int) and -rank <= dim < rank and dim % rank >= rank - 2 and call["repeats"] != 1


def _not_pairs(call: Call) -> bool:
    a, b = shape_of(call, "input_tensor_a"), shape_of(call, "input_tensor_b")
    return bool(a and b) and (len(a) < 3 or a[:-2] != b[:-2])


def _sums_as_another_type(call: Call) -> bool:
    made = type_named(call["dtype"])
    return isinstance(call["input"], Operand) and bool(made) and made not in (F32, call["input"].dtype)


def _dimension_twice(call: Call) -> bool:
    rank, dims = len(shape_of(call, "input_tensor")), call["dims"]
    return isinstance(dims, list) and rank > 0 and len({dim % rank for dim in dims}) < len(dims)


STRICTER = {
    "delta rules without their parts": Rule(
        "the library makes what is missing or chooses a program by a cost of its own", (DELTA,), _delta_without_parts
    ),
    "delta rules that cast": Rule("emitted modules state the types", (DELTA,), _delta_casts),
    "delta inputs that disagree": Rule(
        "the library does not look, and reads what is not there", (DELTA,), _delta_disagrees
    ),
    "constants of other shapes": Rule("the kernel reads one tile or four", (DELTA,), _odd_constants),
    "chunks that are not whole": Rule(
        "emitted modules have whole chunks",
        (DELTA,),
        lambda call: isinstance(call["chunk_size"], int)
        and call["chunk_size"] > 0
        and size_of(call, "q", 1) % call["chunk_size"] != 0,
    ),
    "convolved rows": Rule(
        "the library makes tiles of them first",
        (CONVOLUTION,),
        lambda call: tensor_is(call, "input", lambda one: one.layout == ROW_MAJOR),
    ),
    "copies that make floats of numbers": Rule(
        "emitted modules do not use it",
        ("copy",),
        lambda call: any_tensor(call, lambda one: one.dtype in INTEGERS)
        and isinstance(call["input_a"], Operand)
        and isinstance(call["input_b"], Operand)
        and call["input_a"].dtype != call["input_b"].dtype,
    ),
    "joined within tiles": Rule("the library takes tiles apart first", ("concat",), _joined_within_tiles),
    "joined layouts": Rule(
        "emitted modules do not use it", ("concat",), lambda call: len({one.layout for one in _joined(call)}) > 1
    ),
    "dimensions that one tensor does not have": Rule(
        "the library does not look where nothing is joined",
        ("concat",),
        lambda call: len(_joined(call)) == 1
        and isinstance(call["dim"], int)
        and not -len(_joined(call)[0].shape) <= call["dim"] < len(_joined(call)[0].shape),
    ),
    "repeated rows and columns": Rule("emitted modules do not use it", ("repeat_interleave",), _repeated_inside),
    "running sums of other types": Rule(
        "emitted modules do not use it",
        ("cumsum",),
        lambda call: tensor_is(call, "input", lambda one: one.dtype not in (BF16, F32)),
    ),
    "running sums as another type": Rule("the library casts what it sums", ("cumsum",), _sums_as_another_type),
    "permutations of rows and other types": Rule(
        "emitted modules do not use it",
        ("permute",),
        lambda call: tensor_is(
            call, "input_tensor", lambda one: one.layout == ROW_MAJOR or one.dtype not in (BF16, F32)
        ),
    ),
    "dimensions named twice": Rule("the library repeats one and drops another", ("permute",), _dimension_twice),
    "slopes of zero and below": Rule(
        "it divides by them",
        ("softplus",),
        lambda call: isinstance(call["beta"], (int, float)) and call["beta"] <= 0,
    ),
    "products that are not of pairs": Rule("ttnn.linear multiplies with one matrix", ("matmul",), _not_pairs),
    "batched products of integers": Rule(
        "products of floats are floats", ("matmul",), lambda call: type_named(call["dtype"]) in INTEGERS
    ),
}

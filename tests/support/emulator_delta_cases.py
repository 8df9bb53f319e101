"""Calls of the operations of gated delta networks, whose outcome on the library's mock device is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]
BF16, BF8, F32, U32, I32 = "bfloat16", "bfloat8_b", "float32", "uint32", "int32"
TILE, ROW_MAJOR = "TILE", "ROW_MAJOR"
Shape = tuple[int, ...]


def compute(t: Any, **changes: Any) -> Any:
    values = {
        "math_fidelity": t.MathFidelity.HiFi4,
        "math_approx_mode": False,
        "fp32_dest_acc_en": True,
        "packer_l1_acc": False,
    }
    return t.WormholeComputeKernelConfig(**{**values, **changes})


# --- the delta rule ---


def constant(name: str, chunk: int = 32) -> tuple[int, ...]:
    """The values of a constant of the rule, row by row."""
    side = range(chunk)
    if name == "masks":
        quadrants = ((0, 0), (1, 1), (1, 0))
        return tuple(
            int((row // 16, column // 16) == quadrant)
            for row in range(32)
            for quadrant in quadrants
            for column in range(32)
        )
    rule = {"eye": lambda i, j: i == j, "tril": lambda i, j: i >= j, "ones": lambda i, j: True}[name]
    return tuple(int(rule(i, j)) for i in side for j in side)


CONSTANTS = ("eye", "tril", "ones", "masks")


def delta(
    batch: int = 1,
    tokens: int = 64,
    key_heads: int = 2,
    value_heads: int = 4,
    key_dim: int = 64,
    value_dim: int = 64,
    flat: bool = True,
    chunk: int = 32,
    program: str | None = "ChunkGdnPhasedProgramConfig",
    given: tuple[str, ...] = CONSTANTS,
    dtypes: dict[str, str] | None = None,
    layouts: dict[str, str] | None = None,
    shapes: dict[str, Shape] | None = None,
    head_major: bool = True,
    final: bool = True,
    state: bool = True,
    place: str = "DRAM_MEMORY_CONFIG",
    configured: dict[str, Any] | None = None,
    fidelity: str | None = "HiFi4",
    **more: Any,
) -> Case:
    """One call of `transformer.chunk_gated_delta_rule`, legal but for what is changed."""
    dtypes, layouts, shapes = dtypes or {}, layouts or {}, shapes or {}
    widths = {"q": (key_heads, key_dim), "k": (key_heads, key_dim), "v": (value_heads, value_dim)}

    def case(t: Any, make: Any) -> Any:
        def tensor(name: str, shape: Shape, dtype: str, values: Any = None) -> Any:
            own = shapes.get(name, shape)
            return make(own, dtypes.get(name, dtype), layouts.get(name, TILE), values=values)

        inputs = [
            tensor(name, (batch, tokens, heads * dim) if flat else (batch, tokens, heads, dim), BF16)
            for name, (heads, dim) in widths.items()
        ]
        gates = [tensor(name, (batch, tokens, value_heads), F32) for name in ("g", "beta")]
        options: dict[str, Any] = {
            "output_head_major": head_major,
            "output_final_state": final,
            "chunk_size": chunk,
            "memory_config": getattr(t, place),
        }
        if fidelity is not None:
            options["compute_kernel_config"] = compute(
                t, math_fidelity=getattr(t.MathFidelity, fidelity), **(configured or {})
            )
        if state:
            options["initial_state"] = tensor("state", (batch, value_heads, key_dim, value_dim), F32)
        if program is not None:
            options["program_config"] = getattr(t, program)()
        for name in given:
            shape = (1, 1, 32, 96) if name == "masks" else (1, 1, chunk, chunk)
            options[name] = tensor(name, shape, F32, constant(name, chunk))
        made = t.transformer.chunk_gated_delta_rule(*inputs, *gates, **options, **more)
        return [one for one in made if one is not None]

    return case


HEAD_SPLIT = {"flat": False}
DELTA_CASES: dict[str, Case] = {
    "delta": delta(),
    "delta, two rows": delta(batch=2),
    "delta, one chunk": delta(tokens=32),
    "delta, 40 tokens": delta(tokens=40),
    "delta, 48 tokens": delta(tokens=48),
    "delta, chunk of 64": delta(chunk=64),
    "delta, chunk of 16": delta(chunk=16),
    "delta, wider values": delta(value_dim=128),
    "delta, wider keys": delta(key_dim=128),
    "delta, 48 wide": delta(key_dim=48, value_dim=48),
    "delta, 96 wide": delta(key_dim=96, value_dim=96),
    "delta, 256 wide": delta(key_dim=256, value_dim=256),
    "delta, five value heads of two key heads": delta(value_heads=5),
    "delta, fewer value heads": delta(key_heads=4, value_heads=2),
    "delta, as many heads as cores": delta(value_heads=64, key_dim=32, value_dim=32),
    "delta, more heads than cores": delta(key_heads=1, value_heads=65, key_dim=32, value_dim=32),
    "delta, more heads than any board's cores": delta(key_heads=1, value_heads=121, key_dim=32, value_dim=32),
    "delta, rows of heads as many as cores": delta(batch=2, value_heads=32, key_dim=32, value_dim=32),
    "delta, rows of heads more than cores": delta(batch=3, value_heads=32, key_dim=32, value_dim=32),
    "delta, rows of heads more than any cores": delta(batch=4, value_heads=32, key_dim=32, value_dim=32),
    **{
        f"delta, {name} in rows": delta(layouts={name: ROW_MAJOR})
        for name in ("q", "k", "v", "g", "beta", "state", *CONSTANTS)
    },
    **{f"delta, {name} bfloat16": delta(dtypes={name: BF16}) for name in ("g", "beta", "state", *CONSTANTS)},
    **{f"delta, {name} float32": delta(dtypes={name: F32}) for name in ("q", "k", "v")},
    "delta, g in block floats": delta(dtypes={"g": BF8}),
    "delta, g in integers": delta(dtypes={"g": U32}),
    "delta, state of other heads": delta(shapes={"state": (1, 2, 64, 64)}),
    "delta, state of other sides": delta(shapes={"state": (1, 4, 64, 32)}),
    "delta, state of three dimensions": delta(shapes={"state": (4, 64, 64)}),
    "delta, state of more rows": delta(shapes={"state": (2, 4, 64, 64)}),
    "delta, g of fewer tokens": delta(shapes={"g": (1, 32, 4)}),
    "delta, g of fewer heads": delta(shapes={"g": (1, 64, 2)}),
    "delta, beta of fewer heads": delta(shapes={"beta": (1, 64, 2)}),
    "delta, g of four dimensions": delta(shapes={"g": (1, 1, 64, 4)}),
    "delta, k of fewer tokens": delta(shapes={"k": (1, 32, 128)}),
    "delta, k wider than q": delta(shapes={"k": (1, 64, 256)}),
    "delta, k of four dimensions": delta(shapes={"k": (1, 64, 2, 64)}),
    "delta, q of four dimensions": delta(shapes={"q": (1, 64, 2, 64)}),
    "delta, q of two dimensions": delta(shapes={"q": (64, 128)}),
    "delta, q of odd width": delta(shapes={"q": (1, 64, 130)}),
    "delta, constants for chunks of 64": delta(shapes={"eye": (1, 1, 64, 64)}),
    "delta, one mask": delta(shapes={"masks": (1, 1, 32, 32)}),
    "delta, no constants": delta(given=()),
    "delta, no masks": delta(given=CONSTANTS[:3]),
    "delta, no state": delta(state=False),
    "delta, no final state": delta(final=False),
    "delta, tokens first": delta(head_major=False),
    "delta, no program": delta(program=None),
    "delta, fused program": delta(program="ChunkGdnFusedProgramConfig"),
    "delta, fused, two cores for each head": delta(value_heads=32, program="ChunkGdnFusedProgramConfig"),
    "delta, fused, fewer than two cores for a head": delta(value_heads=56, program="ChunkGdnFusedProgramConfig"),
    "delta, fused, rows of heads": delta(batch=2, value_heads=16, program="ChunkGdnFusedProgramConfig"),
    "delta, fused, three tiles wide": delta(key_dim=96, value_dim=96, program="ChunkGdnFusedProgramConfig"),
    "delta, fused, eight tiles wide": delta(key_dim=256, value_dim=256, program="ChunkGdnFusedProgramConfig"),
    "delta, mono program": delta(program="ChunkGdnMonoProgramConfig"),
    "delta, no compute configuration": delta(fidelity=None),
    "delta, HiFi2": delta(fidelity="HiFi2"),
    "delta, approximate": delta(configured={"math_approx_mode": True}),
    "delta, bfloat16 sums": delta(configured={"fp32_dest_acc_en": False}),
    "delta, sums in L1": delta(configured={"packer_l1_acc": True}),
    "delta, into L1": delta(place="L1_MEMORY_CONFIG"),
    "delta, heads split": delta(**HEAD_SPLIT),
    "delta, heads split, chunk of 64": delta(**HEAD_SPLIT, chunk=64),
    "delta, heads split, 40 tokens": delta(**HEAD_SPLIT, tokens=40),
    "delta, heads split, wider values": delta(**HEAD_SPLIT, key_dim=32),
    "delta, heads split, wider keys": delta(**HEAD_SPLIT, value_dim=32),
    "delta, heads split, 48 wide": delta(**HEAD_SPLIT, key_dim=48, value_dim=48),
    "delta, heads split, five of two": delta(**HEAD_SPLIT, value_heads=5),
    "delta, heads split, q in rows": delta(**HEAD_SPLIT, layouts={"q": ROW_MAJOR}),
    "delta, unknown argument": delta(decay=True),
}
NO_CAST = "casts are not modelled: emitted modules state the types"
NO_CHECK = "the library does not look, and reads what is not there"
DELTA_STRICTER = {
    "delta, wider keys": NO_CHECK,
    **{f"delta, {name} float32": NO_CAST for name in ("q", "k", "v")},
    "delta, state bfloat16": NO_CAST,
    "delta, g in block floats": NO_CAST,
    "delta, g in integers": NO_CAST,
    "delta, state of three dimensions": NO_CHECK,
    "delta, state of more rows": NO_CHECK,
    "delta, k of fewer tokens": NO_CHECK,
    "delta, k wider than q": NO_CHECK,
    "delta, k of four dimensions": NO_CHECK,
    "delta, constants for chunks of 64": NO_CHECK,
    "delta, one mask": NO_CHECK,
    "delta, no constants": "the library uploads them, which a trace cannot",
    "delta, no masks": "the library uploads all of them, which a trace cannot",
    "delta, no state": "emitted modules carry one",
    "delta, tokens first": "emitted modules read heads first",
    "delta, no program": "the library would choose by a cost of its own",
    "delta, fused, eight tiles wide": "not modelled: it takes more cores to a head, and none of the models has such heads",
    "delta, heads split, 40 tokens": "emitted modules have whole chunks",
}


# --- the convolution in front of it ---


def convolution(
    tokens: int = 64,
    widths: tuple[int, int, int] = (64, 64, 128),
    more_columns: int = 0,
    chunk: int = 64,
    offset: int | None = None,
    dtypes: dict[str, str] | None = None,
    layouts: dict[str, str] | None = None,
    shapes: dict[str, Shape] | None = None,
    own_carry: bool = False,
    place: str = "DRAM_MEMORY_CONFIG",
    configured: dict[str, Any] | None = None,
    fidelity: str | None = "HiFi4",
    without: tuple[str, ...] = (),
) -> Case:
    """One call of `experimental.kda.qkv_causal_conv1d_silu`, legal but for what is changed."""
    dtypes, layouts, shapes = dtypes or {}, layouts or {}, shapes or {}
    width = sum(widths)

    def case(t: Any, make: Any) -> Any:
        def tensor(name: str, shape: Shape, dtype: str, layout: str) -> Any:
            return make(shapes.get(name, shape), dtypes.get(name, dtype), layouts.get(name, layout))

        x = tensor("input", (1, tokens, width + more_columns), BF16, TILE)
        history = tensor("history", (1, 3, width), BF16, ROW_MAJOR)
        taps = [tensor(f"tap{index}", (1, 1, 1, width), BF16, TILE) for index in range(4)]
        options = {
            "program_config": t.QkvCausalConv1dSiluProgramConfig(channel_chunk_size=chunk),
            "actual_start": tensor("start", (1,), U32, ROW_MAJOR),
            "predecessor_carry": tensor("carry", (1, 3, width), BF16, ROW_MAJOR) if own_carry else history,
            "memory_config": getattr(t, place),
        }
        if fidelity is not None:
            options["compute_kernel_config"] = compute(
                t, math_fidelity=getattr(t.MathFidelity, fidelity), **(configured or {})
            )
        if offset is not None:
            options["input_column_offset"] = offset
        for name in without:
            del options[name]
        return t.experimental.kda.qkv_causal_conv1d_silu(x, history, *taps, *widths, **options)

    return case


WIDE = {"widths": (2048, 2048, 4096), "tokens": 128}
CONVOLUTION_CASES: dict[str, Case] = {
    "convolution": convolution(),
    "convolution, one tile": convolution(tokens=32),
    "convolution, 40 tokens": convolution(tokens=40),
    "convolution, q 48 wide": convolution(widths=(48, 64, 128)),
    "convolution, v 100 wide": convolution(widths=(64, 64, 100)),
    "convolution, no q": convolution(widths=(0, 64, 128)),
    "convolution, chunk of all": convolution(chunk=256),
    "convolution, chunk of 96": convolution(chunk=96),
    "convolution, chunk of 48": convolution(chunk=48),
    "convolution, chunk of 0": convolution(chunk=0),
    "convolution, chunk beyond all": convolution(chunk=512),
    "convolution, wide": convolution(**WIDE, chunk=256),
    "convolution, wide, chunk of 1024": convolution(**WIDE, chunk=1024),
    "convolution, wide, chunk beyond the memory": convolution(**WIDE, chunk=2048),
    **{
        f"convolution, {name} {dtype}": convolution(dtypes={name: dtype})
        for name in ("input", "history", "tap2", "start")
        for dtype in (F32, I32)
    },
    "convolution, input in block floats": convolution(dtypes={"input": BF8}),
    **{
        f"convolution, {name} in the other layout": convolution(layouts={name: layout})
        for name, layout in (("input", ROW_MAJOR), ("history", TILE), ("tap1", ROW_MAJOR), ("start", TILE))
    },
    "convolution, taps of one dimension": convolution(shapes={"tap0": (256,)}),
    "convolution, tap as a column": convolution(shapes={"tap0": (1, 1, 256, 1)}),
    "convolution, tap of fewer channels": convolution(shapes={"tap3": (1, 1, 1, 128)}),
    "convolution, tap of two rows": convolution(shapes={"tap3": (1, 1, 2, 256)}),
    "convolution, history of two dimensions": convolution(shapes={"history": (3, 256)}),
    "convolution, history of four rows": convolution(shapes={"history": (1, 4, 256)}),
    "convolution, input of four dimensions": convolution(shapes={"input": (1, 1, 64, 256)}),
    "convolution, input of two rows": convolution(shapes={"input": (2, 64, 256)}),
    "convolution, input too narrow": convolution(shapes={"input": (1, 64, 224)}),
    "convolution, wider input": convolution(more_columns=32),
    "convolution, from a column on": convolution(more_columns=64, offset=32),
    "convolution, from inside a tile on": convolution(more_columns=64, offset=16),
    "convolution, from beyond": convolution(offset=32),
    "convolution, start of four dimensions": convolution(shapes={"start": (1, 1, 1, 1)}),
    "convolution, two starts": convolution(shapes={"start": (2,)}),
    "convolution, carry of its own": convolution(own_carry=True),
    "convolution, carry of another shape": convolution(own_carry=True, shapes={"carry": (1, 1, 3, 256)}),
    "convolution, carry float32": convolution(own_carry=True, dtypes={"carry": F32}),
    "convolution, into L1": convolution(place="L1_MEMORY_CONFIG"),
    "convolution, no compute configuration": convolution(fidelity=None),
    "convolution, HiFi2": convolution(fidelity="HiFi2"),
    "convolution, approximate": convolution(configured={"math_approx_mode": True}),
    "convolution, bfloat16 sums": convolution(configured={"fp32_dest_acc_en": False}),
    "convolution, sums in L1": convolution(configured={"packer_l1_acc": True}),
    **{
        f"convolution, without {name}": convolution(without=(name,))
        for name in ("program_config", "actual_start", "predecessor_carry")
    },
}
CONVOLUTION_STRICTER = {
    "convolution, input in the other layout": "the library makes tiles of it first",
}


# --- the norm behind it ---


def gated_norm(
    batch: int = 1,
    heads: int = 4,
    tokens: int = 64,
    dim: int = 64,
    more_columns: int = 0,
    dtypes: dict[str, str] | None = None,
    layouts: dict[str, str] | None = None,
    shapes: dict[str, Shape] | None = None,
    stated_heads: int | None = None,
    output: str | None = BF16,
    place: str = "DRAM_MEMORY_CONFIG",
    configured: dict[str, Any] | None = None,
    **options: Any,
) -> Case:
    """One call of `experimental.kda.sigmoid_gated_rms_norm`, legal but for what is changed."""
    dtypes, layouts, shapes = dtypes or {}, layouts or {}, shapes or {}

    def case(t: Any, make: Any) -> Any:
        def tensor(name: str, shape: Shape, dtype: str) -> Any:
            return make(shapes.get(name, shape), dtypes.get(name, dtype), layouts.get(name, TILE))

        more: dict[str, Any] = {"memory_config": getattr(t, place), **options}
        if output is not None:
            more["output_dtype"] = getattr(t, output)
        if configured is not None:
            more["compute_kernel_config"] = compute(t, **configured)
        return t.experimental.kda.sigmoid_gated_rms_norm(
            tensor("input", (batch * heads, tokens, dim), F32),
            tensor("gate", (batch, tokens, heads * dim + more_columns), BF16),
            tensor("weight", (dim,), BF16),
            heads if stated_heads is None else stated_heads,
            **more,
        )

    return case


NORM_CASES: dict[str, Case] = {
    "gated norm": gated_norm(),
    "gated norm, two rows": gated_norm(batch=2),
    "gated norm, 40 tokens": gated_norm(tokens=40),
    "gated norm, 48 wide": gated_norm(dim=48),
    "gated norm, 1024 wide": gated_norm(dim=1024),
    "gated norm, beyond the memory": gated_norm(dim=4096),
    "gated norm, float32 out": gated_norm(output=F32),
    "gated norm, no type": gated_norm(output=None),
    "gated norm, block floats out": gated_norm(output=BF8),
    **{
        f"gated norm, {name} {dtype}": gated_norm(dtypes={name: dtype})
        for name in ("input", "gate", "weight")
        for dtype in (BF16, F32, BF8, U32)
    },
    **{f"gated norm, {name} in rows": gated_norm(layouts={name: ROW_MAJOR}) for name in ("input", "gate", "weight")},
    "gated norm, weight of four dimensions": gated_norm(shapes={"weight": (1, 1, 1, 64)}),
    "gated norm, short weight": gated_norm(shapes={"weight": (32,)}),
    "gated norm, input of four dimensions": gated_norm(shapes={"input": (1, 4, 64, 64)}),
    "gated norm, gate of four dimensions": gated_norm(shapes={"gate": (1, 1, 64, 256)}),
    "gated norm, wider gate": gated_norm(more_columns=32),
    "gated norm, gate from a column on": gated_norm(more_columns=32, gate_column_offset=32),
    "gated norm, gate from inside a tile on": gated_norm(more_columns=32, gate_column_offset=16),
    "gated norm, gate from beyond": gated_norm(gate_column_offset=32),
    "gated norm, gate from before": gated_norm(gate_column_offset=-32),
    "gated norm, gate of fewer tokens": gated_norm(shapes={"gate": (1, 32, 256)}),
    "gated norm, gate of more rows": gated_norm(shapes={"gate": (2, 64, 256)}),
    "gated norm, three heads of four": gated_norm(stated_heads=3),
    "gated norm, two heads of four": gated_norm(stated_heads=2),
    "gated norm, epsilon": gated_norm(epsilon=1e-6),
    "gated norm, epsilon 0": gated_norm(epsilon=0.0),
    "gated norm, epsilon below 0": gated_norm(epsilon=-1e-6),
    "gated norm, epsilon without end": gated_norm(epsilon=float("inf")),
    "gated norm, into L1": gated_norm(place="L1_MEMORY_CONFIG"),
    "gated norm, compute configuration": gated_norm(configured={}),
    "gated norm, approximate": gated_norm(configured={"math_approx_mode": True}),
    "gated norm, sums in L1": gated_norm(configured={"packer_l1_acc": True}),
}

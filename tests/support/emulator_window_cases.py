"""Conformance cases of what some families add to a layer: windows and sinks in attention, tanh gates and soft caps.

Cases are as in emulator_cases.py, which takes these in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]

BF16, BF8, BF4, F32 = "bfloat16", "bfloat8_b", "bfloat4_b", "float32"
U32, I32, U16 = "uint32", "int32", "uint16"
SINK = (1, 4, 1, 1)


def _options(t: Any, make: Any, chunks: Any, accumulate: Any, window: Any, sink: Any, place: tuple[str, ...]) -> dict:
    """`window` "none" and `sink` None leave the arguments out; `accumulate` None states no compute configuration."""
    options: dict[str, Any] = {"scale": 0.125}
    if chunks is not None:
        options["program_config"] = t.SDPAProgramConfig(
            compute_with_storage_grid_size=(8, 8), q_chunk_size=chunks[0], k_chunk_size=chunks[1], exp_approx_mode=False
        )
    if accumulate is not None:
        options["compute_kernel_config"] = t.WormholeComputeKernelConfig(
            math_fidelity=t.MathFidelity.HiFi2,
            math_approx_mode=False,
            fp32_dest_acc_en=accumulate,
            packer_l1_acc=True,
        )
    if window != "none":
        options["sliding_window_size"] = window
    if sink is not None:
        options["attention_sink"] = make(sink, *place)
    return options


def whole(
    window: Any = "none",
    sink: Any = None,
    heads=(4, 2),
    tokens=256,
    dim=64,
    batch=1,
    stored=BF16,
    chunks=(128, 128),
    accumulate=True,
    place=(),
    bounds=0,
    **k: Any,
) -> Case:
    def case(t: Any, make: Any) -> Any:
        options = {**_options(t, make, chunks, accumulate, window, sink, place), **k}
        if bounds:
            options["cu_window_seqlens"] = make(
                (bounds,), I32, "ROW_MAJOR", values=range(0, tokens + 1, tokens // (bounds - 1))
            )
        query, *rest = (
            make((batch, count, tokens, dim), kind) for count, kind in zip((*heads, heads[1]), (BF16, stored, stored))
        )
        return t.transformer.scaled_dot_product_attention(query, *rest, is_causal=True, **options)

    return case


def chunked(
    window: Any = "none",
    sink: Any = None,
    heads=(4, 2),
    tokens=128,
    dim=64,
    stored=BF16,
    chunks=(128, 128),
    accumulate=True,
    place=(),
    start: int | None = None,
    width=16,
    **k: Any,
) -> Case:
    def case(t: Any, make: Any) -> Any:
        options = {**_options(t, make, chunks, accumulate, window, sink, place), **k}
        if start is None:
            options["chunk_start_idx_tensor"] = make((1,), I32, "ROW_MAJOR")
        else:
            options["chunk_start_idx"] = start
        cache = [make((64, heads[1], 32, dim), stored) for _ in range(2)]
        table = make((1, width), I32, "ROW_MAJOR", values=range(width))
        query = make((1, heads[0], tokens, dim))
        return t.transformer.chunked_scaled_dot_product_attention(query, *cache, table, **options)

    return case


WINDOW_CASES: dict[str, Case] = {}
for _name, _attention in (("attention", whole), ("chunked", chunked)):
    WINDOW_CASES |= {
        f"{_name}, window {_window}": _attention(_window)
        for _window in (0, 1, 31, 32, 33, 48, 128, 256, 1000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, -1, 1.0, None)
    }
    WINDOW_CASES |= {
        f"{_name}, sink of {'x'.join(map(str, _shape))}": _attention(sink=_shape)
        for _shape in (
            SINK,
            (1, 4, 32, 1),
            (1, 4, 1, 32),
            (4, 32),
            (4, 1, 1, 1),
            (1, 1, 1, 4),
            (1, 1, 4, 1),
            (1, 2, 1, 1),
            (2, 4, 1, 1),
            (1, 4, 1),
            (4,),
        )
    }
    WINDOW_CASES |= {
        f"{_name}, sink of {_dtype}": _attention(sink=SINK, place=(_dtype,)) for _dtype in (BF8, BF4, F32, I32)
    }
    WINDOW_CASES |= {
        f"{_name}, sink in rows": _attention(sink=SINK, place=(BF16, "ROW_MAJOR")),
        f"{_name}, sink in L1": _attention(sink=SINK, place=(BF16, "TILE", "L1")),
        f"{_name}, window and sink": _attention(128, SINK),
        f"{_name}, window and sink, block float": _attention(128, SINK, stored=BF8),
        f"{_name}, window and sink, no program": _attention(128, SINK, chunks=None),
        f"{_name}, window and sink, no compute": _attention(128, SINK, accumulate=None),
        f"{_name}, window and sink, no accumulation": _attention(128, SINK, accumulate=False),
        f"{_name}, window and sink, 96 tokens": _attention(128, SINK, tokens=96),
        f"{_name}, window and sink, scale 1": _attention(128, SINK, scale=1.0),
    }
    for _dim in (32, 96, 128, 256, 512):
        WINDOW_CASES |= {
            f"{_name}, window, dim {_dim}": _attention(64, dim=_dim),
            f"{_name}, dim {_dim} of one shared head": _attention(dim=_dim, heads=(4, 1)),
            f"{_name}, sink, dim {_dim}": _attention(sink=SINK, dim=_dim),
        }
WINDOW_CASES |= {
    "attention, window and sink, batch of 2": whole(128, SINK, batch=2),
    "attention, window and sink, heads joined": whole(128, SINK, output_concat_heads=True),
    "attention, window and sink, 100 tokens": whole(128, SINK, tokens=100),
    "packed, window": whole(64, bounds=3),
    "packed, window 0": whole(0, bounds=3),
    "packed, at the limit of n150": whole(
        heads=(8, 2), tokens=1024, dim=256, stored=BF8, chunks=(32, 992), accumulate=False, bounds=9
    ),
    "packed, at the limit of n150, beyond L1": whole(
        heads=(8, 2), tokens=1024, stored=BF8, chunks=(480, 224), bounds=9
    ),
    "packed, sink": whole(sink=SINK, bounds=3),
    "chunked, window, start a number": chunked(64, start=128),
    "chunked, window and sink, start off the chunks": chunked(64, SINK, start=64),
    "attention, soft cap": whole(softcap=50.0),
}

# Sizes on both sides of the limit of L1, each within 3 kB of it: head dim, chunks, float32 accumulation, window and sink.
NEAR_L1 = {
    "n150": (
        (128, (288, 512), True, "none", True),
        (64, (320, 544), True, 128, False),
        (64, (192, 928), True, 128, True),
        (64, (480, 832), False, "none", True),
        (64, (960, 256), False, 128, False),
        (128, (352, 768), False, 128, True),
        (256, (224, 608), False, "none", False),
        (256, (352, 384), False, 128, True),
    ),
    "n150, beyond L1": (
        (256, (480, 224), False, "none", True),
        (256, (288, 224), True, "none", True),
        (256, (128, 576), True, 128, False),
        (64, (928, 64), True, 128, True),
        (128, (800, 128), False, "none", True),
        (64, (448, 896), False, 128, False),
        (64, (864, 320), False, 128, True),
    ),
    "p150": (
        (64, (928, 96), True, "none", True),
        (128, (192, 736), True, 128, False),
        (256, (352, 192), True, 128, True),
        (128, (320, 832), False, "none", True),
        (256, (128, 800), False, 128, False),
        (128, (448, 640), False, 128, True),
    ),
    "p150, beyond L1": (
        (128, (384, 416), True, "none", True),
        (128, (160, 896), True, 128, False),
        (128, (736, 32), True, 128, True),
        (128, (800, 160), False, "none", True),
        (512, (64, 448), False, 128, False),
        (64, (640, 576), False, 128, True),
    ),
}
for _edge, _sizes in NEAR_L1.items():
    for _dim, _chunks, _accumulate, _window, _sinks in _sizes:
        _what = f"{_dim} by {_chunks[0]} by {_chunks[1]}, at the limit of {_edge}"
        _sizes_of = {
            "heads": (8, 2),
            "tokens": 1024,
            "dim": _dim,
            "stored": BF8,
            "chunks": _chunks,
            "accumulate": _accumulate,
        }
        _sink = (1, 8, 1, 1) if _sinks else None
        WINDOW_CASES[f"attention, {_what}"] = whole(_window, _sink, **_sizes_of)
        WINDOW_CASES[f"chunked, {_what}"] = chunked(_window, _sink, width=64, **_sizes_of)


# --- gates and caps ----------------------------------------------------------------------------------------------------


def gated(name: str, kind: str, dtypes=(BF16, BF16), **k: Any) -> Case:
    def case(t: Any, make: Any) -> Any:
        tensors = [make((1, 1, 64, 96), dtype) for dtype in dtypes]
        options = {key: getattr(t, value) for key, value in k.items()}
        return getattr(t, name)(*tensors, input_tensor_a_activations=[getattr(t.UnaryOpType, kind)], **options)

    return case


def single(name: str, *values: Any, dtype=BF16, layout="TILE", place="DRAM", shape=(1, 1, 64, 96), **k: Any) -> Case:
    """`values` that are text are names of the library's, with dots."""

    def named(t: Any, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        for part in value.split("."):
            t = getattr(t, part)
        return t

    def case(t: Any, make: Any) -> Any:
        options = {key: named(t, value) for key, value in k.items()}
        return getattr(t, name)(make(shape, dtype, layout, place), *values, **options)

    return case


def scaled(dtype: str, out: str, *activations: str) -> Case:
    def case(t: Any, make: Any) -> Any:
        kinds = [getattr(t.UnaryOpType, kind) for kind in activations]
        return t.mul(make((1, 1, 64, 96), dtype), 30.0, dtype=getattr(t, out), input_tensor_a_activations=kinds)

    return case


for _dtype in (BF16, BF8, BF4, F32):
    WINDOW_CASES |= {
        f"mul, {_kind} of {_dtype}": gated("mul", _kind, (_dtype, _dtype)) for _kind in ("GELU", "GELU_TANH", "TANH")
    }
    WINDOW_CASES |= {
        f"gelu of {_dtype}": single("gelu", dtype=_dtype),
        f"gelu by tanh of {_dtype}": single("gelu", dtype=_dtype, variant="GeluVariant.Tanh"),
        f"tanh of {_dtype}": single("tanh", dtype=_dtype),
        f"mul by a number of {_dtype}": single("mul", 30.0, dtype=_dtype),
        f"soft cap of {_dtype}": single("softcap", 30.0, dtype=_dtype),
    }
for _name, _values in (("gelu", ()), ("tanh", ()), ("mul", (2.0,)), ("softcap", (30.0,))):
    WINDOW_CASES |= {
        f"{_name}, one tensor, rows": single(_name, *_values, layout="ROW_MAJOR"),
        f"{_name}, one tensor, to L1": single(_name, *_values, memory_config="L1_MEMORY_CONFIG"),
        f"{_name}, one tensor, in L1": single(_name, *_values, place="L1"),
        f"{_name}, one tensor, 3-D": single(_name, *_values, shape=(3, 40, 50)),
        f"{_name}, one tensor, integers": single(_name, *_values, dtype=I32),
        f"{_name}, one tensor, unknown keyword": single(_name, *_values, cap=1.0),
    }
WINDOW_CASES |= {
    "gelu by place": single("gelu", None),
    "mul by a whole number": single("mul", 30),
    "mul by a fraction": single("mul", 1 / 30),
    "mul by infinity": single("mul", float("inf")),
    "mul by too much": single("mul", 1e40),
    "mul by nothing": single("mul", None),
    "mul by a number, block float out": scaled(BF16, BF8),
    "mul, tanh by a number": scaled(BF16, BF16, "TANH"),
    "mul, tanh by a number, float32": scaled(F32, F32, "TANH"),
    "mul, two activations by a number": scaled(BF16, BF16, "TANH", "SIGMOID"),
    "soft cap 0": single("softcap", 0.0),
    "soft cap below 0": single("softcap", -30.0),
    "soft cap of infinity": single("softcap", float("inf")),
    "soft cap, whole number": single("softcap", 30),
    "no soft cap": single("softcap"),
    "linear, gelu by tanh": lambda t, make: t.linear(make((1, 1, 64, 96)), make((96, 64)), activation="gelu_tanh"),
    "linear, tanh": lambda t, make: t.linear(make((1, 1, 64, 96)), make((96, 64)), activation="tanh"),
}

NOT_MODELLED = "emitted modules do not use it"
SIGNED = "the kernel counts in signed numbers of 32 bits"
BITS = "the kernel reads the tile as bfloat16"
FINITE = "infinity leaves nothing of what it multiplies"
WINDOW_STRICTER = {
    **{f"{name}, window {window}": SIGNED for name in ("attention", "chunked") for window in (2**31, 2**32 - 1)},
    **{f"{name}, sink of {dtype}": BITS for name in ("attention", "chunked") for dtype in (BF8, BF4)},
    "mul, one tensor, rows": NOT_MODELLED,
    "mul, one tensor, integers": NOT_MODELLED,
    "mul by infinity": FINITE,
    "mul by too much": FINITE,
}

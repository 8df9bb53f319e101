"""Comparisons of the operations of gated delta networks, of joins and copies, and of products of many small matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.device.golden_arithmetic import named
from tests.device.golden_values import MOVED, ONE_STEP, ROW_MAJOR, SUMMED, Comparison, Value, drawn
from tests.support.emulator_delta_cases import CONSTANTS, constant

CHUNKED = 5e-6  # a chunk's sums, its system solved, and the states of all chunks before
WIDTHS = (64, 32, 96)


def delta_rules() -> Iterator[Comparison]:
    for number, (flat, chunk, key_dim, value_dim) in enumerate(
        ((True, 32, 64, 64), (True, 32, 32, 32), (False, 32, 64, 32), (False, 64, 64, 64), (False, 64, 64, 128))
    ):
        batch, tokens, key_heads, value_heads = 2, 192, 2, 6
        gates = (batch, tokens, value_heads)
        inputs = {
            "q": Value(drawn(400 + number, batch, tokens, key_heads, key_dim)),
            "k": Value(drawn(410 + number, batch, tokens, key_heads, key_dim) + drawn(420, 1, 1, key_heads, key_dim)),
            "v": Value(drawn(430 + number, batch, tokens, value_heads, value_dim)),
            "g": Value(-torch.exp(drawn(440 + number, *gates)), "float32"),
            "beta": Value(torch.sigmoid(drawn(450 + number, *gates)), "float32"),
            "state": Value(drawn(460 + number, batch, value_heads, key_dim, value_dim), "float32"),
        }
        if not flat:
            inputs |= {name: Value(_unit(inputs[name].values)) for name in "qk"}
        shaped = {
            name: value._replace(values=value.values.flatten(2)) for name, value in inputs.items() if name in "qkv"
        }
        yield Comparison(
            "transformer.chunk_gated_delta_rule",
            inputs | shaped if flat else inputs,
            lambda t, q, k, v, g, beta, state, chunk=chunk: _delta(t, chunk, q, k, v, g, beta, state),
            lambda golden, flat=flat, chunk=chunk, **values: _by_golden(golden, flat, chunk, **values),
            CHUNKED,
        )


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + 1e-6)


def _delta(t: Any, chunk: int, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
    def fixed(name: str) -> Any:
        shape = (1, 1, 32, 96) if name == "masks" else (1, 1, chunk, chunk)
        values = torch.tensor(constant(name, chunk), dtype=torch.float32).reshape(shape)
        return t.from_torch(values, dtype=t.float32, layout=t.TILE_LAYOUT, device=q.device())

    return t.transformer.chunk_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        initial_state=state,
        output_final_state=True,
        chunk_size=chunk,
        output_head_major=True,
        program_config=t.ChunkGdnPhasedProgramConfig(),
        **{name: fixed(name) for name in CONSTANTS},
    )


def _by_golden(golden: Any, flat: bool, chunk: int, q, k, v, g, beta, state) -> list[torch.Tensor]:
    """The golden function takes heads apart and normalised, whatever the operation was given."""
    if flat:
        q, k = (_unit(rows.unflatten(-1, (-1, state.shape[2]))) for rows in (q, k))
        v = v.unflatten(-1, (-1, state.shape[3]))
    options = {"initial_state": state, "output_final_state": True, "chunk_size": chunk, "output_head_major": True}
    return list(golden(q, k, v, g, beta, **options))


def convolutions() -> Iterator[Comparison]:
    channels = sum(WIDTHS)
    for number, offset in enumerate((0, 32)):
        inputs = {
            "x": Value(drawn(470 + number, 1, 96, channels + offset)),
            "history": Value(drawn(480 + number, 1, 3, channels), layout=ROW_MAJOR),
            **{f"tap{index}": Value(drawn(490 + index, 1, 1, 1, channels)) for index in range(4)},
            "start": Value(torch.zeros(1, dtype=torch.int64), "uint32", ROW_MAJOR),
        }

        def call(t: Any, x: Any, history: Any, start: Any, offset: int = offset, **taps: Any) -> Any:
            return t.experimental.kda.qkv_causal_conv1d_silu(
                x,
                history,
                *taps.values(),
                *WIDTHS,
                program_config=t.QkvCausalConv1dSiluProgramConfig(channel_chunk_size=32),
                actual_start=start,
                predecessor_carry=history,
                input_column_offset=offset,
            )

        yield Comparison(
            "experimental.kda.qkv_causal_conv1d_silu",
            inputs,
            call,
            lambda golden, offset=offset, **values: _convolved(offset, **values),
            SUMMED,
        )


def _convolved(offset: int, x, history, start, **taps: torch.Tensor) -> list[torch.Tensor]:
    """By the convolution of torch, channels as groups."""
    channels = sum(WIDTHS)
    rows = torch.cat((history, x[..., offset : offset + channels]), 1).transpose(1, 2)
    kernel = torch.stack([tap.reshape(channels) for tap in taps.values()], -1)[:, None]
    mixed = torch.nn.functional.conv1d(rows, kernel, groups=channels).transpose(1, 2)
    return list((mixed / (1 + (-mixed).exp())).split(WIDTHS, -1))


def gated_norms() -> Iterator[Comparison]:
    for number, (dtype, output) in enumerate((("float32", "bfloat16"), ("bfloat16", "float32"))):
        batch, heads, tokens, dim, offset = 2, 3, 64, 96, 32

        def call(t: Any, x: Any, gate: Any, weight: Any, output: str = output) -> Any:
            return t.experimental.kda.sigmoid_gated_rms_norm(
                x, gate, weight, 3, epsilon=1e-6, output_dtype=getattr(t, output), gate_column_offset=32
            )

        def reference(golden: Any, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            heads_last = x.reshape(batch, heads, tokens, dim).permute(0, 2, 1, 3)
            normed = torch.nn.functional.rms_norm(heads_last, (dim,), weight, 1e-6).reshape(batch, tokens, heads * dim)
            return normed / (1 + (-gate[..., offset:]).exp())

        yield Comparison(
            "experimental.kda.sigmoid_gated_rms_norm",
            {
                "x": Value(drawn(500 + number, batch * heads, tokens, dim, scale=0.1), dtype),
                "gate": Value(drawn(510 + number, batch, tokens, heads * dim + offset)),
                "weight": Value(drawn(520 + number, dim) + 1),
            },
            call,
            reference,
            SUMMED,
        )


def joins() -> Iterator[Comparison]:
    for source, target in (("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat8_b")):
        yield Comparison(
            "copy",
            {"a": Value(drawn(530, 1, 4, 64, 96), source), "b": Value(drawn(531, 1, 4, 64, 96), target)},
            lambda t, a, b: t.copy(a, b),
            lambda golden, a, b: golden(a, b),
        )
    tails = {name: Value(drawn(540 + index, 1, 3, 96), layout=ROW_MAJOR) for index, name in enumerate("abc")}
    states = {name: Value(drawn(550 + index, 1, 4, 64, 96), "float32") for index, name in enumerate("abc")}
    for inputs, dim in ((tails, 1), (tails, 2), (states, 0), (states, -2)):
        yield Comparison(
            "concat",
            inputs,
            lambda t, a, b, c, dim=dim: t.concat([a, b, c], dim),
            lambda golden, a, b, c, dim=dim: golden([a, b, c], dim),
            MOVED,
        )
    for dtype, dim in (("bfloat16", 1), ("float32", 0), ("bfloat8_b", -3)):
        yield Comparison(
            "repeat_interleave",
            {"x": Value(drawn(560, 2, 3, 64, 96), dtype)},
            lambda t, x, dim=dim: t.repeat_interleave(x, 3, dim),
            lambda golden, x, dim=dim: golden(x, 3, dim),
        )


def gates() -> Iterator[Comparison]:
    """What becomes of the projections of a gate: sums with a row, and activations of either operand."""
    for dtype in ("bfloat16", "float32"):
        wide = {"x": Value(12 * drawn(570, 1, 1, 64, 96), dtype)}
        for options in ({}, {"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 5.0}):
            yield Comparison(
                "softplus",
                wide,
                lambda t, x, options=options: t.softplus(x, **options),
                lambda golden, x, options=options: golden(x, **options),
                ONE_STEP,
            )
        for other, shape in (("bfloat16", (1, 1, 1, 96)), ("float32", (1, 1, 64, 1)), ("bfloat16", (1, 1, 64, 96))):
            pair = {"a": Value(drawn(580, 1, 1, 64, 96), dtype), "b": Value(drawn(581, *shape), other)}
            for name in ("add", "mul", "subtract"):
                yield Comparison(
                    name,
                    pair,
                    lambda t, a, b, name=name: getattr(t, name)(a, b),
                    lambda golden, a, b: golden(a, b),
                    ONE_STEP,
                )
            for activation in ("SIGMOID", "SILU", "EXP"):
                for side in "ab":
                    keyword = f"input_tensor_{side}_activations"
                    yield Comparison(
                        "mul",
                        pair,
                        lambda t, a, b, keyword=keyword, activation=activation: t.mul(
                            a, b, **{keyword: [getattr(t.UnaryOpType, activation)]}
                        ),
                        lambda golden, a, b, keyword=keyword, activation=activation: golden(
                            a, b, **{keyword: [named(f"UnaryOpType.{activation}")]}
                        ),
                        ONE_STEP,
                    )


def scans() -> Iterator[Comparison]:
    for source, target in (("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")):
        inputs = {"x": Value(drawn(610, 2, 3, 64, 96), source)}
        for dim in (0, 2, -1):
            yield Comparison(
                "cumsum",
                inputs,
                lambda t, x, dim=dim, target=target: t.cumsum(x, dim, dtype=getattr(t, target)),
                lambda golden, x, dim=dim: golden(x, dim),
                SUMMED,
            )
        for dims in ((0, 3, 1, 2), (1, 0, 3, 2), (3, 2, 1, 0)):
            yield Comparison(
                "permute",
                inputs,
                lambda t, x, dims=dims: t.permute(x, dims),
                lambda golden, x, dims=dims: golden(x, dims),
            )
    pair = {"column": Value(drawn(620, 1, 3, 64, 1), "float32"), "row": Value(drawn(621, 1, 3, 1, 64), "float32")}
    for name in ("add", "mul", "subtract"):
        yield Comparison(
            name,
            pair,
            lambda t, column, row, name=name: getattr(t, name)(column, row),
            lambda golden, column, row: golden(column, row),
            ONE_STEP,
        )


def batched_matrices() -> Iterator[Comparison]:
    for number, (a, b, dtype) in enumerate(
        (("float32", "float32", "float32"), ("bfloat16", "float32", "float32"), ("bfloat16", "bfloat16", "bfloat16"))
    ):
        for first, second in ((False, False), (True, False), (False, True), (True, True)):
            rows, inner, columns = 64, 96, 32
            inputs = {
                "a": Value(drawn(590 + number, 2, 5, *((inner, rows) if first else (rows, inner))), a),
                "b": Value(drawn(600 + number, 2, 5, *((columns, inner) if second else (inner, columns))), b),
            }
            turned = {"transpose_a": first, "transpose_b": second}
            yield Comparison(
                "matmul",
                inputs,
                lambda t, a, b, turned=turned, dtype=dtype: t.matmul(
                    a, b, dtype=getattr(t, dtype), **turned, **_reused(t)
                ),
                lambda golden, a, b, turned=turned: golden(a, b, **turned),
                SUMMED,
            )


def _reused(t: Any) -> dict[str, Any]:
    config = t.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=3,
        out_subblock_h=2,
        out_subblock_w=1,
        per_core_M=2,
        per_core_N=1,
    )
    return {"program_config": config, "compute_kernel_config": t.WormholeComputeKernelConfig(fp32_dest_acc_en=True)}

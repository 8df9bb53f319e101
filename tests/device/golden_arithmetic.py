"""Comparisons of what adds and multiplies: element by element, along rows, and matrices."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from tests.device.golden_values import MOVED, ONE_STEP, ROW_MAJOR, SUMMED, Comparison, Value, drawn, indices


def elementwise() -> Iterator[Comparison]:
    for number, dtype in enumerate(("bfloat16", "float32", "bfloat8_b")):
        pair = {
            "a": Value(drawn(60 + number, 1, 2, 64, 96), dtype),
            "b": Value(drawn(70 + number, 1, 2, 64, 96), dtype),
        }
        for name in ("add", "mul", "subtract"):
            yield Comparison(
                name,
                pair,
                lambda t, a, b, name=name: getattr(t, name)(a, b),
                lambda golden, a, b: golden(a, b),
                ONE_STEP,
            )
        for activation in ("SILU", "GELU", "GELU_TANH", "RELU", "SIGMOID", "TANH"):
            for name in ("add", "mul"):
                yield Comparison(
                    name,
                    pair,
                    lambda t, a, b, name=name, activation=activation: getattr(t, name)(
                        a, b, input_tensor_a_activations=[getattr(t.UnaryOpType, activation)]
                    ),
                    lambda golden, a, b, activation=activation: golden(
                        a, b, input_tensor_a_activations=[named(f"UnaryOpType.{activation}")]
                    ),
                    ONE_STEP,
                )
        column = {"a": pair["a"], "b": Value(drawn(80 + number, 1, 2, 64, 1), dtype)}
        yield Comparison(
            "subtract", column, lambda t, a, b: t.subtract(a, b), lambda golden, a, b: golden(a, b), ONE_STEP
        )
        single = {"x": pair["a"]}
        yield Comparison("exp", single, lambda t, x: t.exp(x), lambda golden, x: golden(x), ONE_STEP)
        positive = {"x": Value(drawn(85 + number, 1, 2, 64, 96).abs() + 0.5, dtype)}
        yield Comparison("log", positive, lambda t, x: t.log(x), lambda golden, x: golden(x), ONE_STEP)
        for name, tolerance in (("max", MOVED), ("sum", SUMMED)):
            yield Comparison(
                name,
                single,
                lambda t, x, name=name: getattr(t, name)(x, dim=-1, keepdim=True),
                lambda golden, x: golden(x, dim=-1, keepdim=True),
                tolerance,
            )
        yield from _bounded(single)
        for target in ("bfloat16", "float32", "bfloat8_b", "bfloat4_b"):
            yield Comparison(
                "typecast",
                single,
                lambda t, x, target=target: t.typecast(x, getattr(t, target)),
                lambda golden, x: x,  # the golden rounds to the type, as the test does with every reference
            )
    for source, target in (("uint16", "uint32"), ("uint32", "int32"), ("int32", "uint16"), ("uint32", "uint16")):
        yield Comparison(
            "typecast",
            {"x": Value(indices(90, 60000, 1, 1, 64, 96), source)},
            lambda t, x, target=target: t.typecast(x, getattr(t, target)),
            lambda golden, x, source=source, target=target: golden(
                x,
                dtype=named(target),
                input_dtype=named(source),
                _ttnn_arch_name="wormhole_b0",
            ),
        )


def _bounded(single: dict[str, Value]) -> Iterator[Comparison]:
    """Gates and caps of one tensor."""
    yield Comparison("tanh", single, lambda t, x: t.tanh(x), lambda golden, x: golden(x), ONE_STEP)
    for variant in ("Accurate", "Tanh"):
        yield Comparison(
            "gelu",
            single,
            lambda t, x, variant=variant: t.gelu(x, variant=getattr(t.GeluVariant, variant)),
            lambda golden, x, variant=variant: golden(x, variant=named(f"GeluVariant.{variant}")),
            ONE_STEP,
        )
    for factor in (30.0, -0.375):  # which bfloat16 holds
        yield Comparison(
            "mul",
            single,
            lambda t, x, factor=factor: t.mul(x, factor),
            lambda golden, x, factor=factor: golden(x, factor),
            ONE_STEP,
        )
        yield Comparison(
            "mul",
            single,
            lambda t, x, factor=factor: t.mul(x, factor, input_tensor_a_activations=[t.UnaryOpType.TANH]),
            lambda golden, x, factor=factor: golden(x, factor, input_tensor_a_activations=[named("UnaryOpType.TANH")]),
            ONE_STEP,
        )
    if single["x"].dtype != "float32":
        for beta in (0.5, 30.0):
            yield Comparison(
                "softcap",
                single,
                lambda t, x, beta=beta: t.softcap(x, beta),
                lambda golden, x, beta=beta: golden(x, beta),
                ONE_STEP,
                "p150",
            )


def named(name: str) -> Any:
    """A type or an activation of the library's, for its golden functions."""
    import ttnn

    return operator.attrgetter(name)(ttnn)


def normalization() -> Iterator[Comparison]:
    for number, dtype in enumerate(("bfloat16", "float32", "bfloat8_b")):
        yield Comparison(
            "rms_norm",
            {
                "x": Value(drawn(100 + number, 1, 3, 64, 576, scale=0.03), dtype),
                "weight": Value(drawn(110 + number, 1, 1, 18, 32) + 1, "bfloat16", ROW_MAJOR),
            },
            lambda t, x, weight: t.rms_norm(x, epsilon=1e-5, weight=weight),
            lambda golden, x, weight: golden(x, weight.reshape(-1), epsilon=1e-5),
            SUMMED,
        )


def matrices() -> Iterator[Comparison]:
    for number, (a, b) in enumerate((("bfloat16", "bfloat8_b"), ("float32", "float32"), ("bfloat8_b", "bfloat4_b"))):
        inputs = {
            "a": Value(drawn(120 + number, 1, 2, 96, 192), a),
            "b": Value(drawn(130 + number, 192, 160, scale=0.1), b),
        }
        bias = {**inputs, "bias": Value(drawn(140 + number, 1, 160))}
        turned = {**inputs, "b": Value(drawn(150 + number, 160, 192, scale=0.1), b)}
        yield Comparison("linear", inputs, lambda t, a, b: t.linear(a, b), lambda golden, a, b: golden(a, b), SUMMED)
        yield Comparison(
            "linear",
            turned,
            lambda t, a, b: t.linear(a, b, transpose_b=True),
            lambda golden, a, b: golden(a, b, transpose_b=True),
            SUMMED,
        )
        for activation in (None, "silu", "relu", "gelu", "sigmoid"):
            yield Comparison(
                "linear",
                bias,
                lambda t, a, b, bias, activation=activation: t.linear(a, b, bias=bias, activation=activation),
                lambda golden, a, b, bias, activation=activation: golden(a, b, bias=bias, activation=activation),
                SUMMED,
            )


def _minimal(t: Any) -> dict[str, Any]:
    config = t.MinimalMatmulConfig(
        M_block_size=2,
        K_block_size=2,
        N_block_size=4,
        subblock_h=1,
        subblock_w=2,
        compute_with_storage_grid_size=(8, 8),
    )
    return {"config": config, "compute_kernel_config": t.WormholeComputeKernelConfig(fp32_dest_acc_en=True)}


def minimal_matrices() -> Iterator[Comparison]:
    for number, (a, b) in enumerate((("bfloat16", "bfloat8_b"), ("float32", "float32"), ("bfloat8_b", "bfloat8_b"))):
        inputs = {
            "a": Value(drawn(160 + number, 1, 2, 96, 192), a),
            "b": Value(drawn(170 + number, 192, 256, scale=0.1), b),
        }
        bias = {**inputs, "bias": Value(drawn(180 + number, 1, 256))}
        yield Comparison(
            "experimental.minimal_matmul",
            bias,
            lambda t, a, b, bias: t.experimental.minimal_matmul(a, b, bias_tensor=bias, **_minimal(t)),
            lambda golden, a, b, bias: torch.einsum("...mk,kn->...mn", a, b) + bias,
            SUMMED,
        )
        yield Comparison(
            "experimental.minimal_matmul",
            inputs,
            lambda t, a, b: t.experimental.minimal_matmul(a, b, fuse_swiglu=True, **_minimal(t)),
            _gated,
            SUMMED,
        )
        yield Comparison(
            "experimental.dit_minimal_matmul_addcmul_fused",
            {
                **inputs,
                "base": Value(drawn(190 + number, 1, 2, 96, 256), b),
                "factors": Value(drawn(200 + number, 1, 256)),
            },
            lambda t, a, b, base, factors: t.experimental.dit_minimal_matmul_addcmul_fused(
                a, b, 0.5, base, factors, **_minimal(t)
            ),
            lambda golden, a, b, base, factors: base + torch.einsum("...mk,kn->...mn", a, b) * factors * 0.5,
            SUMMED,
        )


def _gated(golden: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One output tile from each gate tile and the up tile to its right."""
    product = torch.einsum("...mk,kn->...mn", a, b)
    tiles = product.split(32, -1)
    return torch.cat([gate / (1 + (-gate).exp()) * up for gate, up in zip(tiles[::2], tiles[1::2])], -1)

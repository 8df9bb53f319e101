"""Comparisons of positions and attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.device.golden_values import ATTENDED, ONE_STEP, ROW_MAJOR, Comparison, Value, drawn


def _angles(tokens: int, dim: int) -> torch.Tensor:
    return torch.outer(torch.arange(tokens).float(), 10000 ** (-torch.arange(0, dim, 2).float() / dim))


def rotations() -> Iterator[Comparison]:
    for number, (tokens, dim) in enumerate(((96, 64), (128, 128), (64, 32))):
        angles = _angles(tokens + 32, dim)
        x = Value(drawn(210 + number, 2, 3, tokens, dim))
        halves = torch.cat((angles, angles), -1)[None, None]
        yield Comparison(
            "experimental.rotary_embedding_hf",
            {"x": x, "cos": Value(halves.cos()), "sin": Value(halves.sin())},
            lambda t, x, cos, sin: t.experimental.rotary_embedding_hf(x, cos, sin),
            _rotated_by_halves,
            ONE_STEP,
        )
        pairs = angles.repeat_interleave(2, -1)[None, None]
        swap = torch.zeros(32, 32)
        swap[torch.arange(0, 32, 2), torch.arange(1, 32, 2)] = 1
        swap[torch.arange(1, 32, 2), torch.arange(0, 32, 2)] = -1
        yield Comparison(
            "experimental.rotary_embedding_llama",
            {"x": x, "cos": Value(pairs.cos()), "sin": Value(pairs.sin()), "swap": Value(swap[None, None])},
            lambda t, x, cos, sin, swap: t.experimental.rotary_embedding_llama(x, cos, sin, swap),
            _rotated_as_complex,
            ONE_STEP,
        )


def _rotated_by_halves(golden: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    tokens, half = x.shape[-2], x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos[:, :, :tokens] + turned * sin[:, :, :tokens]


def _rotated_as_complex(
    golden: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, swap: torch.Tensor
) -> torch.Tensor:
    tokens = x.shape[-2]
    turn = torch.complex(cos[:, :, :tokens, ::2].contiguous(), sin[:, :, :tokens, ::2].contiguous())
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)


def attention() -> Iterator[Comparison]:
    for number, (queries, shared, tokens, dim, stored) in enumerate(
        ((4, 2, 160, 64, "bfloat16"), (3, 3, 96, 96, "bfloat8_b"), (8, 1, 128, 32, "bfloat4_b"))
    ):
        inputs = {
            "q": Value(drawn(220 + number, 1, queries, tokens, dim)),
            "k": Value(drawn(230 + number, 1, shared, tokens, dim), stored),
            "v": Value(drawn(240 + number, 1, shared, tokens, dim), stored),
        }
        yield Comparison(
            "transformer.scaled_dot_product_attention",
            inputs,
            lambda t, q, k, v: t.transformer.scaled_dot_product_attention(q, k, v),
            lambda golden, q, k, v: golden(q, k, v, is_causal=True),
            ATTENDED,
        )
        yield Comparison(
            "transformer.scaled_dot_product_attention",
            inputs,
            lambda t, q, k, v: t.transformer.scaled_dot_product_attention(q, k, v, scale=0.2, output_concat_heads=True),
            lambda golden, q, k, v: golden(q, k, v, is_causal=True, scale=0.2).permute(0, 2, 1, 3).flatten(2)[:, None],
            ATTENDED,
        )
        for bounds in ((0, 64, 65, tokens), (0, tokens // 2, tokens)):
            yield Comparison(
                "transformer.scaled_dot_product_attention",
                {**inputs, "bounds": Value(torch.tensor(bounds), "int32", ROW_MAJOR)},
                lambda t, q, k, v, bounds: t.transformer.scaled_dot_product_attention(
                    q, k, v, cu_window_seqlens=bounds
                ),
                lambda golden, q, k, v, bounds: torch.cat(
                    [
                        golden(q[:, :, low:high], k[:, :, low:high], v[:, :, low:high], is_causal=True)
                        for low, high in zip(bounds.tolist(), bounds.tolist()[1:])
                    ],
                    2,
                ),
                ATTENDED,
            )


def windows_and_sinks() -> Iterator[Comparison]:
    """What reaches back over fewer tokens, and what shares the weights with a sink."""
    for number, (window, sunk, tokens, start, dim) in enumerate(
        (
            (1, False, 96, 64, 64),
            (31, True, 160, 32, 32),
            (32, False, 96, 128, 96),
            (48, True, 128, 0, 64),
            (200, True, 96, 128, 32),
        )
    ):
        inputs = {"q": Value(drawn(290 + number, 1, 4, tokens, dim))}
        if sunk:
            inputs["sink"] = Value(drawn(300 + number, 1, 4, 1, 1, scale=4.0))
        options = {"sliding_window_size": window, "scale": 0.25}
        sequence = {name: Value(drawn(seed + number, 1, 2, tokens, dim)) for name, seed in (("k", 310), ("v", 320))}
        yield Comparison(
            "transformer.scaled_dot_product_attention",
            {**inputs, **sequence},
            lambda t, q, k, v, sink=None, options=options: t.transformer.scaled_dot_product_attention(
                q, k, v, attention_sink=sink, **options
            ),
            lambda golden, q, k, v, sink=None, options=options: golden(q, k, v, attention_sink=sink, **options),
            ATTENDED,
        )
        cache = {name: Value(drawn(seed + number, 32, 2, 32, dim)) for name, seed in (("k", 330), ("v", 340))}
        entries = torch.randperm(32, generator=torch.Generator().manual_seed(350 + number))[None, :16]
        yield Comparison(
            "transformer.chunked_scaled_dot_product_attention",
            {
                **inputs,
                **cache,
                "table": Value(entries, "int32", ROW_MAJOR),
                "start": Value(torch.tensor([start]), "int32", ROW_MAJOR),
            },
            lambda t, q, k, v, table, start, sink=None, options=options: (
                t.transformer.chunked_scaled_dot_product_attention(
                    q, k, v, table, chunk_start_idx_tensor=start, attention_sink=sink, **options
                )
            ),
            lambda golden, q, k, v, table, start, sink=None, options=options: golden(
                q, k, v, table, chunk_start_idx_tensor=start, attention_sink=sink, **options
            ),
            ATTENDED,
        )
    sink = Value(drawn(360, 1, 8, 1, 1, scale=4.0))
    whole = {name: Value(drawn(361 + place, 2, (8, 2, 2)[place], 96, 64)) for place, name in enumerate(("q", "k", "v"))}
    yield Comparison(
        "transformer.scaled_dot_product_attention",
        {**whole, "sink": sink},
        lambda t, q, k, v, sink: t.transformer.scaled_dot_product_attention(q, k, v, attention_sink=sink),
        lambda golden, q, k, v, sink: golden(q, k, v, attention_sink=sink),
        ATTENDED,
    )


def chunks() -> Iterator[Comparison]:
    for number, (batch, block, start, stored) in enumerate(
        ((1, 32, 96, "bfloat16"), (2, 64, 128, "bfloat8_b"), (1, 128, 0, "bfloat4_b"))
    ):
        entries = torch.randperm(32, generator=torch.Generator().manual_seed(250 + number))[: batch * 8].reshape(
            batch, 8
        )
        yield Comparison(
            "transformer.chunked_scaled_dot_product_attention",
            {
                "q": Value(drawn(260 + number, batch, 4, 96, 64)),
                "k": Value(drawn(270 + number, 32, 2, block, 64), stored),
                "v": Value(drawn(280 + number, 32, 2, block, 64), stored),
                "table": Value(entries, "int32", ROW_MAJOR),
                "start": Value(torch.tensor([start]), "int32", ROW_MAJOR),
            },
            lambda t, q, k, v, table, start: t.transformer.chunked_scaled_dot_product_attention(
                q, k, v, table, chunk_start_idx_tensor=start, scale=0.125
            ),
            lambda golden, q, k, v, table, start: golden(q, k, v, table, chunk_start_idx_tensor=start, scale=0.125),
            ATTENDED,
        )

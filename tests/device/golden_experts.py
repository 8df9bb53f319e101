"""Comparisons of what routes tokens and of the experts themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import silu

from tests.device.golden_values import MOVED, ONE_STEP, ROW_MAJOR, Comparison, Value, drawn

STORED_BETWEEN = 0.03  # block floats between the products of an expert, where types are as declared
HIDDEN, WIDTH, COUNTS, STARTS = 96, 64, (64, 0, 32), (32, 32, 0)


def routing() -> Iterator[Comparison]:
    for number, dtype in enumerate(("bfloat16", "float32", "bfloat8_b")):
        yield Comparison(
            "softmax",
            {"x": Value(3 * drawn(130 + number, 1, 1, 64, 40), dtype)},
            lambda t, x: t.softmax(x, dim=-1),
            lambda golden, x: golden(x, -1),
            ONE_STEP,
        )
        yield Comparison(
            "ceil",
            {"x": Value(30 * drawn(140 + number, 1, 1, 64, 40), dtype)},
            lambda t, x: t.ceil(x),
            lambda golden, x: golden(x),
        )
    columns = torch.rand(1, 1, 32, 24, generator=torch.Generator().manual_seed(7)).argsort(-1)[..., :8]
    for dtype in ("bfloat16", "float32", "uint32"):
        whole = dtype == "uint32"
        source = torch.arange(256).reshape(1, 1, 32, 8) if whole else drawn(150, 1, 1, 32, 8)
        yield Comparison(
            "scatter",
            {
                "x": Value(torch.zeros(1, 1, 32, 24, dtype=source.dtype), dtype, ROW_MAJOR),
                "index": Value(columns, "uint16", ROW_MAJOR),
                "source": Value(source, dtype, ROW_MAJOR),
            },
            lambda t, x, index, source: t.scatter(x, -1, index, source),
            lambda golden, x, index, source: golden(x, -1, index.long(), source),
            MOVED,
        )


def experts() -> Iterator[Comparison]:
    weights = {
        f"{role}{expert}": Value(drawn(160 + 3 * expert + place, *shape) * shape[0] ** -0.5)
        for expert in range(len(COUNTS))
        for place, (role, shape) in enumerate(
            (("gate", (HIDDEN, WIDTH)), ("up", (HIDDEN, WIDTH)), ("down", (WIDTH, HIDDEN)))
        )
    }

    def call(t: Any, x: Any, **named: Any) -> Any:
        def numbers(values: tuple[int, ...]) -> Any:
            return t.from_torch(torch.tensor([values]), dtype=t.uint32, layout=t.ROW_MAJOR_LAYOUT, device=x.device())

        by_role = ([named[f"{role}{expert}"] for expert in range(len(COUNTS))] for role in ("gate", "up", "down"))
        return t.experimental.deepseek_prefill.moe_fused_swiglu(
            x,
            *by_role,
            numbers(COUNTS),
            numbers(tuple(range(len(COUNTS)))),
            dtype=t.bfloat16,
            core_grid=t.CoreCoord(2, 2),
            output=t.empty(x.shape, t.bfloat16, t.TILE_LAYOUT, device=x.device()),
            expert_region_offsets=numbers(STARTS),
            read_x_at_offset=True,
        )

    def reference(golden: Any, x: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        for expert, (count, start) in enumerate(zip(COUNTS, STARTS)):
            rows = x[start : start + count]
            inner = silu(rows @ named[f"gate{expert}"]) * (rows @ named[f"up{expert}"])
            result[start : start + count] = inner @ named[f"down{expert}"]
        return result

    placed = {"x": Value(drawn(159, sum(COUNTS), HIDDEN), "bfloat16", ROW_MAJOR)}
    yield Comparison(
        "experimental.deepseek_prefill.moe_fused_swiglu", placed | weights, call, reference, STORED_BETWEEN
    )
    yield Comparison(
        "experimental.deepseek_prefill.post_combine_reduce",
        {
            "x": Value(drawn(180, 1, 1, 64, 3, 96), "bfloat16", ROW_MAJOR),
            "shares": Value(drawn(181, 1, 1, 64, 3, 1), "bfloat16", ROW_MAJOR),
        },
        lambda t, x, shares: t.experimental.deepseek_prefill.post_combine_reduce(x, shares),
        lambda golden, x, shares: (x * shares).sum(3),
        0.01,  # every sum is stored in bfloat16
    )

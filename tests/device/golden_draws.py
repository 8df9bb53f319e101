"""Comparisons of drawing a token, given the random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from tests.device.golden_values import ROW_MAJOR, Comparison, Value, drawn, indices


def draws() -> Iterator[Comparison]:
    """Seeded by number and by rows: each row's threshold is the first number of the generator of its seed."""
    for seed in range(40):
        generator = torch.Generator().manual_seed(300 + seed)
        yield Comparison(
            "sampling",
            {
                "values": Value(drawn(310 + seed, 1, 1, 32, 32, scale=2)),
                "indices": Value(indices(320 + seed, 50000, 1, 1, 32, 32), "uint32", ROW_MAJOR),
                "k": Value(torch.randint(1, 33, (32,), generator=generator), "uint32", ROW_MAJOR),
                "p": Value(torch.rand(32, generator=generator), "bfloat16", ROW_MAJOR),
                "temp": Value(torch.rand(32, generator=generator) * 2 + 0.1, "bfloat16", ROW_MAJOR),
            },
            lambda t, values, indices, k, p, temp, seed=seed: t.sampling(values, indices, k, p, temp, seed=seed),
            lambda golden, seed=seed, **inputs: _chosen(seed, **inputs),
        )
    for seed in range(10):
        yield Comparison(
            "manual_seed",
            {
                "seeds": Value(torch.arange(32) + seed, "uint32", ROW_MAJOR),
                "users": Value(torch.arange(32), "uint32", ROW_MAJOR),
            },
            lambda t, seeds, users: _drawn_after(t, seeds, users),
            lambda golden, seeds, users: torch.cat(
                [_thresholds(int(seed), 1).mul(32).floor().long() for seed in seeds]
            ).reshape(1, 1, 1, -1),
        )


def _drawn_after(t: Any, seeds: Any, users: Any) -> Any:
    """One draw among 32 equally likely candidates, each named by its number, after rows were seeded."""
    device = seeds.device()
    t.manual_seed(seeds, device=device, user_ids=users)

    def tensor(values: torch.Tensor, dtype: Any, layout: Any = t.ROW_MAJOR_LAYOUT) -> Any:
        return t.from_torch(values, dtype=dtype, layout=layout, device=device)

    return t.sampling(
        tensor(torch.zeros(1, 1, 32, 32), t.bfloat16, t.TILE_LAYOUT),
        tensor(torch.arange(32).expand(1, 1, 32, 32), t.uint32),
        tensor(torch.full((32,), 32), t.uint32),
        tensor(torch.ones(32), t.bfloat16),
        tensor(torch.ones(32), t.bfloat16),
    )


def _thresholds(seed: int, rows: int) -> torch.Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _chosen(seed: int, values, indices, k, p, temp) -> torch.Tensor:
    """Row by row: softmax of the k largest, cut behind the first whose running sum exceeds p, drawn by its running sum."""
    result = []
    for row, threshold in enumerate(_thresholds(seed, values.shape[-2]).tolist()):
        scores = values[0, 0, row].double().tolist()
        ordered = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: int(k[row])]
        weights = [math.exp((scores[place] - scores[ordered[0]]) * float(temp[row])) for place in ordered]
        shares = [weight / math.fsum(weights) for weight in weights]
        kept, reached = [], 0.0
        for place, share in zip(ordered, shares):
            kept.append((place, share))
            reached += share
            if reached > float(p[row]):
                break
        running, choice = 0.0, kept[0][0]
        for place, share in kept:
            running += share / reached
            if running > threshold:
                choice = place
                break
        result.append(int(indices[0, 0, row, choice]))
    return torch.tensor(result).reshape(1, 1, 1, -1)

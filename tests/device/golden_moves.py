"""Comparisons of what moves, picks and splits values: exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.device.golden_values import ROW_MAJOR, TILE, Comparison, Value, distinct, drawn, indices


def moves() -> Iterator[Comparison]:
    for dtype in ("bfloat16", "float32", "bfloat8_b"):
        wide = {"x": Value(drawn(1, 2, 3, 64, 96), dtype)}
        yield Comparison(
            "unsqueeze_to_4D",
            {"x": Value(drawn(2, 3, 64, 96), dtype)},
            lambda t, x: t.unsqueeze_to_4D(x),
            lambda golden, x: golden(x),
        )
        yield Comparison(
            "reshape", wide, lambda t, x: t.reshape(x, (1, 1, 384, 96)), lambda golden, x: golden(x, (1, 1, 384, 96))
        )
        yield Comparison("transpose", wide, lambda t, x: t.transpose(x, 0, 1), lambda golden, x: golden(x, 0, 1))
        ends = ((0, 1, 32, 0), (2, 3, 64, 96))
        yield Comparison("slice", wide, lambda t, x: t.slice(x, *ends), lambda golden, x: golden(x, *ends))
        yield Comparison(
            "to_layout", wide, lambda t, x: t.to_layout(x, t.ROW_MAJOR_LAYOUT), lambda golden, x: golden(x)
        )
    inside = ((0, 1, 5, 17), (2, 3, 63, 96))
    for dtype in ("bfloat16", "bfloat8_b"):  # a slice inside tiles of block floats comes back as bfloat16
        inputs = {"x": Value(drawn(3, 2, 3, 64, 96), dtype)}
        yield Comparison("slice", inputs, lambda t, x: t.slice(x, *inside), lambda golden, x: golden(x, *inside))


def look_ups() -> Iterator[Comparison]:
    for table in (Value(drawn(4, 160, 96), "bfloat16", ROW_MAJOR), Value(drawn(4, 160, 96), "bfloat8_b")):
        yield Comparison(
            "embedding",
            {"ids": Value(indices(5, 160, 3, 128), "uint32", ROW_MAJOR), "table": table},
            lambda t, ids, table: t.embedding(ids, table, layout=t.TILE_LAYOUT),
            lambda golden, ids, table: golden(ids, table),
        )
    for index in ("uint32", "uint16"):
        yield Comparison(
            "gather",
            {"x": Value(drawn(6, 1, 1, 64, 320), "float32"), "index": Value(indices(7, 320, 1, 1, 64, 32), index)},
            lambda t, x, index: t.gather(x, -1, index),
            lambda golden, x, index: golden(x, -1, index),
        )
    for dtype, layout in (("bfloat16", ROW_MAJOR), ("float32", ROW_MAJOR), ("bfloat16", TILE)):
        yield Comparison(
            "argmax",
            {"x": Value(distinct(8, 1, 1, 64, 352), dtype, layout)},
            lambda t, x: t.argmax(x, dim=-1, keepdim=True),
            lambda golden, x: golden(x, dim=-1, keepdim=True),
        )
    for dtype in ("bfloat16", "float32"):
        yield Comparison(
            "topk",
            {"x": Value(distinct(9, 1, 1, 64, 352), dtype)},
            lambda t, x: t.topk(x, 32, -1),
            lambda golden, x: golden(x, 32, -1),
        )


def heads() -> Iterator[Comparison]:
    for number, (queries, shared, dim) in enumerate(((8, 2, 64), (3, 3, 32), (4, 1, 128))):
        fused = drawn(10 + number, 2, 1, 96, (queries + 2 * shared) * dim)

        def split(golden: Any, x: torch.Tensor, queries=queries, shared=shared, dim=dim) -> list[torch.Tensor]:
            parts, first = [], 0
            for count in (queries, shared, shared):
                columns = range(first, first + count * dim, dim)
                parts.append(torch.stack([x[:, 0, :, low : low + dim] for low in columns], 1))
                first += count * dim
            return parts

        yield Comparison(
            "experimental.nlp_create_qkv_heads",
            {"x": Value(fused)},
            lambda t, x, queries=queries, shared=shared: t.experimental.nlp_create_qkv_heads(
                x, num_heads=queries, num_kv_heads=shared, transpose_k_heads=False
            ),
            split,
        )
        yield Comparison(
            "experimental.nlp_concat_heads",
            {"x": Value(drawn(20 + number, 2, queries, 96, dim))},
            lambda t, x: t.experimental.nlp_concat_heads(x),
            lambda golden, x: torch.cat([x[:, head] for head in range(x.shape[1])], -1)[:, None],
        )


def caches() -> Iterator[Comparison]:
    for number, (block, dtype) in enumerate(((32, "bfloat16"), (64, "bfloat8_b"), (16, "bfloat16"))):
        tokens = 192
        pages = tokens // block
        entries = torch.randperm(40, generator=torch.Generator().manual_seed(30 + number))[: 2 * pages].reshape(
            2, pages
        )
        entries[1, 1] = -1

        def filled(golden: Any, cache: torch.Tensor, new: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            size = cache.shape[2]
            result = cache.clone()
            for token in range(new.shape[2]):
                page = int(table[1, token // size])
                if page >= 0:
                    result[page, :, token % size] = new[0, :, token]
            return result

        yield Comparison(
            "experimental.paged_fill_cache",
            {
                "cache": Value(drawn(40 + number, 40, 2, block, 64), dtype),
                "new": Value(drawn(50 + number, 1, 2, tokens, 64), dtype),
                "table": Value(entries, "int32", ROW_MAJOR),
            },
            lambda t, cache, new, table: t.experimental.paged_fill_cache(cache, new, table, batch_idx=1),
            filled,
        )

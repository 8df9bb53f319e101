"""Generated calls of attention and of the writing of its cache."""

from __future__ import annotations

from typing import Any

from tests.support.generated_cases import (
    BF4,
    BF8,
    BF16,
    DRAM,
    F32,
    FLOATS,
    I32,
    L1,
    ROW_MAJOR,
    TILE,
    U16,
    U32,
    Call,
    Draw,
    Made,
    Operand,
)


def _program(draw: Draw, dim: int) -> Made:
    chunks = (32, 64, 96, 128, 256, 512)
    fields = {
        "compute_with_storage_grid_size": draw.mostly((8, 8), (4, 4), (1, 1), (9, 8), (11, 10), (0, 0), often=0.85),
        "q_chunk_size": draw.mostly(draw.choice(chunks), 0, 16, 33, 48, often=0.93),
        "k_chunk_size": draw.mostly(draw.choice(chunks), 0, 16, 33, 48, often=0.93),
        "exp_approx_mode": draw.mostly(False, True, None),
    }
    return Made("SDPAProgramConfig", fields)


def _options(draw: Draw, dim: int) -> dict[str, Any]:
    return {
        **draw.maybe("scale", lambda: draw.mostly(0.125, 0.25, 1, 0.1, 128**-0.5, None, often=0.7), 0.8),
        **draw.memory(),
        **draw.maybe("program_config", lambda: _program(draw, dim), 0.75),
        **draw.maybe("compute_kernel_config", draw.compute, 0.6),
    }


def _window_and_sink(draw: Draw, heads: int) -> dict[str, Any]:
    shape = draw.mostly(
        (1, heads, 1, 1), (1, heads, 1, 32), (1, 1, 1, heads), (heads, 32), (1, heads + 1, 1, 1), often=0.8
    )
    window = draw.choice((1, 31, 32, 48, 64, 128, 200, 1024))
    return {
        **draw.maybe(
            "sliding_window_size", lambda: draw.mostly(window, 0, None, True, -1, 2**31, 2**32, 1.0, often=0.8), 0.35
        ),
        **draw.maybe(
            "attention_sink",
            lambda: Operand(
                shape, draw.mostly(BF16, BF8, BF4, F32), draw.mostly(TILE, ROW_MAJOR), draw.mostly(DRAM, L1)
            ),
            0.35,
        ),
    }


def _heads(draw: Draw) -> tuple[int, int, int]:
    """Query heads, key-value heads and the width of a head."""
    shared = draw.choice((1, 2, 3))
    heads = draw.mostly(shared * draw.choice((1, 2, 4)), shared + 1, often=0.93)
    return heads, shared, draw.mostly(64, 32, 96, 128, 80, 256, 512, often=0.5)


def attention(draw: Draw) -> Call:
    (heads, shared, dim), tokens = _heads(draw), draw.tiles(8)
    batch = draw.mostly(1, 2, 3, often=0.75)
    length = draw.mostly(tokens, tokens + 32, often=0.96)
    stored = draw.dtype(BF16, BF8, BF4)
    key = Operand((batch, shared, length, dim), stored, TILE, draw.mostly(DRAM, L1))
    arguments = {
        "q": Operand((batch, heads, tokens, dim), draw.dtype(BF16, BF8), TILE, draw.mostly(DRAM, L1)),
        "k": key,
        "v": Operand(key.shape, draw.mostly(stored, BF16, BF8), TILE, draw.mostly(DRAM, L1)),
        **draw.maybe("is_causal", lambda: draw.mostly(True, False), 0.8),
        **_options(draw, dim),
        **draw.maybe("output_concat_heads", lambda: draw.mostly(True, False), 0.3),
        **_window_and_sink(draw, heads),
    }
    if draw.random() < 0.3:
        if draw.random() < 0.85:
            for name in ("sliding_window_size", "attention_sink"):
                arguments.pop(name, None)
        windows = draw.choice([count for count in (1, 2, 4) if count <= tokens])
        bounds = (*range(0, tokens - tokens % windows, tokens // windows), tokens)
        bounds = bounds if len(bounds) == windows + 1 else (0, tokens)
        kind = draw.mostly(I32, U32, U16, BF16)
        arguments["cu_window_seqlens"] = Operand((len(bounds),), kind, ROW_MAJOR, draw.mostly(DRAM, L1), bounds)
    return Call("transformer.scaled_dot_product_attention", ("q", "k", "v"), arguments)


def chunked_attention(draw: Draw) -> Call:
    (heads, shared, dim), tokens = _heads(draw), draw.mostly(32 * draw.randint(1, 4), 31, 100, 129, 256)
    batch, block, pages = draw.mostly(1, 2), draw.choice((32, 64, 128, 16)), draw.mostly(8, 16, 24, 9, 4, often=0.6)
    cache = Operand((32, shared, block, dim), draw.dtype(BF16, BF8, BF4), TILE, DRAM)
    table = Operand(
        (draw.mostly(batch, batch + 1, often=0.96), pages), draw.mostly(I32, U32), ROW_MAJOR, draw.mostly(DRAM, L1)
    )
    arguments = {
        "q": Operand((batch, heads, tokens, dim), draw.dtype(BF16, BF8), TILE, draw.mostly(DRAM, L1)),
        "k": cache,
        "v": cache,
        "page_table": table,
    }
    kind = draw.mostly("number", "tensor", "both", "none", often=0.5)
    if kind in ("tensor", "both"):
        start = Operand((1,), draw.mostly(I32, U32), draw.mostly(ROW_MAJOR, TILE), draw.mostly(DRAM, L1))
        arguments["chunk_start_idx_tensor"] = start
    if kind in ("number", "both"):
        arguments["chunk_start_idx"] = draw.mostly(
            draw.choice((0, 128, 256)), 32, 64, 16, 16, 16, -128, 4096, often=0.7
        )
    operation = "transformer.chunked_scaled_dot_product_attention"
    arguments |= {**_options(draw, dim), **_window_and_sink(draw, heads)}
    return Call(operation, ("q", "k", "v", "page_table"), arguments)


ENTRIES = tuple(number % 16 for number in range(64))  # no two of one row are equal, and all are in the smaller cache


def fill_cache(draw: Draw) -> Call:
    block, heads, dim = (
        draw.mostly(32, 16, 64, 128, 40, often=0.6),
        draw.choice((1, 2, 3)),
        draw.mostly(64, 32, 128, 80),
    )
    tokens = draw.mostly(block * draw.randint(1, 4), 31, 33, 96, often=0.85)
    rows, pages = draw.choice((1, 1, 2)), max(1, -(-tokens // block)) + draw.mostly(0, 1, 5, -1, often=0.7)
    stored = draw.dtype(*FLOATS)
    table = (rows, max(pages, 1))
    arguments = {
        "cache": Operand((draw.choice((16, 32)), heads, block, dim), stored, TILE, draw.mostly(DRAM, L1)),
        "input": Operand(
            (1, heads, tokens, dim), draw.mostly(stored, BF16, BF8, often=0.93), TILE, draw.mostly(DRAM, L1)
        ),
        "page_table": Operand(table, draw.mostly(I32, U32, U16, often=0.93), ROW_MAJOR, draw.mostly(DRAM, L1), ENTRIES),
        **draw.maybe("batch_idx", lambda: draw.mostly(rows - 1, 0, rows, -1, True, 1.0, often=0.8), 0.7),
    }
    return Call("experimental.paged_fill_cache", ("cache", "input", "page_table"), arguments)

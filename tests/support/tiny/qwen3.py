"""Qwen3: normed heads, wider than hidden / query heads; of 96 they are reordered, and the norms with them."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.base import BASE, WINDOW, YARN

KIND = "Qwen3"
GEOMETRIES = {
    "qwen3": replace(
        BASE,
        query_key_norm=True,
        norm_epsilon=1e-6,
        head_dim=64,
        rope=replace(BASE.rope, theta=1000000.0, dimensions=64),
    ),
    "qwen3-heads-of-96": replace(BASE, query_key_norm=True, head_dim=96, rope=replace(BASE.rope, dimensions=96)),
}
VARIATIONS = {
    "qwen3-yarn-not-truncated": replace(
        BASE, query_key_norm=True, head_dim=64, rope=replace(YARN, dimensions=64, truncate=False, attention_factor=1.3)
    ),
}
WINDOWED = {
    "qwen3-upper-layers-windowed": replace(
        BASE, query_key_norm=True, layers=3, sliding_window=WINDOW, full_attention_layers=(0, 1)
    ),
}

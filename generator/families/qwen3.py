"""Qwen3, dense: the width of all query heads is free of the hidden width."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen3",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear", "yarn"),
    options=("sliding_window",),
)

"""Qwen3 with a mixture of experts in every layer: attention as in the dense models."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen3_moe",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear", "yarn"),
    experts="qwen3_moe",
    options=("sliding_window",),
)

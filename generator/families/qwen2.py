"""Qwen2 and Qwen2.5: the published code adds the three biases whatever the configuration says."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen2",
    query_key_value_bias=True,
    query_key_norm=False,
    rope_kinds=("default", "linear", "yarn"),
    options=("sliding_window",),
)

"""Mistral: v0.1 has a sliding window on all layers, later versions have none."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="mistral",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "linear", "yarn"),
    options=("sliding_window",),
)

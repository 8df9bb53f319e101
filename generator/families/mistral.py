"""Mistral from v0.2 on: the versions whose attention has no sliding window."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="mistral",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "linear", "yarn"),
)

"""Seed-OSS: Llama's form with biases on query, key and value, and heads whose width is free of the hidden width."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="seed_oss",
    query_key_value_bias=True,
    query_key_norm=False,
    rope_kinds=("default", "linear", "yarn"),
)

"""Llama 3.x and models of the same form (SmolLM2, Falcon3, distillations)."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="llama",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "linear", "llama3", "yarn"),
)

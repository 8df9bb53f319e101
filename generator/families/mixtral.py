"""Mixtral: Mistral's attention, and experts whose weights always sum to one."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="mixtral",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "linear", "yarn"),
    experts="mixtral",
    options=("sliding_window",),
    renormalises=True,
)

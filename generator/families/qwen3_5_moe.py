"""Qwen3.5 with experts, which are published in one tensor, and one beside them that every token sees."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen3_5_moe",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear", "yarn"),
    partial_rotary=True,
    unit_offset_norms=True,
    experts="qwen3_5_moe",
    renormalises=True,
    gated_delta_net="split",
    attention_gate=True,
    shared_expert=True,
)

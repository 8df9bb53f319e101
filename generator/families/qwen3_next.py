"""Qwen3-Next: three layers of linear attention to one of gated full attention, experts with one that every token sees."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen3_next",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear", "yarn"),
    partial_rotary=True,
    unit_offset_norms=True,
    experts="qwen3_moe",
    gated_delta_net="interleaved",
    attention_gate=True,
    shared_expert=True,
)

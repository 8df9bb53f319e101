"""Qwen3.5, dense: three layers of linear attention to one of gated full attention."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="qwen3_5",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear", "yarn"),
    partial_rotary=True,
    unit_offset_norms=True,
    gated_delta_net="split",
    attention_gate=True,
)

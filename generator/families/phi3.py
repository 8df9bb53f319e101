"""Phi-3.5, Phi-4 and Phi-4-mini: fused checkpoint tensors, and a rotary embedding that may turn a part of each head and
depend on the length of the prompt. Their published windows are as wide as the context, but for Phi-3-mini-4k's.
"""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="phi3",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "longrope"),
    partial_rotary=True,
    fused_projections=True,
    options=("sliding_window",),
)

"""Gemma 3, text: layers with a window turn their heads by a rotary embedding of their own."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="gemma3",
    query_key_value_bias=False,
    query_key_norm=True,
    rope_kinds=("default", "linear"),
    activation="gelu_tanh",
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
    options=("sliding_window", "local_rope", "query_scale", "logit_soft_cap"),
)

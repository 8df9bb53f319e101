"""Gemma 2: scores have a soft cap, which no attention operation takes, so that they are explicit and a prompt is one pass."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="gemma2",
    query_key_value_bias=False,
    query_key_norm=False,
    rope_kinds=("default", "linear"),
    activation="gelu_tanh",
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
    options=("sliding_window", "query_scale", "attention_soft_cap", "logit_soft_cap"),
)

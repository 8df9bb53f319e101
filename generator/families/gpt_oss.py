"""gpt-oss: biases everywhere, attention sinks, windows on every other layer, and experts with a clamped gate."""

from __future__ import annotations

from generator.families.family import Family

FAMILY = Family(
    name="gpt_oss",
    query_key_value_bias=True,
    query_key_norm=False,
    rope_kinds=("default", "yarn"),
    attention_sinks=True,
    attention_output_bias=True,
    options=("sliding_window",),
    experts="gpt_oss",
    renormalises=True,
    expert_biases=True,
    expert_activation="swiglu_oai",
)

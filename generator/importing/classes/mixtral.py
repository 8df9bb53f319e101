"""Mixtral."""

from __future__ import annotations

from generator.importing.config_class import EVERY_LAYER, ConfigClass, ExpertKeys, sizes

ROWS = (
    ConfigClass(
        "mixtral",
        "MixtralConfig",
        "MixtralForCausalLM",
        "mixtral",
        sizes(
            32000,
            4096,
            14336,
            131072,
            1e-5,
            num_key_value_heads=8,
            head_dim=None,
            sliding_window=None,
            rope_theta=1000000.0,
            num_local_experts=8,
            num_experts_per_tok=2,
        ),
        window=EVERY_LAYER,
        experts=ExpertKeys(("num_local_experts",), "intermediate_size"),
    ),
)

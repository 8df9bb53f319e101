"""Seed-OSS. The class has a key for each bias; the published models have those of query, key and value and no other."""

from __future__ import annotations

from generator.importing.config_class import ConfigClass, sizes

ROWS = (
    ConfigClass(
        "seed_oss",
        "SeedOssConfig",
        "SeedOssForCausalLM",
        "seed_oss",
        sizes(
            155136,
            4096,
            27648,
            524288,
            1e-6,
            num_hidden_layers=64,
            num_attention_heads=80,
            num_key_value_heads=8,
            head_dim=128,
            attention_bias=True,
            attention_out_bias=False,
            mlp_bias=False,
        ),
        fixed=("attention_bias", "attention_out_bias", "mlp_bias"),
        harmless=frozenset({"residual_dropout"}),
    ),
)

"""Phi 3, 3.5 and 4."""

from __future__ import annotations

from generator.importing.config_class import EVERY_LAYER, ConfigClass, sizes

ROWS = (
    ConfigClass(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        "phi3",
        sizes(
            32064,
            3072,
            8192,
            4096,
            1e-5,
            num_key_value_heads=None,
            head_dim=None,
            sliding_window=None,
            original_max_position_embeddings=4096,
        ),
        window=EVERY_LAYER,
        partial_rotary=True,
        rope_names={"su": "longrope", "yarn": "longrope"},
    ),
)

"""Mistral, alone and as the text model of Mistral 3 with images."""

from __future__ import annotations

from generator.importing.config_class import EVERY_LAYER, ConfigClass, Wrapper, sizes

ROWS = (
    ConfigClass(
        "mistral",
        "MistralConfig",
        "MistralForCausalLM",
        "mistral",
        sizes(32000, 4096, 14336, 131072, 1e-6, num_key_value_heads=8, head_dim=None, sliding_window=4096),
        window=EVERY_LAYER,
    ),
    Wrapper("mistral3", "Mistral3Config", "Mistral3ForConditionalGeneration", "mistral"),
)

"""Qwen3, dense."""

from __future__ import annotations

from generator.importing.classes.qwen2 import WINDOW
from generator.importing.config_class import UPPER_LAYERS, ConfigClass, sizes

ROWS = (
    ConfigClass(
        "qwen3",
        "Qwen3Config",
        "Qwen3ForCausalLM",
        "qwen3",
        sizes(151936, 4096, 22016, 32768, 1e-6, num_key_value_heads=32, head_dim=128, **WINDOW),
        window=UPPER_LAYERS,
        null_head_dim=False,
    ),
)

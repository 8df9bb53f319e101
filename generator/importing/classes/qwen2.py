"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from generator.importing.config_class import UPPER_LAYERS, ConfigClass, sizes

WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
ROWS = (
    ConfigClass(
        "qwen2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        "qwen2",
        sizes(151936, 4096, 22016, 32768, 1e-6, num_key_value_heads=32, head_dim=None, **WINDOW),
        window=UPPER_LAYERS,
    ),
)

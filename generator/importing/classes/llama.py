"""Llama 3.x and models of the same form."""

from __future__ import annotations

from generator.importing.config_class import ConfigClass, sizes

ROWS = (
    ConfigClass(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        "llama",
        sizes(32000, 4096, 11008, 2048, 1e-6, num_key_value_heads=None, head_dim=None),
    ),
)

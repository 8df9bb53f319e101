"""Qwen3.5, dense, as a text model and within the model with images."""

from __future__ import annotations

from generator.importing.classes.qwen3_next import LATER_TOKENS, LINEAR_ATTENTION, STATED
from generator.importing.config_class import ConfigClass, Wrapper, sizes

IMAGES = frozenset({"vision_config"})  # what the model around the text model has besides
TOKENS = frozenset({"vision_start_token_id", "vision_end_token_id"})

ROWS = (
    ConfigClass(
        "qwen3_5_text",
        "Qwen3_5TextConfig",
        "Qwen3_5ForCausalLM",
        "qwen3_5",
        sizes(
            248320,
            4096,
            12288,
            32768,
            1e-6,
            num_attention_heads=16,
            num_key_value_heads=4,
            head_dim=256,
            attention_bias=False,
            **LINEAR_ATTENTION,
        ),
        null_head_dim=False,
        partial_rotary=True,
        rotary_share=0.25,
        every=4,
        linear_attention=True,
        fixed=("attention_bias",),
        stated=STATED,
        sections=True,
        harmless=LATER_TOKENS | TOKENS,
    ),
    Wrapper("qwen3_5", "Qwen3_5Config", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", IMAGES),
)

"""Qwen3.5 with experts, as a text model and within the model with images."""

from __future__ import annotations

from generator.importing.classes.qwen3_5 import IMAGES, TOKENS
from generator.importing.classes.qwen3_next import LATER_TOKENS, LINEAR_ATTENTION, STATED, TRAINING
from generator.importing.config_class import SHARED, ConfigClass, ExpertKeys, Wrapper

ROWS = (
    ConfigClass(
        "qwen3_5_moe_text",
        "Qwen3_5MoeTextConfig",
        "Qwen3_5MoeForCausalLM",
        "qwen3_5_moe",
        {
            "vocab_size": 248320,
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            **SHARED,
            **LINEAR_ATTENTION,
            "attention_bias": False,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
        null_head_dim=False,
        partial_rotary=True,
        rotary_share=0.25,
        every=4,
        linear_attention=True,
        experts=ExpertKeys(
            ("num_experts",),
            "moe_intermediate_size",
            some_layers=True,
            shared="shared_expert_intermediate_size",
        ),
        fixed=("attention_bias",),
        stated={**STATED, "norm_topk_prob": (True,)},
        sections=True,
        harmless=LATER_TOKENS | TOKENS | TRAINING,
    ),
    Wrapper("qwen3_5_moe", "Qwen3_5MoeConfig", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", IMAGES),
)

"""gpt-oss."""

from __future__ import annotations

from generator.importing.config_class import PATTERN, SHARED, ConfigClass, ExpertKeys

ROWS = (
    ConfigClass(
        "gpt_oss",
        "GptOssConfig",
        "GptOssForCausalLM",
        "gpt_oss",
        {
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            **SHARED,
            "rope_theta": 150000.0,
            "sliding_window": 128,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "attention_bias": True,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        window=PATTERN,
        every=2,
        experts=ExpertKeys(("num_local_experts", "num_experts"), "intermediate_size", also=("experts_per_token",)),
        rope={
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        fixed=("attention_bias", "swiglu_alpha", "swiglu_limit"),
    ),
)

"""Gemma 2."""

from __future__ import annotations

from generator.importing.config_class import DEFAULT_THETA, GELU_TANH, PATTERN, ConfigClass

ROWS = (
    ConfigClass(
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        "gemma2",
        {
            "vocab_size": 256000,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "rope_theta": DEFAULT_THETA,
            "sliding_window": 4096,
            "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        window=PATTERN,
        null_head_dim=False,
        every=2,
        activation="hidden_activation",
        activations=GELU_TANH,
        scores={
            "query_scale": "query_pre_attn_scalar",
            "attention_soft_cap": "attn_logit_softcapping",
            "logit_soft_cap": "final_logit_softcapping",
        },
    ),
)

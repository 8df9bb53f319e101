"""Gemma 3, as a text model and within the model with images."""

from __future__ import annotations

from generator.importing.config_class import DEFAULT_THETA, GELU_TANH, PATTERN, ConfigClass, Wrapper

ROWS = (
    ConfigClass(
        "gemma3_text",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        "gemma3",
        {
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": DEFAULT_THETA,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "query_pre_attn_scalar": 256,
            "final_logit_softcapping": None,
        },
        window=PATTERN,
        null_head_dim=False,
        every=6,
        local_rope=True,
        activation="hidden_activation",
        activations=GELU_TANH,
        scores={"query_scale": "query_pre_attn_scalar", "logit_soft_cap": "final_logit_softcapping"},
    ),
    Wrapper("gemma3", "Gemma3Config", "Gemma3ForConditionalGeneration", "gemma3_text"),
)

"""Qwen3 with experts."""

from __future__ import annotations

from generator.importing.config_class import LAYERS_IF_USED, ConfigClass, ExpertKeys, sizes

ROWS = (
    ConfigClass(
        "qwen3_moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        sizes(
            151936,
            2048,
            6144,
            32768,
            1e-6,
            num_hidden_layers=24,
            num_key_value_heads=4,
            head_dim=None,
            use_sliding_window=False,
            sliding_window=4096,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            norm_topk_prob=False,
            decoder_sparse_step=1,
        ),
        window=LAYERS_IF_USED,
        experts=ExpertKeys(("num_experts", "num_local_experts"), "moe_intermediate_size", "norm_topk_prob", True),
    ),
)

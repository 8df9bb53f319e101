"""Qwen3-Next: linear attention, experts, and one that sees every token."""

from __future__ import annotations

from typing import Any

from generator.importing.config_class import SHARED, ConfigClass, ExpertKeys

LINEAR_ATTENTION: dict[str, Any] = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
# Keys that the classes of transformers do not know: it computes what these values say, and so do we.
STATED = {
    "attn_output_gate": (True,),
    "output_gate_type": ("swish", "silu"),
    "mamba_ssm_dtype": ("float32",),
}
LATER_TOKENS = frozenset({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"})  # layers that guess further tokens
TRAINING = frozenset({"output_router_logits", "router_aux_loss_coef"})

ROWS = (
    ConfigClass(
        "qwen3_next",
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        "qwen3_next",
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            **SHARED,
            **LINEAR_ATTENTION,
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "norm_topk_prob": True,
        },
        null_head_dim=False,
        partial_rotary=True,
        rotary_share=0.25,
        every=4,
        linear_attention=True,
        experts=ExpertKeys(
            ("num_experts",),
            "moe_intermediate_size",
            "norm_topk_prob",
            some_layers=True,
            shared="shared_expert_intermediate_size",
        ),
        fixed=("attention_bias",),
        stated=STATED,
        harmless=LATER_TOKENS | TRAINING,
    ),
)

"""A geometry as the configuration that transformers builds a model from."""

from __future__ import annotations

from typing import Any

from runtime.tables import Geometry, Rope
from runtime.verification.joined_experts import model_options

PUBLISHED_ROPE = {  # what a published configuration states of each kind, by our names for it
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_frequency_factor": "low_freq_factor",
        "high_frequency_factor": "high_freq_factor",
        "original_context": "original_max_position_embeddings",
    },
    "yarn": {
        "factor": "factor",
        "original_context": "original_max_position_embeddings",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "truncate": "truncate",
        "attention_factor": "attention_factor",
    },
    "longrope": {
        "original_context": "original_max_position_embeddings",
        "short_factors": "short_factor",
        "long_factors": "long_factor",
        "attention_factor": "attention_factor",
    },
}
OF_TEXT = ("Gemma3", "Qwen3_5", "Qwen3_5Moe")  # whose text model has a configuration of its own


def published_rope(rope: Rope, head_dim: int) -> dict[str, Any]:
    """A rotary embedding as `rope_parameters` of a published configuration."""
    stated = {theirs: getattr(rope, ours) for ours, theirs in PUBLISHED_ROPE[rope.kind].items()}
    stated |= {"rope_type": rope.kind, "rope_theta": rope.theta, "partial_rotary_factor": rope.dimensions / head_dim}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()}


def published_kind(geometry: Geometry) -> str:
    """The name, before Config and ForCausalLM, of a class of transformers that computes what a geometry says."""
    if geometry.gated_delta_net is not None:
        if geometry.gated_delta_net.published == "interleaved":
            return "Qwen3Next"
        return "Qwen3_5" if geometry.experts is None else "Qwen3_5Moe"
    if geometry.experts is not None:
        return model_options(geometry.experts)[0]
    if geometry.sandwich_norms:
        return "Gemma3" if geometry.query_key_norm else "Gemma2"
    if geometry.fused_projections:
        return "Phi3"
    if geometry.query_key_norm:
        return "Qwen3"
    if geometry.query_key_value_bias:
        return "Qwen2"
    return "Mistral" if geometry.sliding_window else "Llama"


def published_config(transformers: Any, kind: str, geometry: Geometry, **more: Any) -> Any:
    """The configuration of a class, with eager attention. `more` are further keys."""
    of_experts = model_options(geometry.experts)[1] if geometry.experts is not None else {}
    config_class = getattr(transformers, f"{kind}TextConfig" if kind in OF_TEXT else f"{kind}Config")
    return config_class(
        vocab_size=geometry.vocabulary,
        hidden_size=geometry.hidden,
        num_hidden_layers=geometry.layers,
        num_attention_heads=geometry.query_heads,
        num_key_value_heads=geometry.key_value_heads,
        head_dim=geometry.head_dim,
        rms_norm_eps=geometry.norm_epsilon,
        tie_word_embeddings=geometry.tied_embeddings,
        **_rotary(kind, geometry),
        **_windows(config_class, geometry),
        **_scores(kind, geometry),
        **_linear_attention(geometry),
        **{"intermediate_size": geometry.intermediate, **of_experts},
        attn_implementation="eager",
        **more,
    )


def _rotary(kind: str, geometry: Geometry) -> dict[str, Any]:
    rope = published_rope(geometry.rope, geometry.head_dim)
    if kind == "Gemma3":
        local = published_rope(geometry.local_rope or geometry.rope, geometry.head_dim)
        return {"rope_parameters": {"full_attention": rope, "sliding_attention": local}}
    if kind == "Phi3":
        # the default of pad_token_id is a token of the published vocabulary
        options = {"original_max_position_embeddings": geometry.rope.original_context or 4096, "pad_token_id": None}
        return {"rope_parameters": rope, **options}
    return {"rope_parameters": rope}


def _windows(config_class: Any, geometry: Geometry) -> dict[str, Any]:
    """Which layers have a window or are linear attention, by the keys that the class has."""

    def kind(layer: int) -> str:
        if geometry.is_recurrent(layer):
            return "linear_attention"
        return "sliding_attention" if geometry.window(layer) else "full_attention"

    types = [kind(layer) for layer in range(geometry.layers)]
    keys = {
        "sliding_window": geometry.sliding_window or None,
        "use_sliding_window": bool(geometry.sliding_window),
        "layer_types": types,
    }
    known = vars(config_class())
    return {name: value for name, value in keys.items() if name in known}


def _scores(kind: str, geometry: Geometry) -> dict[str, Any]:
    if kind not in ("Gemma2", "Gemma3"):
        return {}
    return {
        "query_pre_attn_scalar": geometry.query_scale or geometry.head_dim,
        "attn_logit_softcapping": geometry.attention_soft_cap or None,
        "final_logit_softcapping": geometry.logit_soft_cap or None,
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _linear_attention(geometry: Geometry) -> dict[str, Any]:
    net = geometry.gated_delta_net
    if net is None:
        return {}
    return {
        "linear_num_key_heads": net.key_heads,
        "linear_num_value_heads": net.value_heads,
        "linear_key_head_dim": net.key_dim,
        "linear_value_head_dim": net.value_dim,
        "linear_conv_kernel_dim": net.kernel,
    }

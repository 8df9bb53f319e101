"""Models of another kind than the families built here: refused by the name of what they need, never half built."""

from __future__ import annotations

EXPERTS = "a mixture of experts"
OTHER_EXPERTS = "a mixture of experts of another kind"
DENSE_LAYERS = "layers without experts among those that have them"
SOFT_CAP = "a soft cap"
SCALED = "a scale on the embedding, residual or logits"
WINDOW = "sliding-window attention"
SINKS = "attention sinks"
OTHER_RECURRENT = "a recurrent state of another kind"
IMAGES = "image input"
ENCODER = "an encoder beside the decoder"
BIASES = "a bias that the family does not fix"
QUANTISED = "a checkpoint that is already quantised"

FEATURES = {
    "experts": EXPERTS,
    "num_experts": EXPERTS,
    "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS,
    "experts_per_token": EXPERTS,
    "moe": EXPERTS,
    "moe_intermediate_size": EXPERTS,
    "router": EXPERTS,
    "norm_topk_prob": EXPERTS,
    "embedding_scale": SCALED,
    "embedding_multiplier": SCALED,
    "residual_multiplier": SCALED,
    "attention_multiplier": SCALED,
    "logits_scaling": SCALED,
    "logit_scale": SCALED,
    "attention_sinks": SINKS,
    "sinks": SINKS,
    "mrope_section": IMAGES,
    "vision": IMAGES,
    "vision_config": IMAGES,
    "deepstack": IMAGES,
    "encoder": ENCODER,
    "encoder_layers": ENCODER,
    "attention_bias": BIASES,
    "mlp_bias": BIASES,
    "quantization_config": QUANTISED,
}

FAMILIES = {
    "qwen2_moe": f"{OTHER_EXPERTS}, one of which sees every token",
    "deepseek_v3": OTHER_EXPERTS,
    "llama4": OTHER_EXPERTS,
    "gemma": SCALED,
    "mamba": OTHER_RECURRENT,
    "qwen2_vl": IMAGES,
    "qwen2_5_vl": IMAGES,
    "qwen3_vl": IMAGES,
    "m2m_100": ENCODER,
    "t5": ENCODER,
}


def feature(key: str) -> str | None:
    """The feature that a key of a manifest asks for, where it is one that is known and not built."""
    return FEATURES.get(key.lower().replace("-", "_"))


def family(name: str) -> str | None:
    """What a family needs that is not built, where the family is known."""
    return FAMILIES.get(name.lower().replace("-", "_").replace(".", "_"))

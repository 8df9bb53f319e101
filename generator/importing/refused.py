"""What a configuration may ask for that is not built: model types and options, each refused with its key and in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from generator import unsupported
from generator.errors import did_you_mean
from generator.importing.classes import TABLE, WRAPPERS
from generator.importing.fields import Fields

LATENT = "multi-head latent attention (MLA)"
CROSS = "cross-attention to another sequence"
AUDIO = "audio input"
CLAMPED = "a clamped gate in the feed-forward"
GATED = "a gate on the attention's output"
LAYER_NORM = "norms that subtract the mean"
CHUNKED = "attention within chunks of the sequence"
UNTURNED = "layers without a rotary embedding"
CLIPPED = "clipped projections"
MORE_NORMS = "norms that the family does not fix"
BOTH_WAYS = "attention in both directions"
SCALED = unsupported.SCALED
WINDOW, SOFT_CAP = unsupported.WINDOW, unsupported.SOFT_CAP
QUERY_SCALE = "a scale of its own on attention's scores"
RECURRENT = "linear attention with a recurrent state"
SHARED_EXPERT = "an expert that sees every token"
OF_SOME = (WINDOW, SOFT_CAP, QUERY_SCALE, RECURRENT, SHARED_EXPERT, GATED)  # what other families have

MODEL_TYPES: Mapping[str, str] = {
    "deepseek_v2": f"{LATENT} and {unsupported.OTHER_EXPERTS}",
    "deepseek_v3": f"{LATENT} and {unsupported.OTHER_EXPERTS}",
    "gemma3n": unsupported.IMAGES,
    "qwen3_vl_moe": unsupported.IMAGES,
    "qwen3_vl_text": unsupported.IMAGES,
    "qwen2_5_vl_text": unsupported.IMAGES,
    "olmoe": unsupported.OTHER_EXPERTS,
    "phimoe": unsupported.OTHER_EXPERTS,
    "granitemoe": unsupported.OTHER_EXPERTS,
    "granite": SCALED,
    "cohere": f"{SCALED} and {LAYER_NORM}",
    "cohere2": f"{SCALED}, {LAYER_NORM} and {unsupported.WINDOW}",
    "smollm3": UNTURNED,
    "olmo2": MORE_NORMS,
    "mamba2": unsupported.OTHER_RECURRENT,
    "jamba": f"{unsupported.OTHER_RECURRENT} and {unsupported.OTHER_EXPERTS}",
    "falcon_h1": unsupported.OTHER_RECURRENT,
    "mllama": f"{unsupported.IMAGES} and {CROSS}",
    "llava": unsupported.IMAGES,
    "pixtral": unsupported.IMAGES,
    "qwen2_audio": AUDIO,
    "whisper": f"{AUDIO} and {unsupported.ENCODER}",
    "bart": unsupported.ENCODER,
    "mbart": unsupported.ENCODER,
    "marian": unsupported.ENCODER,
    "gpt2": f"{LAYER_NORM} and learned positions",
    "gpt_neox": LAYER_NORM,
    "phi": LAYER_NORM,
    "falcon": LAYER_NORM,
    "bert": f"{LAYER_NORM} and attention in both directions",
}

OPTIONS: Mapping[str, str] = {
    **unsupported.FEATURES,
    "sliding_window": WINDOW,
    "use_sliding_window": WINDOW,
    "attn_logit_softcapping": SOFT_CAP,
    "final_logit_softcapping": SOFT_CAP,
    "query_pre_attn_scalar": QUERY_SCALE,
    "use_bidirectional_attention": BOTH_WAYS,
    "is_encoder_decoder": unsupported.ENCODER,
    "decoder_layers": unsupported.ENCODER,
    "add_cross_attention": CROSS,
    "cross_attention_layers": CROSS,
    "cross_attention_hidden_size": CROSS,
    "audio_config": AUDIO,
    "vision_tower": unsupported.IMAGES,
    "mrope_interleaved": unsupported.IMAGES,
    "q_lora_rank": LATENT,
    "kv_lora_rank": LATENT,
    "qk_rope_head_dim": LATENT,
    "compression_config": unsupported.QUANTISED,
    "n_shared_experts": SHARED_EXPERT,
    "shared_expert": SHARED_EXPERT,
    "shared_experts": SHARED_EXPERT,
    "mlp_only_layers": unsupported.EXPERTS,
    "shared_expert_intermediate_size": SHARED_EXPERT,
    "full_attention_interval": RECURRENT,
    "linear_attention": RECURRENT,
    "linear_num_key_heads": RECURRENT,
    "linear_num_value_heads": RECURRENT,
    "linear_conv_kernel_dim": RECURRENT,
    "recurrent": RECURRENT,
    "swiglu_limit": CLAMPED,
    "attn_output_gate": GATED,
    "attention_chunk_size": CHUNKED,
    "no_rope_layers": UNTURNED,
    "clip_qkv": CLIPPED,
    "qkv_bias": unsupported.BIASES,
    "qk_layernorm": MORE_NORMS,
    "use_qk_norm": MORE_NORMS,
}
WITHOUT_EFFECT: tuple[object, ...] = (None, False, 0, [], {})
LAYERS_BUILT = FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR = "linear_attention"
LAYER_TYPES: Mapping[str, str] = {
    LINEAR: RECURRENT,
    SLIDING: WINDOW,
    "chunked_attention": CHUNKED,
    "mamba": unsupported.OTHER_RECURRENT,
}


def supported() -> str:
    return f"supported model types: {', '.join(sorted((*TABLE, *WRAPPERS)))}"


def model_type(name: str) -> tuple[str, str]:
    """Why a model_type that is not imported is refused, and what is supported."""
    words = MODEL_TYPES.get(name) or unsupported.family(name)
    if words is not None:
        return f"needs {words}, which is not built", supported()
    return "no model type of this name is supported", did_you_mean(name, (*TABLE, *WRAPPERS))


def options(data: Mapping[str, Any], read: frozenset[str], owner: str) -> Iterator[tuple[str, str, str]]:
    """(key, rule, hint) of every option that asks for what is not built, or not for models of the class `owner`; `read` are
    keys that the family itself reads.
    """
    for name, value in data.items():
        words = OPTIONS.get(name)
        if words is None or name in read or _has_no_effect(words, value):
            continue
        yield name, asks_for(words, owner), "only its absence, null or false is supported"


def asks_for(words: str, owner: str) -> str:
    """What is wrong with asking for a feature in a configuration of the class `owner`."""
    lacking = f"models of {owner} do not have here" if words in OF_SOME else "is not built"
    return f"asks for {words}, which {lacking}"


def _has_no_effect(words: str, value: object) -> bool:
    if words == SCALED and value == 1 and value is not True:
        return True
    return any(type(value) is type(one) and value == one for one in (*WITHOUT_EFFECT, 0.0))


def refuse_options(fields: Fields, read: frozenset[str]) -> None:
    for name, rule, hint in options(fields.data, read, fields.owner):
        fields.refuse(name, rule, hint)

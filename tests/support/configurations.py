"""Small made-up configurations of each kind that can be imported, in both forms, and the importing of a changed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from generator import catalog
from generator.errors import ManifestError
from generator.importing.command import Imported, import_file, prepare

REMOVED = object()  # the key is left out
COMMON: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 50000.0,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **COMMON}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", **COMMON, "sliding_window": None}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **COMMON}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **COMMON, "head_dim": 128}
PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", **COMMON}
WRAPPED = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "text_config": {"model_type": "mistral", **COMMON, "sliding_window": None},
}
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    **{key: value for key, value in COMMON.items() if key != "hidden_act"},
    "head_dim": 64,
    "num_hidden_layers": 7,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 100,
    "rope_local_base_freq": 9000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
LINEAR_ATTENTION = {
    "num_hidden_layers": 8,
    "head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
SOME_EXPERTS = {
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
    "mlp_only_layers": [],
}
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    **COMMON,
    **LINEAR_ATTENTION,
    **SOME_EXPERTS,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "partial_rotary_factor": 0.25,
    "rope_scaling": None,
    "use_sliding_window": False,
}
SECTIONED = {
    "mrope_interleaved": True,
    "mrope_section": [6, 6, 4],
    "rope_type": "default",
    "rope_theta": 50000.0,
    "partial_rotary_factor": 0.25,
}
QWEN3_5 = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "image_token_id": 7,
    "vision_start_token_id": 8,
    "vision_end_token_id": 9,
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        **{key: value for key, value in COMMON.items() if key not in ("rope_theta", "tie_word_embeddings")},
        **LINEAR_ATTENTION,
        "attention_bias": False,
        "attn_output_gate": True,
        "output_gate_type": "swish",
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "mtp_num_hidden_layers": 1,
        "rope_parameters": SECTIONED,
    },
    "vision_config": {"depth": 27, "hidden_size": 1152},
}
QWEN3_5_MOE = {
    **QWEN3_5,
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        **{key: value for key, value in QWEN3_5["text_config"].items() if key != "intermediate_size"},
        "model_type": "qwen3_5_moe_text",
        **SOME_EXPERTS,
    },
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 2048,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.5] * 32}


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with keys set, or left out where the new value is REMOVED."""
    return {key: value for key, value in {**base, **changes}.items() if value is not REMOVED}


def nested(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The same within its text_config."""
    return {**base, "text_config": changed(base["text_config"], **changes)}


def written(folder: Path, config: object) -> Path:
    """The configuration as a file; text and bytes are written as they are."""
    path = folder / "made-up.json"
    if isinstance(config, bytes):
        path.write_bytes(config)
    else:
        path.write_text(config if isinstance(config, str) else json.dumps(config, indent=1), encoding="utf-8")
    return path


def imported(folder: Path, config: object, *targets: str) -> Imported:
    """What import decides about a configuration, with nothing written."""
    return prepare(written(folder, config), catalog.BUILT_IN, None, targets)


def refusal(folder: Path, config: object, *targets: str) -> str:
    """The message that a configuration is refused with, with FILE for its path; that nothing was written is checked too."""
    path, manifests = written(folder, config), folder / "manifests"
    (manifests / "targets").mkdir(parents=True, exist_ok=True)
    for name in catalog.names(catalog.BUILT_IN, catalog.TARGETS):
        board = catalog.find(catalog.BUILT_IN, catalog.TARGETS, name)
        (manifests / "targets" / board.name).write_bytes(board.read_bytes())
    with pytest.raises(ManifestError) as caught:
        import_file(path, manifests, None, targets, force=False)
    assert not (manifests / "models").exists()
    return str(caught.value).replace(str(path), "FILE").replace(str(manifests), "MANIFESTS")

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

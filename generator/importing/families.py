"""The configurations that can be imported: for each model_type its class, that class's defaults, and how its keys are meant.

The defaults are those of the classes of transformers 5, which a test compares. None means what the class makes of None: as many
key-value heads as query heads, a head width of hidden / query heads, no window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_THETA = 10000.0
SHARED = {"hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": DEFAULT_THETA}

EVERY_LAYER, UPPER_LAYERS, NO_WINDOW = "every layer", "upper layers", "none"
LAYERS_IF_USED = "every layer, if use_sliding_window"


@dataclass(frozen=True)
class ExpertKeys:
    """The keys that describe a mixture of experts. `count`: the first that is there says it. `renormalise` is empty where the
    published code always does; `some_layers`: the class has keys for layers without experts.
    """

    count: tuple[str, ...]
    intermediate: str
    renormalise: str = ""
    some_layers: bool = False


@dataclass(frozen=True)
class ConfigClass:
    """How the configuration of one model_type is read.

    `null_head_dim`: null is a head width too (hidden / query heads). `window`: which layers a sliding_window is for.
    `partial_rotary`: the published code turns only a part of each head if partial_rotary_factor says so.
    `rope_names`: names of rope kinds that this class takes for another. `reads`: keys of features that this class reads itself,
    so that their presence is no reason to refuse.
    """

    model_type: str
    name: str
    architecture: str
    family: str
    defaults: Mapping[str, Any]
    window: str = NO_WINDOW
    null_head_dim: bool = True
    partial_rotary: bool = False
    rope_names: Mapping[str, str] = field(default_factory=dict)
    experts: ExpertKeys | None = None

    @property
    def reads(self) -> frozenset[str]:
        both = {"sliding_window", "use_sliding_window"}
        windows = {EVERY_LAYER: {"sliding_window"}, UPPER_LAYERS: both, LAYERS_IF_USED: both}
        found = {"partial_rotary_factor"} | windows.get(self.window, set())
        if self.experts is not None:
            found |= {*self.experts.count, "num_experts_per_tok", self.experts.intermediate, self.experts.renormalise}
            found |= {"mlp_only_layers"} if self.experts.some_layers else set()
        return frozenset(found)


@dataclass(frozen=True)
class Wrapper:
    """A model around a text model, of which only the text model is imported; `text` is the model_type that it holds."""

    model_type: str
    name: str
    architecture: str
    text: str


def _sizes(
    vocabulary: int, hidden: int, intermediate: int, maximum: int, epsilon: float, **rest: Any
) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": maximum,
        "rms_norm_eps": epsilon,
        **SHARED,
        **rest,
    }


QWEN_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}

CLASSES = (
    ConfigClass(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        "llama",
        _sizes(32000, 4096, 11008, 2048, 1e-6, num_key_value_heads=None, head_dim=None),
    ),
    ConfigClass(
        "mistral",
        "MistralConfig",
        "MistralForCausalLM",
        "mistral",
        _sizes(32000, 4096, 14336, 131072, 1e-6, num_key_value_heads=8, head_dim=None, sliding_window=4096),
        window=EVERY_LAYER,
    ),
    ConfigClass(
        "qwen2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        "qwen2",
        _sizes(151936, 4096, 22016, 32768, 1e-6, num_key_value_heads=32, head_dim=None, **QWEN_WINDOW),
        window=UPPER_LAYERS,
    ),
    ConfigClass(
        "qwen3",
        "Qwen3Config",
        "Qwen3ForCausalLM",
        "qwen3",
        _sizes(151936, 4096, 22016, 32768, 1e-6, num_key_value_heads=32, head_dim=128, **QWEN_WINDOW),
        window=UPPER_LAYERS,
        null_head_dim=False,
    ),
    ConfigClass(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        "phi3",
        _sizes(
            32064,
            3072,
            8192,
            4096,
            1e-5,
            num_key_value_heads=None,
            head_dim=None,
            sliding_window=None,
            original_max_position_embeddings=4096,
        ),
        window=EVERY_LAYER,
        partial_rotary=True,
        rope_names={"su": "longrope", "yarn": "longrope"},
    ),
    ConfigClass(
        "mixtral",
        "MixtralConfig",
        "MixtralForCausalLM",
        "mixtral",
        _sizes(
            32000,
            4096,
            14336,
            131072,
            1e-5,
            num_key_value_heads=8,
            head_dim=None,
            sliding_window=None,
            rope_theta=1000000.0,
            num_local_experts=8,
            num_experts_per_tok=2,
        ),
        window=EVERY_LAYER,
        experts=ExpertKeys(("num_local_experts",), "intermediate_size"),
    ),
    ConfigClass(
        "qwen3_moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _sizes(
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
TABLE: Mapping[str, ConfigClass] = {one.model_type: one for one in CLASSES}
WRAPPERS: Mapping[str, Wrapper] = {
    one.model_type: one
    for one in (Wrapper("mistral3", "Mistral3Config", "Mistral3ForConditionalGeneration", "mistral"),)
}

"""What there is to say of a configuration that can be imported: its class, that class's defaults, and how its keys are meant.

The defaults are those of the classes of transformers 5, which a test compares. None means what the class makes of None: as many
key-value heads as query heads, a head width of hidden / query heads, no window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_THETA = 10000.0
SHARED = {"hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": DEFAULT_THETA}

LAYERS_IF_USED = "every layer, if use_sliding_window"
EVERY_LAYER, UPPER_LAYERS, PATTERN, NO_WINDOW = "every layer", "upper layers", "all but each n-th layer", "none"
WINDOW_KEYS = {
    EVERY_LAYER: {"sliding_window"},
    UPPER_LAYERS: {"sliding_window", "use_sliding_window"},
    PATTERN: {"sliding_window"},
    LAYERS_IF_USED: {"sliding_window", "use_sliding_window"},
    NO_WINDOW: set(),
}
LINEAR_KEYS = (
    "full_attention_interval",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_conv_kernel_dim",
)
SILU, GELU_TANH = {"silu": "silu"}, {"gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class ExpertKeys:
    """The keys that describe a mixture of experts. `count`: the first that is there says it. `renormalise` is empty where the
    published code always does; `some_layers`: the class has keys for layers without experts. `also`: further keys for the experts of a
    token, which must say the same. `shared`: the width of an expert that sees every token.
    """

    count: tuple[str, ...]
    intermediate: str
    renormalise: str = ""
    some_layers: bool = False
    also: tuple[str, ...] = ()
    shared: str = ""


@dataclass(frozen=True)
class ConfigClass:
    """How the configuration of one model_type is read.

    `null_head_dim`: null is a head width too (hidden / query heads). `window`: which layers a sliding_window is for.
    `partial_rotary`: the published code turns only a part of each head if partial_rotary_factor says so.
    `rope_names`: names of rope kinds that this class takes for another. `every`: in a pattern of windows each so many'th layer
    has none. `local_rope`: layers with a window are turned by an embedding of their own. `activation`: the key of the gate's
    activation, and `activations` what its values are called here. `scores`: keys that scale or cap scores and logits, by what a
    manifest calls them. `rope`: the embedding where no key describes one. `fixed`: keys that may have one value only, which is
    the default: a number, true or false. `harmless`: keys of its own that change nothing of prefill. `reads`: keys of features
    that this class reads itself, so that their presence is no reason to refuse. `linear_attention`: layers are linear attention
    but for each `every`th, or as layer_types says. `stated`: keys without a default, and the values of them that are built.
    `rotary_share`: the partial_rotary_factor where no key says one. `sections`: the embedding may be divided into sections,
    each for a position of its own; of text these positions are equal, which makes it the plain embedding.
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
    every: int = 0
    local_rope: bool = False
    activation: str = "hidden_act"
    activations: Mapping[str, str] = field(default_factory=lambda: SILU)
    scores: Mapping[str, str] = field(default_factory=dict)
    experts: ExpertKeys | None = None
    rope: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    harmless: frozenset[str] = frozenset()
    linear_attention: bool = False
    stated: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    rotary_share: float = 1.0
    sections: bool = False

    @property
    def reads(self) -> frozenset[str]:
        found = {"partial_rotary_factor", *self.scores.values(), *self.fixed, *self.stated} | WINDOW_KEYS[self.window]
        if self.linear_attention:
            found |= {*LINEAR_KEYS}
        if self.experts is not None:
            found |= {
                *self.experts.count,
                "num_experts_per_tok",
                *self.experts.also,
                self.experts.intermediate,
                self.experts.renormalise,
                self.experts.shared,
            }
            found |= {"mlp_only_layers"} if self.experts.some_layers else set()
        return frozenset(found)


@dataclass(frozen=True)
class Wrapper:
    """A model around a text model, of which only the text model is imported; `text` is the model_type that it holds. `others`:
    keys that describe its other parts.
    """

    model_type: str
    name: str
    architecture: str
    text: str
    others: frozenset[str] = frozenset()


def sizes(vocabulary: int, hidden: int, intermediate: int, maximum: int, epsilon: float, **rest: Any) -> dict[str, Any]:
    """Defaults of a class, of which many have 32 layers and heads; `rest` are further ones, and other values of these."""
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

"""Tiny random models of each family, as transformers builds them, beside the geometry that the generator would be
given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from runtime.tables import Geometry, Rope

SCALED = Rope(
    "llama3", 10000.0, 32, factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=64
)
BASE = Geometry(
    vocabulary=256,
    hidden=128,
    intermediate=192,
    layers=2,
    query_heads=4,
    key_value_heads=2,
    head_dim=32,
    norm_epsilon=1e-5,
    query_key_value_bias=False,
    query_key_norm=False,
    tied_embeddings=False,
    rope=Rope("default", 10000.0, 32),
)
GEOMETRIES = {
    "llama-tied": replace(BASE, tied_embeddings=True, rope=SCALED),
    "llama-untied": replace(BASE, rope=SCALED),
    "mistral": replace(BASE, rope=replace(BASE.rope, theta=1000000.0)),
    "qwen2.5": replace(BASE, query_key_value_bias=True, norm_epsilon=1e-6),
    "qwen3": replace(
        BASE,
        query_key_norm=True,
        norm_epsilon=1e-6,
        head_dim=64,
        rope=replace(BASE.rope, theta=1000000.0, dimensions=64),
    ),
    # Heads of 96 are rotated in interleaved pairs on the device, so weights, biases, norms and keys are reordered.
    "qwen2.5-heads-of-96": replace(
        BASE, query_key_value_bias=True, head_dim=96, rope=replace(BASE.rope, dimensions=96)
    ),
    "qwen3-heads-of-96": replace(BASE, query_key_norm=True, head_dim=96, rope=replace(BASE.rope, dimensions=96)),
}
TRANSFORMERS = {"llama": "Llama", "mistral": "Mistral", "qwen2.5": "Qwen2", "qwen3": "Qwen3"}


@dataclass(frozen=True)
class Peer:
    """One random model: transformers' own, its parameters by published name, and what it is as numbers."""

    model: torch.nn.Module
    tensors: dict[str, Tensor]
    geometry: Geometry

    @torch.no_grad()
    def logits(self, tokens: list[int]) -> Tensor:
        """Logits of every position, `[tokens, vocabulary]`."""
        return self.model(torch.tensor([tokens])).logits[0]

    @torch.no_grad()
    def keys_and_values(self, tokens: list[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Rotated keys and values of each layer, `[key_value_heads, tokens, head_dim]`."""
        layers = self.model(torch.tensor([tokens]), use_cache=True).past_key_values.layers
        return [layer.keys[0] for layer in layers], [layer.values[0] for layer in layers]


@cache
def build_peer(family: str, geometry: Geometry | None = None, seed: int = 0) -> Peer:
    """A transformers model of `family` in float32 with eager attention and every parameter drawn at random."""
    import transformers

    geometry = geometry or GEOMETRIES[family]
    kind = TRANSFORMERS[family.split("-")[0]]
    rope = geometry.rope
    parameters = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind == "llama3":
        parameters |= {
            "factor": rope.factor,
            "low_freq_factor": rope.low_frequency_factor,
            "high_freq_factor": rope.high_frequency_factor,
            "original_max_position_embeddings": rope.original_context,
        }
    options = {"sliding_window": None} if kind == "Mistral" else {}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=geometry.vocabulary,
        hidden_size=geometry.hidden,
        intermediate_size=geometry.intermediate,
        num_hidden_layers=geometry.layers,
        num_attention_heads=geometry.query_heads,
        num_key_value_heads=geometry.key_value_heads,
        head_dim=geometry.head_dim,
        rms_norm_eps=geometry.norm_epsilon,
        tie_word_embeddings=geometry.tied_embeddings,
        rope_parameters=parameters,
        max_position_embeddings=4096,
        attn_implementation="eager",
        **options,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    draw_every_parameter(model, torch.Generator().manual_seed(seed))
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if geometry.tied_embeddings:
        del tensors["lm_head.weight"]
    return Peer(model, tensors, geometry)


@torch.no_grad()
def draw_every_parameter(model: torch.nn.Module, generator: torch.Generator) -> None:
    """As initialised, norms are one and biases zero: a module that drops them would pass unnoticed."""
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.copy_(1 + 0.3 * drawn)
        elif "embed" in name or name.endswith("bias"):
            parameter.copy_(0.5 * drawn)
        else:
            parameter.copy_(drawn * drawn.shape[1] ** -0.5)


def random_tokens(length: int, seed: int, vocabulary: int = BASE.vocabulary) -> list[int]:
    return torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(seed)).tolist()

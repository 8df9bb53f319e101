"""Tiny random models of each family, as transformers builds them, beside the geometry that the generator would be
given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from runtime.tables import Experts, Geometry, Rope
from runtime.verification.joined_experts import published
from runtime.verification.published import published_config

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
    "phi3": replace(BASE, fused_projections=True, rope=replace(BASE.rope, theta=250000.0)),
    "phi3-three-quarters": replace(
        BASE, fused_projections=True, tied_embeddings=True, rope=replace(BASE.rope, dimensions=24)
    ),
    "qwen3_moe": replace(
        BASE,
        query_key_norm=True,
        norm_epsilon=1e-6,
        intermediate=96,
        experts=Experts(count=8, per_token=2, intermediate=96, renormalise=True, published="qwen3_moe"),
    ),
    "mixtral": replace(
        BASE,
        intermediate=128,
        experts=Experts(count=4, per_token=2, intermediate=128, renormalise=True, published="mixtral"),
    ),
}
# Kinds of rotary embedding and widths that the families above do not have.
YARN = replace(
    BASE.rope, kind="yarn", factor=4.0, original_context=256, beta_fast=8.0, beta_slow=1.0, attention_factor=1.138629
)
LINEAR = replace(BASE.rope, kind="linear", factor=3.0)
VARIATIONS = {
    "qwen3_moe-shares-of-all": replace(
        BASE,
        query_key_norm=True,
        intermediate=64,
        experts=Experts(count=40, per_token=3, intermediate=64, renormalise=False, published="qwen3_moe"),
    ),
    "llama-heads-of-256": replace(
        BASE, hidden=512, query_heads=2, key_value_heads=1, head_dim=256, rope=replace(BASE.rope, dimensions=256)
    ),
    "mistral-heads-narrower-than-hidden": replace(BASE, hidden=160),
    "llama-linear": replace(BASE, rope=LINEAR),
    "llama-yarn": replace(BASE, rope=YARN),
    "mistral-linear": replace(BASE, rope=LINEAR),
    "mistral-yarn": replace(BASE, rope=YARN),
    "qwen2.5-yarn": replace(BASE, query_key_value_bias=True, rope=YARN),
    "qwen3-yarn-not-truncated": replace(
        BASE, query_key_norm=True, head_dim=64, rope=replace(YARN, dimensions=64, truncate=False, attention_factor=1.3)
    ),
    "phi3-heads-of-96-two-thirds": replace(
        BASE, fused_projections=True, hidden=384, head_dim=96, rope=replace(BASE.rope, dimensions=64)
    ),
}


def longrope(head_dim: int, dimensions: int, switch: int) -> Geometry:
    """A geometry whose prompts of more than `switch` tokens are turned by other factors."""
    pairs = dimensions // 2
    rope = replace(
        BASE.rope,
        kind="longrope",
        dimensions=dimensions,
        original_context=switch,
        attention_factor=1.190238,
        short_factors=tuple(1 + index / pairs for index in range(pairs)),
        long_factors=tuple(1.25 + 3 * index / pairs for index in range(pairs)),
    )
    return replace(BASE, fused_projections=True, hidden=4 * head_dim, head_dim=head_dim, rope=rope)


# Prompts of both sides share waves of 128 at a switch of 100, chunks of 128 from 128 on at one of 200.
LONGROPE = {
    "phi3-longrope-in-waves": longrope(32, 32, 100),
    "phi3-longrope-in-chunks": longrope(64, 48, 200),
    "phi3-longrope-heads-of-96-in-waves": longrope(96, 96, 100),
    "phi3-longrope-heads-of-96-in-chunks": longrope(96, 72, 200),
}
# Windows of 40 tokens: a whole block and a part of one, so that their edges lie inside blocks, attention chunks and
# passes. Soft caps are small, so that random logits reach them.
WINDOW = 40
GEMMA = replace(
    BASE,
    layers=3,
    head_dim=64,
    norm_epsilon=1e-6,
    tied_embeddings=True,
    rope=replace(BASE.rope, dimensions=64),
    activation="gelu_tanh",
    sliding_window=WINDOW,
    query_scale=100,
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
)
GEMMA3 = replace(
    GEMMA,
    query_key_norm=True,
    full_attention_layers=(1,),
    rope=replace(GEMMA.rope, kind="linear", theta=1000000.0, factor=8.0),
    local_rope=GEMMA.rope,
)
WINDOWED = {
    "mistral-windowed": replace(BASE, sliding_window=WINDOW),
    "qwen3-upper-layers-windowed": replace(
        BASE, query_key_norm=True, layers=3, sliding_window=WINDOW, full_attention_layers=(0, 1)
    ),
    "gemma3": GEMMA3,
    "gemma3-capped": replace(GEMMA3, logit_soft_cap=2.0, full_attention_layers=(2,)),
}
GEMMA2 = replace(GEMMA, full_attention_layers=(1,), attention_soft_cap=2.0, logit_soft_cap=3.0)
CAPPED = {
    "gemma2": GEMMA2,
    "gemma2-windowed": replace(GEMMA2, layers=2, full_attention_layers=()),
    "gemma2-heads-of-96": replace(GEMMA2, head_dim=96, rope=replace(GEMMA2.rope, dimensions=96)),
}
GPT_OSS = replace(
    BASE,
    head_dim=64,
    query_key_value_bias=True,
    intermediate=96,
    rope=replace(YARN, dimensions=64, truncate=False, attention_factor=1.3),
    sliding_window=WINDOW,
    full_attention_layers=(1,),
    attention_sinks=True,
    attention_output_bias=True,
    experts=Experts(
        count=8, per_token=2, intermediate=96, renormalise=True, published="gpt_oss", biases=True, activation="swiglu_oai"
    ),
)
WINDOWED["gpt_oss"] = GPT_OSS
EVERY_GEOMETRY = GEOMETRIES | VARIATIONS | LONGROPE | WINDOWED | CAPPED
TRANSFORMERS = {
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "phi3": "Phi3",
    "qwen2.5": "Qwen2",
    "qwen3": "Qwen3",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
    "gpt_oss": "GptOss",
    "qwen3_moe": "Qwen3Moe",
}


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
        from transformers import DynamicCache

        layers = self.model(torch.tensor([tokens]), cache=DynamicCache()).cache.layers  # which keeps what windows forget
        return [layer.keys[0] for layer in layers], [layer.values[0] for layer in layers]


@cache
def build_peer(family: str, geometry: Geometry | None = None, seed: int = 0) -> Peer:
    """A transformers model of `family` in float32 with eager attention and every parameter drawn at random."""
    import transformers

    geometry = geometry or (EVERY_GEOMETRY)[family]
    kind = TRANSFORMERS[family.split("-")[0]]
    config = published_config(transformers, kind, geometry, max_position_embeddings=4096)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    draw_every_parameter(model, geometry, torch.Generator().manual_seed(seed))
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if geometry.tied_embeddings:
        del tensors["lm_head.weight"]
    return Peer(model, published(tensors, geometry), geometry)


@torch.no_grad()
def draw_every_parameter(model: torch.nn.Module, geometry: Geometry, generator: torch.Generator) -> None:
    """As initialised, norms are one and biases zero: a module that drops them would pass unnoticed."""
    norm = 0 if geometry.unit_offset_norms else 1
    clamped = geometry.experts is not None and geometry.experts.activation == "swiglu_oai"
    embedding = geometry.hidden**-0.5 if geometry.scaled_embedding else 1
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.copy_(norm + 0.3 * drawn)
        elif "embed" in name:
            parameter.copy_(0.5 * embedding * drawn)
        elif name.endswith("bias"):
            parameter.copy_(0.5 * drawn)
        elif name.endswith("sinks"):
            parameter.copy_(1 + drawn)
        elif clamped and name.endswith("gate_up_proj"):
            parameter.copy_(2 * drawn * drawn.shape[1] ** -0.5)  # so that the clamps of the gate are reached
        else:
            parameter.copy_(drawn * drawn.shape[1] ** -0.5)


def random_tokens(length: int, seed: int, vocabulary: int = BASE.vocabulary) -> list[int]:
    return torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(seed)).tolist()

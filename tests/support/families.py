"""Tiny random models of each family, as transformers builds them, beside the geometry that the generator would be
given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from generator.found import found
from runtime.reference.parameters import fading
from runtime.tables import Geometry
from runtime.verification.joined_experts import published
from runtime.verification.published import published_config
from tests.support import tiny
from tests.support.tiny.base import BASE


def _all(table: str) -> dict[str, Geometry]:
    """One table of the files of all families."""
    return {name: one for part in found(tiny.__name__, tiny.__path__, table) for name, one in part.items()}


GEOMETRIES, VARIATIONS, LONGROPE = _all("GEOMETRIES"), _all("VARIATIONS"), _all("LONGROPE")
WINDOWED, CAPPED = _all("WINDOWED"), _all("CAPPED")
RECURRENT, RECURRENT_VARIATIONS = _all("RECURRENT"), _all("RECURRENT_VARIATIONS")
EVERY_GEOMETRY = GEOMETRIES | VARIATIONS | LONGROPE | WINDOWED | CAPPED | RECURRENT | RECURRENT_VARIATIONS


def family_of(name: str) -> str:
    """The family of a tiny geometry, or of another one called in the same way."""
    return name.split("-")[0]


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

    def keys_and_values(self, tokens: list[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Rotated keys and values of each attention layer, `[key_value_heads, tokens, head_dim]`."""
        return _keys_and_values(self._run(tokens).cache.layers)

    def states(self, tokens: list[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Of each recurrent layer the state `[value_heads, key_dim, value_dim]` and what its convolution read last,
        `[kernel - 1, width]`, zeros where there are fewer tokens.
        """
        return self._states(self._run(tokens).cache.layers)

    def answer(self, tokens: list[int]) -> SimpleNamespace:
        """All of these out of one pass of a model with recurrent layers; of logits the last token's."""
        made = self._run(tokens)
        keys, values = _keys_and_values(made.cache.layers)
        states, tails = self._states(made.cache.layers)
        return SimpleNamespace(logits=made.logits[0, -1], keys=keys, values=values, states=states, tails=tails)

    def _states(self, layers: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
        own = [layer for layer in layers if hasattr(layer, "recurrent_states")]
        tails = [layer.conv_states[0][0].T[1 - self.geometry.gated_delta_net.kernel :] for layer in own]
        return [layer.recurrent_states[0][0] for layer in own], tails

    @torch.no_grad()
    def _run(self, tokens: list[int]) -> Any:
        """Logits, and the cache of each layer behind a prompt."""
        from transformers import DynamicCache

        hybrid = self.geometry.gated_delta_net is not None
        kept = DynamicCache(config=self.model.config) if hybrid else DynamicCache()  # which keeps what windows forget
        return self.model(torch.tensor([tokens]), cache=kept)


def _keys_and_values(layers: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
    own = [layer for layer in layers if hasattr(layer, "keys")]
    return [layer.keys[0] for layer in own], [layer.values[0] for layer in own]


@cache
def build_peer(family: str, geometry: Geometry | None = None, seed: int = 0) -> Peer:
    """A transformers model of `family` in float32 with eager attention and every parameter drawn at random."""
    import transformers

    geometry = geometry or EVERY_GEOMETRY[family]
    kind = import_module(f"{tiny.__name__}.{family_of(family)}").KIND
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
        if name.endswith(("A_log", "dt_bias")):
            parameter.copy_(fading(name, tuple(parameter.shape), generator))
        elif "linear_attn.norm" in name:
            parameter.copy_(1 + 0.3 * drawn)
        elif "conv1d" in name:
            parameter.copy_(drawn * drawn.shape[-1] ** -0.5)
        elif "norm" in name:
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

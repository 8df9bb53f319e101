"""B-01: four requests that fit their context and whose padded length does not, end to end at one layer and one head.

The reference never holds a whole matrix of scores: keys are taken block by block with a running softmax.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from benchmarks import planning
from generator import inputs
from generator.pipeline import emit
from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.prefill import Prefill
from runtime.reference.attention import project
from runtime.reference.dense import forward
from runtime.reference.mlp import gated_mlp
from runtime.reference.norm import rms_norm
from runtime.reference.parameters import RandomParameters
from runtime.reference.rope import cos_sin
from runtime.stores import allocate
from runtime.weights import load_weights
from tests.support.live_model import assert_close

KEYS_AT_ONCE = 4096


def module_of(context: int, chunk: int) -> ModuleType:
    file = planning.manifest(context, chunk, 4096, (128, 1024, chunk), context // planning.BLOCK)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{planning.TARGET}.py"
        path.write_text(emit(planning.resolve(file), "planning.toml", inputs.TEMPLATES).text, encoding="utf-8")
        return load(path)


def attend_last(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query [heads, dim] over all keys and values [heads, tokens, dim], KEYS_AT_ONCE at a time: [heads, dim]."""
    heads, dim = query.shape
    highest, total, sums = torch.full((heads, 1), -math.inf), torch.zeros(heads, 1), torch.zeros(heads, dim)
    for low in range(0, keys.shape[1], KEYS_AT_ONCE):
        scores = torch.einsum("hd,hkd->hk", query, keys[:, low : low + KEYS_AT_ONCE]) / math.sqrt(dim)
        peak = torch.maximum(highest, scores.amax(1, keepdim=True))
        grown = (scores - peak).exp()
        total = total * (highest - peak).exp() + grown.sum(1, keepdim=True)
        sums = sums * (highest - peak).exp() + torch.einsum("hk,hkd->hd", grown, values[:, low : low + KEYS_AT_ONCE])
        highest = peak
    return sums / total


def reference(module: ModuleType, parameters: RandomParameters, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [vocabulary] of the last token, and keys and values [heads, tokens, dim] of the only layer."""
    geometry = module.GEOMETRY

    def parameter(name: str) -> Tensor:
        return parameters[f"model.layers.0.{name}"].float()

    hidden = parameters["model.embed_tokens.weight"].float()[tokens]
    normed = rms_norm(hidden, parameter("input_layernorm.weight"), geometry.norm_epsilon)
    rotary = cos_sin(geometry.rope, torch.arange(len(tokens)), torch.float32, len(tokens))
    query, keys, values, _ = project(normed, parameter, geometry, *rotary)
    attended = attend_last(query[:, -1], keys, values).flatten()[None]
    last = hidden[-1:] + attended @ parameter("self_attn.o_proj.weight").T
    normed = rms_norm(last, parameter("post_attention_layernorm.weight"), geometry.norm_epsilon)
    last = last + gated_mlp(normed, parameter, geometry)
    normed = rms_norm(last, parameters["model.norm.weight"].float(), geometry.norm_epsilon)
    return (normed @ parameters["model.embed_tokens.weight"].float().T)[0], keys, values


def paged(values: Tensor, pages: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[heads, tokens, dim] as a store holds them, zeros in the blocks of nobody."""
    store = torch.zeros(shape)
    store[pages] = values.unflatten(1, (-1, planning.BLOCK)).transpose(0, 1)
    return store


def test_the_reference_in_blocks_is_the_reference():
    """A control: over more keys than are taken at once."""
    module = module_of(8192, 2048)
    parameters = RandomParameters(module.GEOMETRY, 1)
    tokens = torch.randint(module.VOCABULARY, (KEYS_AT_ONCE + 700,), generator=torch.Generator().manual_seed(1))
    assert_close(
        reference(module, parameters, tokens)[0][None], forward(module.GEOMETRY, parameters, tokens.tolist(), rows=[-1])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "chunk", "length", "cached"),
    [(40960, 4096, 33000, 0), (5120, 2048, 5000, 0), (8192, 2048, 8192, 4064), (131072, 4096, 131072, 65504)],
)
def test_b01_a_request_that_fits_with_its_real_tokens_is_served_and_equals_the_reference(
    context, chunk, length, cached
):
    module = module_of(context, chunk)
    device = open_device(module.BOARD, precision="float32")
    parameters = RandomParameters(module.GEOMETRY, 1)
    stores = allocate(module, device)
    prefill = Prefill(module, device, load_weights(module, device, parameters), stores)
    drawn = torch.Generator().manual_seed(length)
    tokens = torch.randint(module.VOCABULARY, (length,), generator=drawn)
    pages = torch.randperm(module.KEY_VALUE_BLOCKS, generator=drawn)
    logits, *wanted = reference(module, parameters, tokens)
    for store, values in zip((stores.keys[0], stores.values[0]), wanted):
        host = paged(values[:, :cached], pages[: cached // planning.BLOCK], tuple(store.shape))
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(host, dtype=store.dtype, layout=store.layout), store)
    found = prefill.prefill_forward(tokens[None], pages[None], [length], [cached])
    assert_close(found[0], logits)
    for store, values in zip((stores.keys[0], stores.values[0]), wanted):
        blocks = ttnn.to_torch(store).float()[pages[: -(-length // planning.BLOCK)]]
        assert_close(blocks.transpose(0, 1).flatten(1, 2)[:, :length], values)

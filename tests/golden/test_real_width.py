"""Precision at real width: two layers of full-size modules, with the declared dtypes, against the float32 reference.

Widths, heads, vocabulary, program configurations and tables are the committed module's own; only the layers are fewer.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from generator import catalog
from generator.manifest import load as load_manifest
from runtime.backend import ttnn
from runtime.load import load
from runtime.tables import layer_kinds
from runtime.verification.comparison import pcc
from tests.support.golden import build_module
from tests.support.twins import Rig

LAYERS = 2
# correlation: bfloat16, block-float weights
MODELS = {"llama_3_2_1b": 0.999, "qwen3_0_6b": 0.999, "phi_3_5_mini": 0.99, "gemma_3_1b": 0.999}
# model: layers, experts, correlation; the widths of an expert and of a token are the published ones
ROUTED = {"mixtral-8x7b-v0.1": (1, 3, 0.99), "gpt-oss-20b": (2, 6, 0.99)}
# model: experts where it has them, correlation; one layer of each kind, states in float32
HYBRID = {"qwen3.5-9b": (None, 0.999), "qwen3.5-35b-a3b": (16, 0.95)}
LENGTHS = (33, 128, 7)  # a tile and one, a whole length, a few: 33 and 7 run as a wave with 128
EMBEDDING = "model.embed_tokens.weight"
PAST_A_WINDOW = 600  # of 512 tokens


def reduced(module: ModuleType) -> Any:
    """The module with two layers, one of each kind where there are two, and everything else as it is."""
    fewer = {
        "LAYERS": LAYERS,
        "GEOMETRY": replace(module.GEOMETRY, layers=LAYERS),
        "STORES": tuple([replace(store, layers=LAYERS) for store in module.STORES]),
    }
    if layer_kinds(module):
        kinds = ("sliding", "full")
        fewer |= {"GEOMETRY": replace(fewer["GEOMETRY"], full_attention_layers=(1,)), "LAYER_KINDS": kinds}
        module.layers.__defaults__ = (kinds,)  # which the body takes
    return SimpleNamespace(**{**vars(module), **fewer})


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_two_layers_at_real_width_agree_with_the_reference(model: str, report: Callable[[str], None]) -> None:
    module = load(f"generated.{model}.n150")
    rig = Rig(module=reduced(module), precision="declared")
    call = rig.call(LENGTHS + ((PAST_A_WINDOW,) if layer_kinds(module) else ()))
    found = rig.prefill.prefill_forward(**vars(call))
    rig.parameters = ChainMap({EMBEDDING: rig.parameters[EMBEDDING]}, rig.parameters)  # drawn once: it is the largest
    expected = rig.expected(call)
    correlations = [pcc(ours, theirs) for ours, theirs in zip(found, expected)]
    agreed = sum(int(ours.argmax() == theirs.argmax()) for ours, theirs in zip(found, expected))
    ttnn.close_device(rig.device)

    report(f"real width, {model}: correlation {min(correlations):.5f}, top-1 {agreed} of {len(found)}")
    assert min(correlations) >= MODELS[model]
    assert torch.isfinite(found).all()


def served(module: ModuleType) -> tuple[torch.Tensor, list[float]]:
    """Logits of three prompts, and how each correlates with the reference."""
    rig = Rig(module=module, precision="declared")
    call = rig.call((33, 7, 200))
    found, expected = rig.prefill.prefill_forward(**vars(call)), rig.expected(call)
    ttnn.close_device(rig.device)
    return found, [pcc(ours, theirs) for ours, theirs in zip(found, expected)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ROUTED)
def test_experts_at_real_width_agree_with_the_reference(model: str, report: Callable[[str], None]) -> None:
    """On the board that holds the model, with few of its experts and few tokens of vocabulary."""
    layers, experts, limit = ROUTED[model]
    data = load_manifest(catalog.BUILT_IN, model).manifest.model_dump(exclude_none=True)
    data["model"] |= {"layers": layers, "vocabulary": 512}
    data["model"]["experts"] |= {"count": experts}
    if "full_attention_layers" in data["model"]:
        data["model"]["full_attention_layers"] = (1,)
    module = build_module(data)
    found, correlations = served(module)
    stored = data["target"]["p150"]["dtypes"]["experts"]
    report(f"real width, {model}: correlation {min(correlations):.5f} with experts in {stored}")
    assert min(correlations) >= limit
    assert torch.isfinite(found).all()


@pytest.mark.slow
@pytest.mark.parametrize("model", HYBRID)
def test_recurrent_layers_at_real_width_agree_with_the_reference(model: str, report: Callable[[str], None]) -> None:
    """A layer of linear attention and one of gated full attention, with few tokens of vocabulary and few experts."""
    experts, limit = HYBRID[model]
    data = load_manifest(catalog.BUILT_IN, model).manifest.model_dump(exclude_none=True)
    data["target"] = {"p150": data["target"]["p150"]}
    data["model"] |= {"layers": 2, "vocabulary": 512, "layer_kinds": ("gated_delta_net", "full")}
    if experts:
        data["model"]["experts"] |= {"count": experts}
    module = build_module(data)
    found, correlations = served(module)
    report(f"real width, {model}: correlation {min(correlations):.5f}")
    assert min(correlations) >= limit
    assert torch.isfinite(found).all()

"""Precision at real width: two layers of full-size modules, with the declared dtypes, against the float32 reference.

Widths, heads, vocabulary, program configurations and tables are the committed module's own; only the layers are fewer.
"""

from __future__ import annotations

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
from runtime.verification.comparison import pcc
from tests.support.golden import build_module
from tests.support.twins import Rig

LAYERS = 2
MODELS = {"llama_3_2_1b": 0.999, "qwen3_0_6b": 0.999, "phi_3_5_mini": 0.99}  # correlation: bfloat16, block-float weights
MIXTRAL = 0.99  # experts in bfloat4_b
LENGTHS = (33, 128, 7)  # a tile and one, a whole length, a few: 33 and 7 run as a wave with 128


def reduced(module: ModuleType) -> Any:
    """The module with two layers and everything else as it is."""
    fewer = {
        "LAYERS": LAYERS,
        "GEOMETRY": replace(module.GEOMETRY, layers=LAYERS),
        "STORES": tuple([replace(store, layers=LAYERS) for store in module.STORES]),
    }
    return SimpleNamespace(**{**vars(module), **fewer})


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_two_layers_at_real_width_agree_with_the_reference(model: str, report: Callable[[str], None]) -> None:
    module = load(f"generated.{model}.n150")
    rig = Rig(module=reduced(module), precision="declared")
    call = rig.call(LENGTHS)
    found = rig.prefill.prefill_forward(**vars(call))
    expected = rig.expected(call)
    correlations = [pcc(ours, theirs) for ours, theirs in zip(found, expected)]
    agreed = sum(int(ours.argmax() == theirs.argmax()) for ours, theirs in zip(found, expected))
    ttnn.close_device(rig.device)

    report(f"real width, {model}: correlation {min(correlations):.5f}, top-1 {agreed} of {len(LENGTHS)}")
    assert min(correlations) >= MODELS[model]
    assert torch.isfinite(found).all()


@pytest.mark.slow
def test_a_layer_of_mixtral_at_real_width_agrees_with_the_reference(report: Callable[[str], None]) -> None:
    """Experts of 4096 x 14336 in four parts, on the board that holds the model; three of the eight, and few tokens of vocabulary."""
    data = load_manifest(catalog.BUILT_IN, "mixtral-8x7b-v0.1").manifest.model_dump(exclude_none=True)
    data["model"] |= {"layers": 1, "vocabulary": 512}
    data["model"]["experts"] |= {"count": 3}
    module = build_module(data)
    assert (module.EXPERT_PARTS, module.EXPERT_WIDTH, module.EXPERT_DTYPE) == (4, 3584, ttnn.bfloat4_b)
    rig = Rig(module=module, precision="declared")
    call = rig.call((33, 7))
    found, expected = rig.prefill.prefill_forward(**vars(call)), rig.expected(call)
    correlations = [pcc(ours, theirs) for ours, theirs in zip(found, expected)]
    ttnn.close_device(rig.device)

    report(f"real width, mixtral: correlation {min(correlations):.5f} with experts in bfloat4_b")
    assert min(correlations) >= MIXTRAL
    assert torch.isfinite(found).all()

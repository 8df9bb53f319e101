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

from runtime.backend import ttnn
from runtime.load import load
from runtime.verification.comparison import pcc
from tests.support.twins import Rig

LAYERS = 2
MODELS = {"llama_3_2_1b": 0.999, "qwen3_0_6b": 0.999, "phi_3_5_mini": 0.99}  # correlation: bfloat16, block-float weights
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

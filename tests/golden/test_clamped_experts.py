"""The experts of gpt-oss, biases and clamped gate included, in a module whose attention is another family's."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from generator import catalog, geometry, inputs, targets
from generator.manifest import check
from generator.pipeline import emit
from generator.toml_source import scan
from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.prefill import Prefill
from runtime.reference.dense import forward
from runtime.reference.experts import routed
from runtime.reference.parameters import parameter_shapes
from runtime.stores import allocate
from runtime.tables import Experts
from runtime.verification.comparison import pcc, relative_error
from runtime.weights import load_weights
from tests.golden.test_families import LIMIT
from tests.support.families import build_peer, random_tokens
from tests.support.golden import EXACT, manifest
from tests.support.tiny.base import BASE

CLAMPED = Experts(8, 2, 96, True, "gpt_oss", biases=True, activation="swiglu_oai")
GEOMETRY = replace(build_peer("qwen3_moe").geometry, experts=CLAMPED)


def build() -> ModuleType:
    """The module of the tiny Qwen3 with experts, with those of gpt-oss in their place."""
    file = check(manifest("qwen3_moe", EXACT), "golden.toml", scan(""), ("n150",))
    resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, "n150"))
    terms = {"published": "gpt_oss", "biases": True, "activation": "swiglu_oai"}
    resolved = replace(resolved, experts=replace(resolved.experts, **terms))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "n150.py"
        path.write_text(emit(resolved, "golden.toml", inputs.TEMPLATES).text, encoding="utf-8")
        return load(path)


def parameters(gain: float) -> dict[str, Tensor]:
    """Random parameters of the whole model; `gain` of the projections to gate and up decides how often the gate is clamped."""
    tensors = {name: one for name, one in build_peer("qwen3_moe").tensors.items() if ".mlp." not in name}
    generator = torch.Generator().manual_seed(5)
    for name, shape in parameter_shapes(GEOMETRY).items():
        if ".mlp." in name:
            drawn = torch.randn(shape, generator=generator)
            scale = gain if "gate_up" in name else 1.0
            tensors[name] = scale * (0.5 * drawn if name.endswith("bias") else drawn * shape[1] ** -0.5)
    return tensors


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return build()


def logits(module: ModuleType, tensors: dict[str, Tensor], prompts: list[list[int]], precision: str) -> Tensor:
    device = open_device(module.BOARD, precision=precision)
    weights, stores = load_weights(module, device, tensors), allocate(module, device)
    blocks = iter(range(module.KEY_VALUE_BLOCKS))
    widest = max(map(len, prompts))
    tokens = [prompt + [0] * (widest - len(prompt)) for prompt in prompts]
    pages = [[next(blocks) for _ in range(-(-widest // module.BLOCK_SIZE))] for _ in prompts]
    found = Prefill(module, device, weights, stores).prefill_forward(tokens, pages, list(map(len, prompts)))
    ttnn.close_device(device)
    return found


def expected(tensors: dict[str, Tensor], prompts: list[list[int]]) -> list[Tensor]:
    return [forward(GEOMETRY, tensors, prompt, rows=[-1])[0] for prompt in prompts]


PROMPTS = [random_tokens(length, length) for length in (1, 33, 200)]


@pytest.mark.parametrize("gain", [1.0, 8.0])
def test_a_whole_model_with_these_experts_equals_the_reference(module, gain):
    tensors = parameters(gain)
    for prompt in PROMPTS:  # by themselves, and below as a wave
        (wanted,) = expected(tensors, [prompt])
        assert relative_error(logits(module, tensors, [prompt], "float32")[0], wanted) <= LIMIT
    for found, wanted in zip(logits(module, tensors, PROMPTS, "float32"), expected(tensors, PROMPTS)):
        assert relative_error(found, wanted) <= LIMIT


def test_declared_dtypes_correlate_with_the_reference(module):
    tensors = parameters(1.0)
    for found, wanted in zip(logits(module, tensors, PROMPTS, "declared"), expected(tensors, PROMPTS)):
        assert pcc(found, wanted) >= 0.999


@pytest.mark.parametrize("gain", [1.0, 8.0])
def test_the_reference_equals_transformers(gain):
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP

    config = transformers.GptOssConfig(
        hidden_size=BASE.hidden,
        intermediate_size=CLAMPED.intermediate,
        num_local_experts=CLAMPED.count,
        num_experts_per_tok=CLAMPED.per_token,
    )
    config._experts_implementation = "eager"
    theirs = GptOssMLP(config).eval()
    tensors, prefix = parameters(gain), "model.layers.1."
    state = {
        name.removeprefix(f"{prefix}mlp."): one for name, one in tensors.items() if name.startswith(f"{prefix}mlp.")
    }
    theirs.load_state_dict(state)
    hidden = torch.randn(70, BASE.hidden, generator=torch.Generator().manual_seed(1))
    ours = routed(hidden, lambda name: tensors[prefix + name], CLAMPED)
    with torch.no_grad():
        assert relative_error(ours, theirs(hidden[None])[0][0]) <= LIMIT
    both = hidden @ state["experts.gate_up_proj"][0] + state["experts.gate_up_proj_bias"][0]
    assert (
        (both[:, ::2].max() > 7) == (both[:, 1::2].abs().max() > 7) == (gain > 1)
    ), "the limits are met at the high gain"


@pytest.mark.parametrize("term", ["router.bias", "gate_up_proj_bias", "down_proj_bias"])
def test_every_bias_matters(module, term):
    tensors = parameters(1.0)
    without = {name: torch.zeros_like(one) if name.endswith(term) else one for name, one in tensors.items()}
    assert (
        relative_error(logits(module, without, PROMPTS[:2], "float32")[1], expected(tensors, PROMPTS[:2])[1])
        > 100 * LIMIT
    )


def test_the_emitted_module_states_biases_and_the_clamped_gate(module):
    names = {weight.name for weight in module.LAYER_WEIGHTS}
    assert {"router_bias", "gate_bias", "up_bias", "down_bias"} <= names
    assert module.GEOMETRY.experts == CLAMPED

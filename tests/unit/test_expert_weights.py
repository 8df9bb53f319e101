"""Weights of experts: from published and joined checkpoints to one device tensor for each expert and part."""

from __future__ import annotations

import pytest
import torch

from runtime.checkpoint import open_checkpoint
from runtime.errors import WeightError
from runtime.expert_weights import RULES, arranged, device_values, source_names, source_shape
from runtime.tables import Weight
from runtime.weights import of_checkpoint, of_layer
from tests.support.golden import Bench

EXPERTS, HIDDEN, WIDTH, PARTS = 3, 64, 128, 2
OWN = "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
JOINED = "model.layers.{layer}.mlp.experts.gate_up_proj"


def weight(rule: str, source: str, *shape: int, parts: int = PARTS) -> Weight:
    return Weight("w", (source,), rule, shape, None, None, experts=EXPERTS, parts=parts, otherwise=(JOINED,))


def test_a_source_of_its_own_is_named_for_each_expert_and_a_joined_one_once():
    of_third = of_layer(weight("expert_up", OWN, HIDDEN, WIDTH // PARTS), 3)
    assert source_names(of_third) == tuple(f"model.layers.3.mlp.experts.{one}.up_proj.weight" for one in range(EXPERTS))
    assert of_third.otherwise == ("model.layers.3.mlp.experts.gate_up_proj",)
    joined = of_checkpoint(of_third, {"model.layers.3.mlp.experts.gate_up_proj": None}.keys())
    assert source_names(joined) == of_third.otherwise
    both = {*source_names(of_third), *of_third.otherwise}
    assert of_checkpoint(of_third, both) is of_third, "what is published comes first"
    assert of_checkpoint(of_third, set()) is of_third, "so that the published name is the one that is missing"


@pytest.mark.parametrize(
    ("rule", "source", "shape", "published"),
    [
        ("expert_gate", OWN, (HIDDEN, WIDTH // PARTS), (WIDTH, HIDDEN)),
        ("expert_up", JOINED, (HIDDEN, WIDTH // PARTS), (EXPERTS, 2 * WIDTH, HIDDEN)),
        ("expert_down", OWN, (WIDTH // PARTS, HIDDEN), (HIDDEN, WIDTH)),
        ("expert_down", "joined", (WIDTH // PARTS, HIDDEN), (EXPERTS, HIDDEN, WIDTH)),
        ("alternating_gate", "joined", (HIDDEN, WIDTH // PARTS), (EXPERTS, HIDDEN, 2 * WIDTH)),
        ("alternating_down", "joined", (WIDTH // PARTS, HIDDEN), (EXPERTS, WIDTH, HIDDEN)),
        ("alternating_up_bias", "joined", (1, WIDTH // PARTS), (EXPERTS, 2 * WIDTH)),
        ("alternating_down_bias", "joined", (1, HIDDEN), (EXPERTS, HIDDEN)),
    ],
)
def test_source_shapes_follow_from_the_device_shape(rule, source, shape, published):
    assert source_shape(weight(rule, source, *shape)) == published


def test_gate_stands_above_up_or_alternates_with_it():
    gate, up = torch.randn(WIDTH, HIDDEN), torch.randn(WIDTH, HIDDEN)
    above, alternating = torch.cat((gate, up)), torch.stack((gate, up), 1).reshape(2 * WIDTH, HIDDEN).t()
    for role, wanted in (("gate", gate), ("up", up)):
        assert torch.equal(RULES[f"expert_{role}"](wanted, WIDTH), wanted.t())
        assert torch.equal(RULES[f"expert_{role}"](above, WIDTH), wanted.t())
        assert torch.equal(RULES[f"alternating_{role}"](alternating, WIDTH), wanted.t())
    bias = torch.arange(2.0 * WIDTH)
    assert RULES["alternating_gate_bias"](bias, WIDTH).tolist() == [bias[::2].tolist()]
    assert RULES["alternating_up_bias"](bias, WIDTH).tolist() == [bias[1::2].tolist()]


def test_the_parts_of_an_expert_add_up_to_it():
    x, gate, down = torch.randn(5, HIDDEN), torch.randn(WIDTH, HIDDEN), torch.randn(HIDDEN, WIDTH)
    bias = torch.randn(HIDDEN)
    total = torch.zeros(5, HIDDEN)
    for part in range(PARTS):
        inner = x @ device_values(gate, weight("expert_gate", OWN, HIDDEN, WIDTH // PARTS), part)
        outer = device_values(down, weight("expert_down", OWN, WIDTH // PARTS, HIDDEN), part)
        total += inner @ outer + device_values(bias, weight("alternating_down_bias", "joined", 1, HIDDEN), part)
    assert torch.allclose(total, x @ gate.t() @ down.t() + bias, atol=1e-3)


def test_tensors_are_arranged_by_part_and_expert():
    made = arranged(weight("expert_up", OWN, HIDDEN, WIDTH // PARTS), lambda expert: [f"{expert}a", f"{expert}b"])
    assert made == (("0a", "1a", "2a"), ("0b", "1b", "2b"))


def test_one_entry_of_a_file_is_read_without_the_others(tmp_path):
    from safetensors.torch import save_file

    values = torch.randn(EXPERTS, 4, 2)
    save_file({"experts": values}, tmp_path / "m.safetensors")
    for checkpoint in (open_checkpoint(tmp_path / "m.safetensors"), open_checkpoint({"experts": values})):
        assert torch.equal(checkpoint.read_entry("experts", 2), values[2])


def test_a_missing_a_misshapen_and_a_foreign_expert_are_refused_by_name():
    bench = Bench("qwen3_moe")
    tensors = dict(bench.peer.tensors)
    name = "model.layers.1.mlp.experts.5.down_proj.weight"
    with pytest.raises(WeightError, match=f"lacks {name}, which golden needs"):
        bench.load({key: tensor for key, tensor in tensors.items() if key != name})
    with pytest.raises(WeightError, match=rf"tensor {name} in the state dict is \(4, 4\)"):
        bench.load(tensors | {name: torch.zeros(4, 4)})
    with pytest.raises(
        WeightError, match=r"has model.layers.1.mlp.experts.8.down_proj.weight, which golden does not use"
    ):
        bench.load(tensors | {"model.layers.1.mlp.experts.8.down_proj.weight": tensors[name]})
    with pytest.raises(WeightError, match=r"has 96 of \d+ values that are not finite"):
        bench.load(tensors | {name: torch.ones_like(tensors[name]).index_fill(0, torch.tensor(3), torch.nan)})

"""From published tensors to what the device holds: shapes, rotary tables, and the interleaved form of rotary heads."""

from __future__ import annotations

import pytest
import torch

from runtime.errors import ModuleError
from runtime.reference import rope as reference
from runtime.rope import angles, half_split, interleave_pairs, interleaved, pair_rotation
from runtime.tables import Geometry, Rope, Weight
from runtime.transforms import RULES, source_shapes

LLAMA3 = Rope("llama3", 500000.0, 64, 32.0, 1.0, 4.0, 8192)
GEOMETRY = Geometry(100, 96, 64, 1, 3, 1, 32, 1e-5, True, True, True, Rope("default", 10000.0, 32))


def weight(transform, sources, shape):
    return Weight("w", sources, transform, shape, None, None)


@pytest.mark.parametrize("rope", [Rope("default", 100000.0, 64), LLAMA3], ids=lambda rope: rope.kind)
def test_rotary_tables_equal_the_reference(rope):
    turned = angles(rope, 4096)
    cos, sin = reference.cos_sin(rope, torch.arange(4096), torch.float32)
    assert (half_split(turned).cos() - cos).abs().max() < 5e-4
    assert (half_split(turned[:64]).sin() - sin[:64]).abs().max() < 1e-5


def test_rotary_frequencies_equal_the_published_implementation():
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(head_dim=64, hidden_size=128, num_attention_heads=2, rope_parameters=parameters)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
    assert torch.allclose(angles(LLAMA3, 2)[1], expected, rtol=1e-6)


def test_an_unknown_rope_is_refused_by_name():
    with pytest.raises(ModuleError, match="'yarn'"):
        angles(Rope("yarn", 1e4, 32), 4)


def test_interleaved_heads_rotate_to_the_interleaved_result():
    head_dim, tokens = 32, 5
    x = torch.randn(tokens, 3 * head_dim, generator=torch.Generator().manual_seed(0))
    turned = angles(Rope("default", 1e4, head_dim), tokens)
    cos, sin = half_split(turned).cos(), half_split(turned).sin()
    expected = reference.rotate(x.view(tokens, 3, head_dim).transpose(0, 1), cos, sin)
    pairs = interleave_pairs(x.t(), head_dim).t().reshape(tokens, 3, head_dim).transpose(0, 1)
    found = pairs * interleaved(turned).cos() + pairs @ pair_rotation()[0, 0] * interleaved(turned).sin()
    back = interleave_pairs(expected.transpose(0, 1).reshape(tokens, -1).t(), head_dim).t()
    assert torch.allclose(found.transpose(0, 1).reshape(tokens, -1), back, atol=1e-6)


def test_query_key_value_stack_on_their_outputs_and_only_query_and_key_are_reordered():
    names = ("q", "k", "v")
    shapes = source_shapes(weight("projection", names, (96, 160)), GEOMETRY)
    assert shapes == ((96, 96), (32, 96), (32, 96))
    sources = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
    plain = RULES["projection"](sources, weight("projection", names, (96, 160)), GEOMETRY)
    turned = RULES["rotary_projection"](sources, weight("rotary_projection", names, (96, 160)), GEOMETRY)
    assert torch.equal(plain, torch.cat(sources).t())
    assert torch.equal(turned[:, 128:], plain[:, 128:])
    assert torch.equal(turned[:, :128], interleave_pairs(plain[:, :128].t(), 32).t())
    assert not torch.equal(turned[:, :128], plain[:, :128])


def test_rotary_tables_hold_cosines_and_sines_in_both_orders():
    turned = angles(GEOMETRY.rope, 8)
    for name, expected in {
        "rotary_cos": half_split(turned).cos(),
        "rotary_sin": half_split(turned).sin(),
        "rotary_cos_interleaved": turned.cos().repeat_interleave(2, 1),
        "rotary_sin_interleaved": turned.sin().repeat_interleave(2, 1),
    }.items():
        assert torch.equal(RULES[name]([], weight(name, (), (8, 32)), GEOMETRY), expected)
    assert torch.equal(RULES["rotary_transformation"]([], weight("t", (), (1, 1, 32, 32)), GEOMETRY), pair_rotation())


def test_vectors_take_the_device_shape():
    assert source_shapes(weight("bias", ("q", "k", "v"), (1, 1, 1, 160)), GEOMETRY) == ((96,), (32,), (32,))
    assert source_shapes(weight("norm", ("n",), (1, 1, 3, 32)), GEOMETRY) == ((96,),)
    values = torch.arange(96.0)
    assert torch.equal(
        RULES["norm"]([values], weight("norm", ("n",), (1, 1, 3, 32)), GEOMETRY), values.view(1, 1, 3, 32)
    )


def test_a_rule_that_does_not_exist_is_refused():
    with pytest.raises(ModuleError, match="no rule named 'fold'"):
        source_shapes(weight("fold", ("n",), (1,)), GEOMETRY)
    with pytest.raises(ModuleError, match="161 outputs do not divide"):
        source_shapes(weight("projection", ("q", "k", "v"), (96, 161)), GEOMETRY)

"""From published tensors to what the device holds: shapes, rotary tables, and the interleaved form of rotary heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from runtime.errors import ModuleError
from runtime.reference import rope as reference
from runtime.rope import angles, cosines, half_split, head_order, interleaved, pair_rotation, reorder_heads, sines
from runtime.tables import Geometry, Rope, Weight
from runtime.transforms import RULES, source_shapes
from runtime.verification.published import published_rope

LLAMA3 = Rope("llama3", 500000.0, 64, 32.0, 1.0, 4.0, 8192)
LINEAR = Rope("linear", 10000.0, 64, 8.0)
YARN = Rope(
    "yarn",
    150000.0,
    64,
    32.0,
    original_context=4096,
    beta_fast=32.0,
    beta_slow=1.0,
    attention_factor=1.3465735902799727,
)
LONGROPE = Rope(
    "longrope",
    10000.0,
    48,
    original_context=2048,
    attention_factor=1.19,
    short_factors=tuple(1 + index / 50 for index in range(24)),
    long_factors=tuple(1 + index * 2.5 for index in range(24)),
)
GEOMETRY = Geometry(100, 96, 64, 1, 3, 1, 32, 1e-5, True, True, True, Rope("default", 10000.0, 32))


def weight(transform, sources, shape):
    return Weight("w", sources, transform, shape, None, None)


ROPES = {
    "default": Rope("default", 100000.0, 64),
    "linear": LINEAR,
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn-not-truncated": replace(YARN, truncate=False),
    "yarn-without-a-ramp": replace(YARN, original_context=7, beta_fast=1.2),  # both bounds are the first pair
    "short": LONGROPE,
    "long": LONGROPE,
}


@pytest.mark.parametrize("name", ROPES)
def test_rotary_tables_equal_the_reference(name):
    rope, total = ROPES[name], 1 if name == "short" else 4096
    turned = angles(rope, 4096, rope.long_factors if name == "long" else rope.short_factors)
    cos, sin = reference.cos_sin(rope, torch.arange(4096), torch.float32, total)
    assert (half_split(cosines(rope, turned, rope.dimensions)) - cos).abs().max() < 5e-4
    assert (half_split(sines(rope, turned, rope.dimensions))[:64] - sin[:64]).abs().max() < 1e-5


@pytest.mark.parametrize("name", [name for name in ROPES if name != "default"])
def test_rotary_frequencies_equal_the_published_implementation(name):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = ROPES[name]
    parameters = published_rope(rope, 64)
    config = LlamaConfig(head_dim=64, hidden_size=128, num_attention_heads=2, rope_parameters=parameters)
    expected, factor = ROPE_INIT_FUNCTIONS[rope.kind](config, None, seq_len=4096 if name == "long" else 1)
    found = angles(rope, 2, rope.long_factors if name == "long" else rope.short_factors)[1]
    assert torch.allclose(found, expected, rtol=1e-6) and factor == rope.attention_factor


def test_an_unknown_rope_is_refused_by_name():
    with pytest.raises(
        ModuleError, match="'dynamic' is not known; the kinds are default, linear, llama3, yarn, longrope"
    ):
        angles(Rope("dynamic", 1e4, 32), 4)


@pytest.mark.parametrize("dimensions", [32, 24, 6, 2])
@pytest.mark.parametrize("style", ["half_split", "interleaved"])
def test_reordered_heads_rotate_to_the_reordered_result(style, dimensions):
    """Both device operations, on heads that turn wholly or in part, and a factor that the rest must not take."""
    head_dim, tokens, spread = 32, 5, half_split if style == "half_split" else interleaved
    rope = Rope("default", 1e4, dimensions, attention_factor=1.2)
    heads = torch.randn(3, tokens, head_dim, generator=torch.Generator().manual_seed(0))
    expected = reference.rotate(heads, *reference.cos_sin(rope, torch.arange(tokens), torch.float32, tokens))
    order, turned = head_order(style, head_dim, dimensions), angles(rope, tokens)
    assert sorted(order.tolist()) == list(range(head_dim))
    device = heads[..., order]
    swapped = device.roll(head_dim // 2, -1) * torch.tensor([-1.0, 1.0]).repeat_interleave(head_dim // 2)
    if style == "interleaved":
        swapped = device @ pair_rotation()[0, 0]
    found = device * spread(cosines(rope, turned, head_dim)) + swapped * spread(sines(rope, turned, head_dim))
    assert torch.allclose(found, expected[..., order], atol=1e-6)


def test_heads_that_turn_wholly_keep_their_columns_for_the_half_split_operation():
    assert head_order("half_split", 64, 64).tolist() == list(range(64))
    assert head_order("half_split", 8, 4).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert head_order("interleaved", 8, 8).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert head_order("interleaved", 8, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_query_key_value_stack_on_their_outputs_and_only_query_and_key_are_reordered():
    names = ("q", "k", "v")
    shapes = source_shapes(weight("projection", names, (96, 160)), GEOMETRY)
    assert shapes == ((96, 96), (32, 96), (32, 96))
    sources = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
    plain = RULES["projection"](sources, weight("projection", names, (96, 160)), GEOMETRY)
    assert torch.equal(plain, torch.cat(sources).t())
    partial = replace(GEOMETRY, rope=Rope("default", 10000.0, 24))
    for rule, style, geometry in (
        ("rotary", "interleaved", GEOMETRY),
        ("rotary", "interleaved", partial),
        ("partial", "half_split", partial),
    ):
        turned = RULES[f"{rule}_projection"](sources, weight(f"{rule}_projection", names, (96, 160)), geometry)
        order = head_order(style, 32, geometry.rope.dimensions)
        assert torch.equal(turned[:, 128:], plain[:, 128:])
        assert torch.equal(turned[:, :128], reorder_heads(plain[:, :128].t(), order).t())
        assert not torch.equal(turned[:, :128], plain[:, :128])
        fused = RULES[f"{rule}_projection"](
            [torch.cat(sources)], weight(f"{rule}_projection", ("qkv",), (96, 160)), geometry
        )
        assert torch.equal(fused, turned)
        for vector in ("norm", "bias"):
            values = [torch.arange(32.0)] if vector == "norm" else [torch.arange(96.0), *torch.arange(64.0).chunk(2)]
            made = RULES[f"{rule}_{vector}"](values, weight("v", ("s",), (1, 1, 1, sum(map(len, values)))), geometry)
            expected = torch.cat([value[order] if len(value) == 32 else value for value in values[:1]])
            assert torch.equal(made.flatten()[:32], expected[:32] if vector == "norm" else values[0][:32][order])


def test_a_fused_source_gives_gate_and_up_as_two_sources_do():
    gate, up = (torch.randn(64, 96, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    paired = weight("paired_projection", ("gate_up",), (96, 128))
    assert source_shapes(paired, GEOMETRY) == ((128, 96),)
    together = RULES["paired_projection"]([torch.cat((gate, up))], paired, GEOMETRY)
    assert torch.equal(together, RULES["paired_projection"]([gate, up], paired, GEOMETRY))
    assert torch.equal(together.t(), torch.cat((gate[:32], up[:32], gate[32:], up[32:])))
    for rule, expected in (("first_projection", gate), ("second_projection", up)):
        assert source_shapes(weight(rule, ("gate_up",), (96, 64)), GEOMETRY) == ((128, 96),)
        assert torch.equal(RULES[rule]([torch.cat((gate, up))], weight(rule, ("s",), (96, 64)), GEOMETRY), expected.t())


def test_rotary_tables_hold_cosines_and_sines_in_both_orders():
    turned = angles(GEOMETRY.rope, 8)
    for name, expected in {
        "rotary_cos": half_split(turned).cos(),
        "rotary_sin": half_split(turned).sin(),
        "rotary_cos_interleaved": turned.cos().repeat_interleave(2, 1),
        "rotary_sin_interleaved": turned.sin().repeat_interleave(2, 1),
    }.items():
        assert torch.equal(RULES[name]([], weight(name, (), (8, 32)), GEOMETRY), expected)
    two = replace(GEOMETRY, head_dim=64, rope=LONGROPE)
    both = RULES["rotary_cos_switched"]([], weight("rotary_cos_switched", (), (16, 64)), two)
    for half, factors in zip(both.chunk(2), (LONGROPE.short_factors, LONGROPE.long_factors)):
        assert torch.equal(half, half_split(cosines(LONGROPE, angles(LONGROPE, 8, factors), 64)))
    one = RULES["rotary_cos"]([], weight("rotary_cos", (), (16, 64)), two)
    assert torch.equal(one[:8], both[:8]) and not torch.equal(one[8:], both[8:])
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

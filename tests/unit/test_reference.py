"""The torch reference equals transformers, and would not if a term of the maths were missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.support.families import EVERY_GEOMETRY, build_peer, random_tokens
from tests.support.tiny.base import WINDOW

from runtime.reference import attention
from runtime.reference.dense import Cache, forward, token_by_token
from runtime.reference.parameters import RandomParameters, parameter_shapes
from runtime.reference.rope import cos_sin
from runtime.tables import Rope
from runtime.verification.comparison import relative_error

GEOMETRIES = EVERY_GEOMETRY
LIMIT = 2e-5  # transformers forms turning rates in float32, whose rounding is worth 3e-5 rad at position 300


@pytest.mark.parametrize("family", GEOMETRIES)
@pytest.mark.parametrize("length", [1, 2, 33, 300])
def test_logits_keys_and_values_equal_transformers(family, length):
    peer, tokens, cache = build_peer(family), random_tokens(length, seed=length), Cache()
    logits = forward(peer.geometry, peer.tensors, tokens, cache=cache)
    keys, values = peer.keys_and_values(tokens)
    assert relative_error(logits, peer.logits(tokens)) <= LIMIT
    for ours, theirs in zip(cache.keys + cache.values, keys + values, strict=True):
        assert relative_error(ours, theirs) <= LIMIT


def without(geometry, term):
    return {
        "bias": replace(geometry, query_key_value_bias=False),
        "head norms": replace(geometry, query_key_norm=False),
        "rope scaling": replace(geometry, rope=replace(geometry.rope, kind="default")),
        "attention factor": replace(geometry, rope=replace(geometry.rope, attention_factor=1.0)),
        "truncate": replace(geometry, rope=replace(geometry.rope, truncate=not geometry.rope.truncate)),
        "rotary dimensions": replace(geometry, rope=replace(geometry.rope, dimensions=geometry.head_dim)),
        "tied head": replace(geometry, tied_embeddings=not geometry.tied_embeddings),
        "epsilon": replace(geometry, norm_epsilon=0.1),
        "theta": replace(geometry, rope=replace(geometry.rope, theta=500.0)),
        "window": replace(geometry, sliding_window=0),
        "one token of the window": replace(geometry, sliding_window=WINDOW - 1),
        "full layers": replace(geometry, full_attention_layers=()),
        "local rope": replace(geometry, local_rope=None),
        "query scale": replace(geometry, query_scale=0),
        "soft cap of scores": replace(geometry, attention_soft_cap=0.0),
        "soft cap of logits": replace(geometry, logit_soft_cap=0.0),
        "sandwich norms": replace(geometry, sandwich_norms=False),
        "one of norms": replace(geometry, unit_offset_norms=False),
        "scale of the embedding": replace(geometry, scaled_embedding=False),
        "activation": replace(geometry, activation="silu"),
    }[term]


@pytest.mark.parametrize(
    "family, term",
    [
        ("qwen2", "bias"),
        ("qwen3", "head norms"),
        ("llama-tied", "rope scaling"),
        ("llama-linear", "rope scaling"),
        ("llama-yarn", "rope scaling"),
        ("llama-yarn", "attention factor"),
        ("llama-yarn", "truncate"),
        ("qwen3-yarn-not-truncated", "truncate"),
        ("phi3-longrope-in-waves", "rope scaling"),
        ("phi3-longrope-in-waves", "attention factor"),
        ("phi3-three-quarters", "rotary dimensions"),
        ("llama-tied", "tied head"),
        ("llama-untied", "tied head"),
        ("mistral", "epsilon"),
        ("mistral", "theta"),
        ("mistral-windowed", "window"),
        ("mistral-windowed", "one token of the window"),
        ("qwen3-upper-layers-windowed", "full layers"),
        ("gemma3", "window"),
        ("gemma3", "full layers"),
        ("gemma3", "local rope"),
        ("gemma3", "query scale"),
        ("gemma3", "head norms"),
        ("gemma3", "sandwich norms"),
        ("gemma3", "one of norms"),
        ("gemma3", "scale of the embedding"),
        ("gemma3", "activation"),
        ("gemma3-capped", "soft cap of logits"),
        ("gemma2", "one token of the window"),
        ("gemma2", "soft cap of scores"),
        ("gemma2", "soft cap of logits"),
    ],
)
def test_dropping_a_term_of_the_maths_fails_the_comparison(family, term):
    peer, tokens = build_peer(family), random_tokens(70, seed=1)
    tensors = {"lm_head.weight": torch.randn(peer.geometry.vocabulary, peer.geometry.hidden)} | peer.tensors
    assert relative_error(forward(without(peer.geometry, term), tensors, tokens), peer.logits(tokens)) > 100 * LIMIT


@pytest.mark.parametrize("name", ["self_attn.k_proj.weight", "mlp.up_proj.weight", "post_attention_layernorm.weight"])
def test_a_wrong_weight_fails_the_comparison(name):
    peer, tokens = build_peer("mistral"), random_tokens(33, seed=1)
    name = f"model.layers.1.{name}"
    tensors = peer.tensors | {name: peer.tensors[name].roll(1, 0)}
    assert relative_error(forward(peer.geometry, tensors, tokens), peer.logits(tokens)) > 100 * LIMIT


@pytest.mark.parametrize("family", GEOMETRIES)
def test_any_cut_of_a_prompt_gives_the_same_logits_as_token_by_token(family):
    peer, tokens = build_peer(family), random_tokens(70, seed=3)
    want, want_cache = token_by_token(peer.geometry, peer.tensors, tokens)
    cache, start, got = Cache(), 0, []
    for end in (1, 32, 33, 64, 70):
        got.append(forward(peer.geometry, peer.tensors, tokens[start:end], cache=cache))
        start = end
    assert relative_error(torch.cat(got), want) <= LIMIT
    assert cache.length == 70
    assert relative_error(torch.stack(cache.keys), torch.stack(want_cache.keys)) <= LIMIT


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_attention_in_small_blocks_of_queries_changes_nothing(monkeypatch, family):
    peer, tokens = build_peer(family), random_tokens(129, seed=4)
    whole = forward(peer.geometry, peer.tensors, tokens)
    monkeypatch.setattr(attention, "SCORE_LIMIT", 4 * 129 * 7)
    assert relative_error(forward(peer.geometry, peer.tensors, tokens), whole) <= LIMIT


@pytest.mark.parametrize("window", [0, WINDOW])
def test_attention_with_sinks_equals_that_of_gpt_oss(window):
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    draw = torch.Generator().manual_seed(7)
    query, key, value = (torch.randn(1, heads, 100, 32, generator=draw) for heads in (4, 2, 2))
    module = torch.nn.Module()
    module.num_key_value_groups, module.sinks = 2, 3 + torch.randn(4, generator=draw)
    behind = torch.arange(100)[:, None] - torch.arange(100)
    seen = (behind >= 0) & (behind < (window or 100))
    mask = torch.zeros(100, 100).masked_fill(~seen, float("-inf"))
    want, _ = eager_attention_forward(module, query, key, value, mask, scaling=0.25)
    found = [
        attention.attend(query[0, :, start:], key[0], value[0], start, scale=0.25, window=window, sinks=sinks)
        for start in (0, 64)
        for sinks in (module.sinks, None)
    ]
    want = want[0].flatten(1)
    assert max(relative_error(found[0], want), relative_error(found[2], want[64:])) <= LIMIT
    assert min(relative_error(found[1], want), relative_error(found[3], want[64:])) > 100 * LIMIT


def test_only_the_chosen_rows_reach_the_head_and_every_layer_is_observed():
    peer, tokens, seen = build_peer("llama-untied"), random_tokens(40, seed=5), []
    want = peer.model(torch.tensor([tokens]), output_hidden_states=True)
    got = forward(peer.geometry, peer.tensors, tokens, rows=[39, 0], observe=lambda *of_layer: seen.append(of_layer))
    assert got.shape == (2, peer.geometry.vocabulary)
    assert relative_error(got, want.logits[0, [39, 0]]) <= LIMIT
    assert [layer for layer, *_ in seen] == [0, 1]
    assert relative_error(seen[0][1], want.hidden_states[1][0]) <= LIMIT


def test_float64_agrees_and_half_precision_checkpoints_are_widened():
    peer, tokens = build_peer("qwen2"), random_tokens(33, seed=6)
    exact = forward(peer.geometry, peer.tensors, tokens, dtype=torch.float64)
    assert exact.dtype == torch.float64
    assert relative_error(exact, peer.logits(tokens)) <= LIMIT
    halves = {name: tensor.bfloat16() for name, tensor in peer.tensors.items()}
    widened = {name: tensor.float() for name, tensor in halves.items()}
    assert torch.equal(forward(peer.geometry, halves, tokens), forward(peer.geometry, widened, tokens))


@pytest.mark.parametrize("tokens", [[], [256], [-1], [[1, 2]]])
def test_token_ids_outside_the_vocabulary_are_refused(tokens):
    peer = build_peer("mistral")
    with pytest.raises(ValueError, match="from 0 to 255"):
        forward(peer.geometry, peer.tensors, tokens)


def test_an_unknown_rope_is_refused():
    with pytest.raises(ValueError, match="'dynamic' has no reference"):
        cos_sin(Rope("dynamic", 10000.0, 64), torch.arange(4), torch.float32, 4)


@pytest.mark.parametrize("family", GEOMETRIES)
def test_parameter_names_and_shapes_are_the_published_ones(family):
    peer = build_peer(family)
    assert parameter_shapes(peer.geometry) == {name: tuple(tensor.shape) for name, tensor in peer.tensors.items()}


@pytest.mark.parametrize("family", GEOMETRIES)
def test_random_parameters_depend_on_seed_and_name_and_keep_activations_finite_and_apart(family):
    geometry = GEOMETRIES[family]
    drawn = RandomParameters(geometry, seed=1)
    name = "input_layernorm.weight"
    assert torch.equal(drawn[f"model.layers.1.{name}"], RandomParameters(geometry, seed=1)[f"model.layers.1.{name}"])
    assert not torch.equal(
        drawn[f"model.layers.1.{name}"], RandomParameters(geometry, seed=2)[f"model.layers.1.{name}"]
    )
    assert not torch.equal(drawn[f"model.layers.1.{name}"], drawn[f"model.layers.0.{name}"])
    logits = forward(geometry, drawn, random_tokens(33, seed=1))
    assert logits.isfinite().all() and logits.std(dim=0).min() > 0.1

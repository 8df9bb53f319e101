"""The reference of Gated DeltaNet layers: equal to float64, to transformers and to itself, however a prompt is cut, packed or
padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.support.families import EVERY_GEOMETRY, RECURRENT, RECURRENT_VARIATIONS, build_peer, random_tokens
from torch import Tensor

from runtime.reference import delta_rule, gated_delta_net, layers
from runtime.reference.delta_rule import chunk_grid, chunked, in_token_order, inverse_of_unit_lower, recurrent, varlen
from runtime.reference.dense import Cache, forward, token_by_token
from runtime.reference.gated_delta_net import (
    NAME,
    Projected,
    State,
    advance,
    convolve,
    fresh,
    heads,
    l2_normalise,
    prefill,
)
from runtime.reference.parameters import RandomParameters, parameter_shapes
from runtime.tables import GatedDeltaNet
from runtime.verification.comparison import relative_error

HYBRIDS = RECURRENT | RECURRENT_VARIATIONS
NET = GatedDeltaNet(2, 4, key_dim=64, value_dim=32, kernel=4, published="split")
EPSILON = 1e-6
LENGTHS = [1, 63, 64, 65, 200]
BOUNDS = [0, 1, 64, 128, 193, 393]
TRANSFORMERS_LIMIT = 1e-4
LIMIT = 1e-5


@cache
def drawn(tokens: int, net: GatedDeltaNet = NET, seed: int = 0) -> dict[str, Tensor]:
    """What a scan takes, at random: of decays, slow and fast ones."""
    draw = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(net.key_heads, tokens, net.key_dim, generator=draw) for _ in range(2))
    return {
        "query": query / query.norm(dim=-1, keepdim=True) * net.key_dim**-0.5,
        "key": key / key.norm(dim=-1, keepdim=True),
        "value": torch.randn(net.value_heads, tokens, net.value_dim, generator=draw),
        "decay": -torch.exp(2 * torch.randn(tokens, net.value_heads, generator=draw) - 4),
        "update": torch.rand(tokens, net.value_heads, generator=draw),
    }


def state_of(net: GatedDeltaNet = NET, seed: int = 7) -> Tensor:
    return torch.randn(net.value_heads, net.key_dim, net.value_dim, generator=torch.Generator().manual_seed(seed))


def cut(scan: Mapping[str, Tensor], first: int, last: int) -> dict[str, Tensor]:
    return {name: part[first:last] if part.ndim == 2 else part[:, first:last] for name, part in scan.items()}


def doubled(scan: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.double() for name, part in scan.items()}


def in_slices(function, scan: Mapping[str, Tensor], size: int) -> tuple[Tensor, Tensor]:
    state, outputs = state_of(), []
    for first in range(0, scan["decay"].shape[0], size):
        found, state = function(**cut(scan, first, first + size), state=state)
        outputs.append(found)
    return torch.cat(outputs, dim=1), state


@cache
def projected(tokens: int, seed: int = 0, net: GatedDeltaNet = NET) -> Projected:
    scan, draw = drawn(tokens, net, seed), torch.Generator().manual_seed(seed + 100)
    mixed, gate = (torch.randn(tokens, width, generator=draw) for width in (net.convolution_width, net.value_width))
    return Projected(mixed, gate, scan["decay"], scan["update"])


def of_tokens(whole: Projected, first: int, last: int) -> Projected:
    return Projected(*(part[first:last] for part in vars(whole).values()))


@cache
def taps(net: GatedDeltaNet = NET) -> Tensor:
    return 0.5 * torch.randn(net.convolution_width, 1, net.kernel, generator=torch.Generator().manual_seed(3))


@cache
def held(count: int, net: GatedDeltaNet = NET) -> tuple[State, ...]:
    draw = torch.Generator().manual_seed(5)
    shape = (net.kernel - 1, net.convolution_width)
    return tuple(State(state_of(net, seed), torch.randn(shape, generator=draw)) for seed in range(count))


def same(found: State, wanted: State) -> bool:
    return torch.equal(found.rule, wanted.rule) and torch.equal(found.tail, wanted.tail)


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize("length", [1, 2, 3, 4, 63, 64, 65, 127, 128, 129, 200, 300])
def test_logits_keys_values_and_states_equal_transformers(family, length):
    peer, tokens, kept = build_peer(family), random_tokens(length, seed=length), Cache()
    logits = forward(peer.geometry, peer.tensors, tokens, cache=kept)
    errors = {"logits": relative_error(logits, peer.logits(tokens))}
    keys, values = peer.keys_and_values(tokens)
    rules, tails = peer.states(tokens)
    assert len(keys) == len(peer.geometry.full_attention_layers)
    for layer, (ours, theirs) in enumerate(zip(kept.keys + kept.values, keys + values, strict=True)):
        errors[f"keys and values {layer}"] = relative_error(ours, theirs)
    for layer, (ours, rule, tail) in enumerate(zip(kept.recurrent, rules, tails, strict=True)):
        errors[f"state {layer}"] = relative_error(ours.rule, rule)
        errors[f"tail {layer}"] = relative_error(ours.tail, tail)
    assert max(errors.values()) <= TRANSFORMERS_LIMIT, errors


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize(
    "term",
    ["attention_gate", "unit_offset_norms", "query_key_norm"],
)
def test_dropping_a_term_of_hybrid_models_fails_the_comparison(family, term):
    peer, tokens = build_peer(family), random_tokens(70, seed=1)
    tensors = dict(peer.tensors)
    if term == "attention_gate":
        for layer in peer.geometry.full_attention_layers:
            name = f"model.layers.{layer}.self_attn.q_proj.weight"
            tensors[name] = tensors[name].unflatten(0, (peer.geometry.query_heads, 2, -1))[:, 0].flatten(0, 1)
    found = forward(replace(peer.geometry, **{term: False}), tensors, tokens)
    assert relative_error(found, peer.logits(tokens)) > 100 * TRANSFORMERS_LIMIT


@pytest.mark.parametrize("part", ["A_log", "dt_bias", "conv1d.weight", "norm.weight"])
@pytest.mark.parametrize("family", RECURRENT)
def test_a_wrong_parameter_of_linear_attention_fails_the_comparison(family, part):
    peer, tokens = build_peer(family), random_tokens(70, seed=1)
    name = f"model.layers.1.{NAME}.{part}"
    found = forward(peer.geometry, {**peer.tensors, name: peer.tensors[name].roll(1, 0)}, tokens)
    assert relative_error(found, peer.logits(tokens)) > 10 * TRANSFORMERS_LIMIT


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5_moe"])
def test_without_the_shared_expert_the_comparison_fails(family):
    peer, tokens = build_peer(family), random_tokens(70, seed=1)
    alone = replace(peer.geometry, experts=replace(peer.geometry.experts, shared_intermediate=0))
    assert relative_error(forward(alone, peer.tensors, tokens), peer.logits(tokens)) > 100 * TRANSFORMERS_LIMIT


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 40])
def test_s001_05_conv_carry_makes_every_cut_equal_bit_for_bit(size):
    rows, (state,) = projected(40).mixed, held(1)
    whole, tail, outputs = *convolve(rows, state.tail, taps()), []
    carried = state.tail
    for first in range(0, 40, size):
        found, carried = convolve(rows[first : first + size], carried, taps())
        outputs.append(found)
    assert torch.equal(torch.cat(outputs), whole) and torch.equal(carried, tail)
    assert torch.equal(tail, rows[-3:])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 200])
def test_s001_05_a_recurrence_in_slices_equals_a_whole_one(size):
    scan = drawn(200)
    outputs, state = recurrent(**scan, state=state_of())
    exact = in_slices(recurrent, scan, size)
    assert torch.equal(exact[0], outputs) and torch.equal(exact[1], state)
    found = in_slices(chunked, scan, size)
    assert max(relative_error(found[0], outputs), relative_error(found[1], state)) <= LIMIT


@pytest.mark.parametrize("sizes", [(1, 2, 3, 194), (64, 64, 72), (40, 40, 40, 40, 40)])
@pytest.mark.parametrize("family", RECURRENT)
def test_s001_05_a_layer_in_slices_equals_a_whole_one(family, sizes):
    geometry, tokens = RECURRENT[family], random_tokens(200, seed=2)
    tensors = RandomParameters(geometry, 4)
    whole, kept, start, outputs = Cache(), Cache(), 0, []
    wanted = forward(geometry, tensors, tokens, cache=whole)
    for size in sizes:
        outputs.append(forward(geometry, tensors, tokens[start : start + size], cache=kept))
        start += size
        assert kept.length == start
    assert relative_error(torch.cat(outputs), wanted) <= LIMIT
    for ours, theirs in zip(kept.recurrent, whole.recurrent, strict=True):
        assert max(relative_error(ours.rule, theirs.rule), relative_error(ours.tail, theirs.tail)) <= LIMIT


def test_s001_06_a_request_never_sees_the_rows_of_the_one_before_it():
    whole, states = projected(393), held(5)
    outputs, after = advance(whole, taps(), NET, states, BOUNDS)
    poisoned = replace(whole, mixed=whole.mixed.clone())
    poisoned.mixed[64:128] = 1e4
    found, found_after = advance(poisoned, taps(), NET, states, BOUNDS)
    assert not torch.equal(found[:, 64:128], outputs[:, 64:128])
    assert torch.equal(found[:, 128:], outputs[:, 128:]) and torch.equal(found[:, :64], outputs[:, :64])
    assert [same(*pair) for pair in zip(found_after, after)] == [True, True, False, True, True]


def test_s001_07_queries_and_keys_are_of_length_one_and_values_are_as_they_were():
    rows = projected(40).mixed.clone()
    rows[0], rows[1] = 0, 1e-4 * rows[1]
    found = l2_normalise(rows, NET)
    width = 2 * NET.key_width
    given = rows[:, :width].unflatten(1, (2 * NET.key_heads, NET.key_dim)).double()
    wanted = given / (given.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    assert relative_error(found[:, :width], wanted.flatten(1)) <= 1e-6
    assert relative_error(found[1, :width], wanted[1].flatten()) <= 1e-6  # where the epsilon is most of the sum
    assert found[1, : NET.key_dim].norm() < 0.7 and abs(found[2, : NET.key_dim].norm() - 1) <= 1e-6
    assert torch.equal(found[:, width:], rows[:, width:]) and not found[0, :width].any()


def test_s001_07_it_runs_once_behind_every_convolution(monkeypatch):
    seen = []
    monkeypatch.setattr(
        gated_delta_net, "l2_normalise", lambda rows, net: seen.append(rows.shape) or l2_normalise(rows, net)
    )
    advance(projected(393), taps(), NET, held(5), BOUNDS)
    assert seen == [(393, NET.convolution_width)]


def test_queries_are_scaled_and_a_value_head_reads_the_key_head_of_its_group():
    query, key, value = heads(projected(5).mixed, NET)
    assert (query.shape, key.shape, value.shape) == ((2, 5, 64), (2, 5, 64), (4, 5, 32))
    assert torch.equal(query[1, 3], projected(5).mixed[3, 64:128] / 8)
    scan = drawn(70)
    outputs, _ = recurrent(**scan, state=state_of())
    other = scan | {"key": torch.stack((scan["key"][0], scan["key"][1].flip(0)))}
    found, _ = recurrent(**other, state=state_of())
    assert torch.equal(found[:2], outputs[:2]) and not torch.equal(found[2], outputs[2])


@pytest.mark.parametrize("scan", [varlen, in_token_order])
def test_s001_14_permuted_streams_give_permuted_outputs_and_states(scan):
    parts, states, order = drawn(393), [state_of(seed=seed) for seed in range(5)], [3, 0, 4, 1, 2]
    outputs, after = scan(**parts, states=states, cu_seqlens=BOUNDS)
    pieces = [cut(parts, BOUNDS[stream], BOUNDS[stream + 1]) for stream in order]
    moved = {
        name: torch.cat([piece[name] for piece in pieces], dim=0 if part.ndim == 2 else 1)
        for name, part in parts.items()
    }
    bounds = [0, *torch.tensor([LENGTHS[stream] for stream in order]).cumsum(0).tolist()]
    found, found_after = scan(**moved, states=[states[stream] for stream in order], cu_seqlens=bounds)
    for place, stream in enumerate(order):
        wanted = outputs[:, BOUNDS[stream] : BOUNDS[stream + 1]]
        assert torch.equal(found[:, bounds[place] : bounds[place + 1]], wanted)
        assert torch.equal(found_after[place], after[stream])


def test_s001_14_a_stream_depends_on_its_own_state_alone():
    parts, states = drawn(393), [state_of(seed=seed) for seed in range(5)]
    outputs, after = varlen(**parts, states=states, cu_seqlens=BOUNDS)
    states[2] = states[2] + 1
    found, found_after = varlen(**parts, states=states, cu_seqlens=BOUNDS)
    assert [torch.equal(*pair) for pair in zip(found_after, after)] == [True, True, False, True, True]
    changed = (found != outputs).any(dim=0).any(dim=1).nonzero().flatten()
    assert changed.min() >= 64 and changed.max() < 128


@pytest.mark.parametrize("exact", [False, True])
def test_s001_15_packed_streams_equal_each_by_itself_bit_for_bit(exact):
    whole, states = projected(393), held(5)
    outputs, after = advance(whole, taps(), NET, states, BOUNDS, exact=exact)
    for stream, (first, last) in enumerate(zip(BOUNDS, BOUNDS[1:])):
        part = of_tokens(whole, first, last)
        alone, (state,) = advance(part, taps(), NET, [states[stream]], [0, last - first], exact=exact)
        assert torch.equal(outputs[:, first:last], alone) and same(after[stream], state), stream


def test_s001_17_a_grid_of_chunks_for_each_stream(monkeypatch):
    grid = chunk_grid(BOUNDS)
    assert [sum(stream == one for stream, *_ in grid) for one in range(5)] == [1, 1, 1, 2, 4]
    for stream, first, last in grid:
        assert BOUNDS[stream] <= first < last <= min(first + 64, BOUNDS[stream + 1])
    calls, chunk = [], delta_rule._chunk
    monkeypatch.setattr(delta_rule, "_chunk", lambda *parts: calls.append(parts[2].shape[1]) or chunk(*parts))
    parts, states = drawn(393), [state_of(seed=seed) for seed in range(5)]
    outputs, after = varlen(**parts, states=states, cu_seqlens=BOUNDS)
    assert calls == [last - first for _, first, last in grid] == [1, 63, 64, 64, 1, 64, 64, 64, 8]
    for stream, (first, last) in enumerate(zip(BOUNDS, BOUNDS[1:])):
        wanted, state = recurrent(**cut(parts, first, last), state=states[stream])
        assert relative_error(outputs[:, first:last], wanted) <= LIMIT
        assert relative_error(after[stream], state) <= LIMIT


def test_s001_17_an_empty_stream_keeps_its_state():
    states = [state_of(seed=seed) for seed in range(3)]
    _, after = varlen(**drawn(70), states=states, cu_seqlens=[0, 70, 70, 70])
    assert [torch.equal(*pair) for pair in zip(after, states)] == [False, True, True]


@pytest.mark.parametrize(
    "bounds, count, words",
    [
        ([0, 64, 60, 70], 3, r"\[0, 64, 60, 70\] must begin with 0 and never fall"),
        ([1, 70], 1, r"\[1, 70\] must begin with 0"),
        ([0, 64], 1, "up to token 64; got 1 states and 70 tokens; give one state for each stream and all tokens"),
        ([0, 64, 70], 1, "bounds of 2 streams up to token 70; got 1 states"),
    ],
)
def test_s001_17_bounds_that_are_none_are_refused(bounds, count, words):
    with pytest.raises(ValueError, match=words):
        varlen(**drawn(70), states=[state_of()] * count, cu_seqlens=bounds)


@pytest.mark.parametrize("scan", [chunked, recurrent])
def test_s001_20_a_narrow_state_is_widened_for_the_scan_and_narrowed_once(scan):
    narrow = state_of().bfloat16()
    outputs, after = scan(**drawn(200), state=narrow)
    wanted, wide = scan(**drawn(200), state=narrow.float())
    assert after.dtype == torch.bfloat16 and outputs.dtype == torch.float32
    assert torch.equal(outputs, wanted) and torch.equal(after, wide.bfloat16())


@pytest.mark.parametrize("exact", [False, True])
def test_s001_20_a_scan_that_fails_leaves_the_stored_state_unchanged(monkeypatch, exact):
    geometry, kept = RECURRENT["qwen3_5"], Cache()
    tensors = RandomParameters(geometry, 4)
    forward(geometry, tensors, random_tokens(70, seed=2), cache=kept)
    before = [State(one.rule.clone(), one.tail.clone()) for one in kept.recurrent]

    def failing(*parts):
        scan(*parts)
        raise RuntimeError("no scan")

    name = "in_token_order" if exact else "varlen"
    scan = getattr(gated_delta_net, name)
    monkeypatch.setattr(gated_delta_net, name, failing)
    with pytest.raises(RuntimeError, match="no scan"):
        forward(geometry, tensors, [1, 2, 3], cache=kept, exact=exact)
    assert kept.length == 70 and all(same(*pair) for pair in zip(kept.recurrent, before, strict=True))


def test_s001_20_the_state_of_a_narrow_model_is_float32():
    geometry, kept = RECURRENT["qwen3_5"], Cache()
    forward(geometry, RandomParameters(geometry, 4), random_tokens(70, seed=2), cache=kept, dtype=torch.bfloat16)
    assert {(one.rule.dtype, one.tail.dtype) for one in kept.recurrent} == {(torch.float32, torch.bfloat16)}
    forward(geometry, RandomParameters(geometry, 4), [1], cache=(wide := Cache()), dtype=torch.float64)
    assert {one.rule.dtype for one in wide.recurrent} == {torch.float64}


@pytest.mark.parametrize("family", HYBRIDS)
def test_s001_21_exact_replay_is_token_by_token_bit_for_bit(monkeypatch, family):
    geometry, tokens, kept = HYBRIDS[family], random_tokens(70, seed=3), Cache()
    tensors = RandomParameters(geometry, 5)
    monkeypatch.setattr(gated_delta_net, "varlen", None)  # nothing may scan in chunks
    wanted, decoded = token_by_token(geometry, tensors, tokens)
    first = forward(geometry, tensors, tokens[:33], cache=kept, exact=True)
    found = torch.cat((first, forward(geometry, tensors, tokens[33:], cache=kept, exact=True)))
    assert torch.equal(found, wanted) and kept.length == decoded.length == 70
    for ours, theirs in zip(kept.keys + kept.values, decoded.keys + decoded.values, strict=True):
        assert torch.equal(ours, theirs)
    assert all(same(*pair) for pair in zip(kept.recurrent, decoded.recurrent, strict=True))
    monkeypatch.undo()
    assert relative_error(forward(geometry, tensors, tokens), wanted) <= LIMIT


@pytest.mark.parametrize("key_dim, value_dim", [(64, 64), (32, 64), (64, 32), (128, 128), (96, 32)])
@pytest.mark.parametrize("length", [1, 2, 3, 31, 63, 64, 65, 127, 128, 129, 200, 300])
def test_s001_22_chunks_of_any_head_width_equal_token_order_in_float64(key_dim, value_dim, length):
    net = replace(NET, key_dim=key_dim, value_dim=value_dim)
    scan, state = drawn(length, net), state_of(net)
    wanted, after = recurrent(**doubled(scan), state=state.double())
    assert wanted.dtype == torch.float64
    for function in (chunked, recurrent):
        found, found_after = function(**scan, state=state)
        assert max(relative_error(found, wanted), relative_error(found_after, after)) <= LIMIT


@pytest.mark.parametrize("end", [64, 128, 192, 256])
def test_prompts_cut_at_multiples_of_the_chunk_give_the_same_bits(end):
    scan = drawn(300)
    whole, after = chunked(**scan, state=state_of())
    first, state = chunked(**cut(scan, 0, end), state=state_of())
    second, state = chunked(**cut(scan, end, 300), state=state)
    assert torch.equal(torch.cat((first, second), dim=1), whole) and torch.equal(state, after)


def hard(case: str, tokens: int = 300) -> dict[str, Tensor]:
    """Scans on which a chunk is inverted wrongly, or overflows, by less careful means."""
    scan, draw = dict(drawn(tokens)), torch.Generator().manual_seed(9)
    base = torch.randn(NET.key_heads, 1, NET.key_dim, generator=draw)
    spread = 0.0 if case == "equal keys" else 0.15
    keys = base + spread * torch.randn(scan["key"].shape, generator=draw)
    if case not in ("fast", "to 1e-12", "mixed", "uneven"):
        scan["key"] = keys / keys.norm(dim=-1, keepdim=True)
    if case == "equal keys":
        scan |= {"decay": torch.zeros_like(scan["decay"]), "update": torch.ones_like(scan["update"])}
    decay = {"slow": -1e-4, "fast": -20.0, "to 1e-12": -27.631, "correlated": -0.05}.get(case)
    if decay is not None:
        scan["decay"] = torch.full_like(scan["decay"], decay)
    if case == "uneven":
        scan["decay"] = -torch.exp(2 * torch.randn(scan["decay"].shape, generator=draw) + 2)
    if case == "mixed":
        scan["decay"] = torch.where(torch.rand(scan["decay"].shape, generator=draw) < 0.1, -27.631, -1e-5)
    return scan


@pytest.mark.parametrize("case", ["correlated", "slow", "fast", "to 1e-12", "mixed", "uneven", "equal keys"])
def test_hard_scans_in_float32_equal_token_order_in_float64(case):
    scan = hard(case)
    if case in ("correlated", "slow"):
        alike = (scan["key"] @ scan["key"].transpose(1, 2)).mean()
        assert alike >= 0.96, f"mean product of keys {alike}"
    wanted, after = recurrent(**doubled(scan), state=state_of().double())
    for function in (chunked, recurrent):
        found, found_after = function(**scan, state=state_of())
        assert found.isfinite().all() and found_after.isfinite().all()
        errors = relative_error(found, wanted), relative_error(found_after, after)
        assert max(errors) <= LIMIT, f"{function.__name__}: outputs and state are off by {errors}"


def test_the_inverse_of_equal_keys_is_exact():
    """Of ones below the diagonal it is one on it and minus one right below."""
    found = inverse_of_unit_lower(torch.ones(64, 64).tril(-1))
    assert torch.equal(found, torch.eye(64) - torch.eye(64).roll(1, 0).tril())


def test_s001_23_a_sequence_without_tokens_has_a_state_of_zeros():
    state = fresh(NET, torch.float32)
    assert state.rule.shape == (4, 64, 32) and state.tail.shape == (3, NET.convolution_width)
    assert not state.rule.any() and not state.tail.any()


@pytest.mark.parametrize("family", RECURRENT)
def test_s001_25_a_kind_without_a_prefill_body_decodes_each_token_in_turn(monkeypatch, family):
    geometry, tokens = RECURRENT[family], random_tokens(70, seed=6)
    tensors = RandomParameters(geometry, 7)
    kept, seen = Cache(), []
    wanted = forward(geometry, tensors, tokens, cache=(whole := Cache()))

    known = layers.KINDS["gated_delta_net"]

    def decode(normed, layer):
        seen.append((layer.place, layer.start, normed.shape[0], layer.cos.shape[0]))
        return known.decode(normed, layer)

    monkeypatch.setitem(layers.KINDS, "gated_delta_net", layers.Kind(None, decode))
    first = forward(geometry, tensors, tokens[:40], cache=kept)
    found = torch.cat((first, forward(geometry, tensors, tokens[40:], cache=kept)))
    places = range(geometry.layers - len(geometry.full_attention_layers))
    assert seen == [(place, token, 1, 1) for part in (range(40), range(40, 70)) for place in places for token in part]
    assert relative_error(found, wanted) <= LIMIT
    for ours, theirs in zip(kept.recurrent, whole.recurrent, strict=True):
        assert max(relative_error(ours.rule, theirs.rule), relative_error(ours.tail, theirs.tail)) <= LIMIT


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("valid", [0, 1, 2, 3, 64, 70, 127])
def test_s001_26_padding_changes_no_state(valid, exact):
    """Whatever is in the rows of padding, as long as it is finite."""
    whole, (state,) = projected(128), held(1)
    padded = replace(whole, mixed=whole.mixed.clone())
    padded.mixed[valid:] = 1e3
    outputs, (after,) = advance(padded, taps(), NET, [state], [0, 128], exact=exact, valid=[valid])
    alone, (wanted,) = advance(of_tokens(whole, 0, valid), taps(), NET, [state], [0, valid], exact=exact)
    assert torch.equal(after.tail, wanted.tail)
    assert relative_error(after.rule, wanted.rule) <= 1e-6
    assert valid == 0 or relative_error(outputs[:, :valid], alone) <= 1e-6
    assert valid or same(after, state)


@pytest.mark.parametrize("family", RECURRENT)
def test_s001_02_projections_of_stacked_tokens_are_those_of_each_part(family):
    geometry = RECURRENT[family]
    drawn_parameters = RandomParameters(geometry, 4)

    def parameter(name):
        return drawn_parameters[f"model.layers.0.{name}"]

    hidden = torch.randn(100, geometry.hidden, generator=torch.Generator().manual_seed(1))
    whole = gated_delta_net.project(hidden, parameter, geometry.gated_delta_net)
    for first, last in ((0, 33), (33, 100)):
        part = gated_delta_net.project(hidden[first:last], parameter, geometry.gated_delta_net)
        for ours, theirs in zip(vars(of_tokens(whole, first, last)).values(), vars(part).values(), strict=True):
            assert relative_error(ours, theirs) <= LIMIT
    assert whole.decay.max() <= 0 and 0 < whole.update.min() and whole.update.max() < 1
    state = fresh(geometry.gated_delta_net, torch.float32)
    first = prefill(hidden, parameter, geometry.gated_delta_net, EPSILON, state)
    again = prefill(hidden, parameter, geometry.gated_delta_net, EPSILON, state)
    assert torch.equal(first[0], again[0]) and same(first[1], again[1]) and not state.rule.any()


def test_layers_without_keys_are_observed_without_them():
    geometry, seen = EVERY_GEOMETRY["qwen3_5-attention-first"], []
    cache = Cache()
    tensors = RandomParameters(geometry, 4)
    forward(geometry, tensors, [1, 2, 3], cache=cache)
    forward(geometry, tensors, [4, 5], cache=cache, observe=lambda *one: seen.append(one))
    assert [(layer, key is None) for layer, _, key, _ in seen] == [(0, False), (1, True), (2, False), (3, True)]
    assert torch.equal(seen[2][2], cache.keys[1][:, 3:]) and seen[2][3].shape == (1, 2, 64)
    assert (cache.length, len(cache.keys), len(cache.recurrent)) == (5, 2, 2)


def test_random_decays_are_slow_and_fast_and_the_gated_norm_is_around_one():
    geometry = RECURRENT["qwen3_5"]
    wide = replace(geometry, gated_delta_net=replace(geometry.gated_delta_net, value_heads=64))
    tensors = RandomParameters(wide, 1)
    rate = tensors[f"model.layers.0.{NAME}.A_log"].exp()
    step = torch.nn.functional.softplus(tensors[f"model.layers.0.{NAME}.dt_bias"])
    decay = rate * step
    assert 0.5 <= rate.min() < 2 and 14 < rate.max() <= 16 and decay.min() < 0.1 and decay.max() > 5
    assert 0.8 < tensors[f"model.layers.0.{NAME}.norm.weight"].mean() < 1.2
    assert abs(tensors["model.norm.weight"].mean()) < 0.2
    assert set(parameter_shapes(wide)) == set(tensors)

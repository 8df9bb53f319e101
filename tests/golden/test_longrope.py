"""Rotary embeddings that depend on the length of the whole prompt, against transformers on both sides of the switch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from runtime.backend import open_device
from runtime.errors import RotarySwitch
from runtime.reference.dense import token_by_token
from runtime.values import HostValues
from runtime.verification import bench as benches
from runtime.verification.comparison import relative_error
from runtime.verification.expected import expect, peer_logits
from runtime.verify import FLOAT32, gate
from tests.support.families import LONGROPE
from tests.support.golden import EXACT, Bench, build_module, manifest, mistaken, module_of

LIMIT = 1e-4
WRONG = 100 * LIMIT
IN_WAVES = [family for family in LONGROPE if family.endswith("waves")]
IN_CHUNKS = [family for family in LONGROPE if family.endswith("chunks")]


@pytest.fixture(scope="module", params=LONGROPE)
def bench(request):
    return Bench(request.param)


def holds(bench: Bench, rows: list, **call: Any) -> bool:
    errors = bench.errors(rows, bench.call(rows, **call))
    assert max(errors.values()) <= LIMIT, f"relative errors {errors} over {LIMIT:g}"
    return True


def test_prompts_around_the_switch_equal_transformers(bench):
    switch = bench.module.ROTARY_SWITCH
    for seed, length in enumerate((1, switch - 1, switch, switch + 1, switch + 29, 300, 640)):
        assert holds(bench, bench.rows([length], seed)), length


@pytest.mark.parametrize("family", IN_WAVES)
def test_a_wave_may_hold_prompts_of_both_sides(family):
    bench = Bench(family)
    rows = bench.rows([99, 101, 100, 128, 97], seed=1)
    pages, lengths = [list(row.pages) for row in rows], [len(row.tokens) for row in rows]
    (plan,) = bench.prefill.prepare([row.tokens + (0,) * (128 - len(row.tokens)) for row in rows], pages, lengths)
    assert (plan.chunks[0].shape.variant, plan.chunks[0].shape.rows) == ("batched", 8)
    assert holds(bench, rows)


@pytest.mark.parametrize("family", IN_CHUNKS)
def test_chunks_that_rows_of_both_sides_share_are_turned_row_by_row(family):
    bench = Bench(family)
    rows = bench.rows([201, 199, 200, 256], seed=2)
    tokens = np.zeros((4, 256), dtype=np.int64)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = row.tokens
    pages = [list(row.pages) + [-1] * (8 - len(row.pages)) for row in rows]
    (plan,) = bench.prefill.prepare(tokens, pages, [len(row.tokens) for row in rows])
    assert [chunk.shape.variant for chunk in plan.chunks] == ["chunked_batched", "chunked_batched"]
    assert holds(bench, rows)


def test_rows_of_every_length_in_one_call_equal_transformers(bench):
    assert holds(bench, bench.rows([1, 99, 100, 101, 128, 129, 199, 200, 201, 300, 600], seed=3))


def test_a_prefix_of_a_prompt_on_the_same_side_may_be_cached(bench):
    """A long prompt behind the first tokens of another long one, and a short one behind those of a short one."""
    switch = bench.module.ROTARY_SWITCH
    for first_length, second_length, cached in ((switch + 200, switch + 1, 96), (switch, switch - 1, 64)):
        first, second = bench.rows([first_length, second_length], seed=first_length)
        blocks = cached // bench.module.BLOCK_SIZE
        shared = type(second)(
            0, first.tokens[:cached] + second.tokens[cached:], first.pages[:blocks] + second.pages[blocks:]
        )
        assert holds(bench, [first])
        assert holds(bench, [shared], starts=[cached], slots=[6])


def test_slices_on_one_side_equal_transformers(bench):
    switch = bench.module.ROTARY_SWITCH
    past = -(-(switch + 1) // 32) * 32
    for cuts, length in (((past, past + 64), 640), ((32, 64), switch)):
        (row,) = bench.rows([length], seed=length)
        for start, end in zip((0, *cuts), cuts):
            assert bench.call([row], starts=[start], ends=[end], slots=[4], final=False) == (None,)
        assert holds(bench, [row], starts=[cuts[-1]], slots=[4])


@pytest.mark.parametrize("final", [True, False])
def test_a_slice_across_the_switch_is_refused_before_anything_is_written(bench, final):
    """What the slot holds was turned for a short prompt: a whole prompt or a first slice past the switch may follow."""
    (row,) = bench.rows([320], seed=8)
    bench.call([row], ends=[64], slots=[3], final=False)
    before = bench.everything()
    with pytest.raises(RotarySwitch, match=f"longer than {bench.module.ROTARY_SWITCH} tokens"):
        bench.prefill.prepare([row.tokens], [list(row.pages)], [320], [64], [3], final=final)
    assert torch.equal(bench.everything(), before)
    bench.prefill.reset(3)
    assert holds(bench, [row], slots=[3])


@pytest.mark.parametrize("family", IN_WAVES)
def test_traces_serve_both_sides(family):
    module = module_of(family)
    kept = {name: value for name, value in vars(module).items() if name not in ("TRACES", "PROGRAMS")}
    shapes = tuple([shape for shape in module.TRACES if shape.rows <= 2])
    programs = tuple([(shape.digest, ending) for shape in shapes for ending in module.SAMPLING])
    bench = Bench(family, module=SimpleNamespace(**kept, TRACES=shapes, PROGRAMS=programs))
    bench.device = open_device(module.BOARD, precision="float32", trace_region_size=1 << 28)
    bench.load(bench.peer.tensors)
    bench.prefill.warm_up()
    bench.prefill.capture(decode_traces="none")
    for seed, lengths in enumerate([(99, 101), (101, 99), (300, 101)]):
        rows = bench.rows(lengths, seed)
        tokens = [row.tokens + (0,) * (max(lengths) - len(row.tokens)) for row in rows]
        pages = [list(row.pages) + [-1] * (10 - len(row.pages)) for row in rows]
        logits = bench.prefill.prefill_forward(tokens, pages, list(lengths), traced=True)
        assert max(bench.errors(rows, logits).values()) <= LIMIT
    bench.prefill.cleanup()


@pytest.mark.parametrize("family", LONGROPE)
def test_the_reference_takes_the_whole_prompt_for_its_length_at_any_cut(family):
    bench = Bench(family)
    peer, tokens = bench.peer, bench.rows([bench.module.ROTARY_SWITCH + 1])[0].tokens
    logits, _ = token_by_token(peer.geometry, peer.tensors, tokens)
    assert relative_error(logits, peer.logits(list(tokens))) <= 1e-5


def test_a_context_that_no_prompt_leaves_has_one_set_of_tables():
    family = IN_CHUNKS[0]
    data = manifest(family, EXACT)
    data["target"]["n150"] |= {"context": 192}
    module = build_module(data)
    assert not hasattr(module, "ROTARY_SWITCH")
    assert {weight.shape[0] for weight in module.WEIGHTS if weight.name.startswith("rotary_")} == {192}
    bench = Bench(family, module=module)
    assert holds(bench, bench.rows([192, 100], seed=4))


@pytest.mark.parametrize("family", LONGROPE)
def test_verification_passes_on_both_sides_and_by_every_route(family):
    """Prefixes and slices of a long prompt that are short themselves are left out: nobody may serve them."""
    bench = Bench(family)
    peer, switch = bench.peer, bench.module.ROTARY_SWITCH
    prompts = [list(row.tokens) for row in bench.rows([33, switch, switch + 1, 600], seed=6)]
    answers = zip(prompts, *peer_logits(peer.model, prompts), (0, 0, 0, 64))
    expected = [expect(peer.geometry, peer.tensors, *answer) for answer in answers]
    verified = benches.Bench(bench.module, bench.device, bench.weights, bench.stores, "emulator")
    cases, layers = verified.compare(expected, gate(bench.module, FLOAT32))
    assert [case.name for case in cases if not case.passed] == []
    assert {case.route for case in cases if case.tokens == 600} == {"alone", "together", "cached prefix", "slices"}
    assert all(max(layer.hidden_max_relative_error, layer.keys_max_relative_error) <= LIMIT for layer in layers)


# --- the comparison notices a mistake --------------------------------------------------------------------------------


def by_padded_length(self, prepared, chunk):
    """What a pass that looked at its own size would do."""
    row = np.arange(chunk.start, chunk.start + chunk.shape.tokens, dtype=np.int32)
    end = chunk.start + chunk.shape.tokens
    return np.tile(row + (self._context if end > self._rotary_switch else 0), chunk.shape.rows)[np.newaxis]


@pytest.mark.parametrize("family, length", [(IN_WAVES[0], 99), (IN_CHUNKS[0], 199), (IN_CHUNKS[1], 300)])
def test_choosing_by_the_padded_length_fails_the_comparison(monkeypatch, family, length):
    monkeypatch.setattr(HostValues, "positions", by_padded_length)
    bench = Bench(family)
    rows = bench.rows([length], seed=1)
    errors = bench.errors(rows, bench.call(rows))
    assert min(errors["logits"], errors["keys"]) > WRONG, errors


@pytest.mark.parametrize("family", LONGROPE)
def test_never_switching_fails_the_comparison(family):
    never = {"ROTARY_SWITCH": module_of(family).CONTEXT - 1}
    bench = Bench(family, module=SimpleNamespace(**vars(module_of(family)) | never))
    short, long = bench.rows([bench.geometry.rope.original_context, 300], seed=1)
    assert holds(bench, [short])
    errors = bench.errors([long], bench.call([long]))
    assert min(errors["logits"], errors["keys"]) > WRONG, errors


@pytest.mark.parametrize("family", [IN_WAVES[0], IN_CHUNKS[1]])
@pytest.mark.parametrize("length", [90, 300])
@pytest.mark.parametrize("change", ["attention_factor", "exchanged factors", "one factor"])
def test_a_wrong_number_fails_the_comparison_on_both_sides(family, length, change):
    rope = module_of(family).GEOMETRY.rope
    short, long = rope.short_factors, rope.long_factors
    wrong = {
        "attention_factor": {"attention_factor": 1.0},
        "exchanged factors": {"short_factors": long, "long_factors": short},
        "one factor": {
            name: (*factors[:2], factors[2] * 1.1, *factors[3:])
            for name, factors in (("short_factors", short), ("long_factors", long))
        },
    }[change]
    bench = Bench(family, module=mistaken(family, **wrong))
    rows = bench.rows([length], seed=2)
    assert bench.errors(rows, bench.call(rows))["keys"] > WRONG

"""The two forms of the recurrence: the library's operation and plain matmuls give the same, and both the recurrence itself."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from runtime.backend import ttnn
from runtime.verification.comparison import relative_error
from runtime.verify import FLOAT32_ERROR
from tests.support.golden import EXACT, build_module, manifest
from tests.support.hybrids import PARTS, HybridBench, hybrid_bench
from tests.support.phase_calls import back, convolved_of, delta_of, layer_of, on_device, scanned, shape_of, states_of
from tests.support.recurrence import Drawn, draw, token_by_token

LIMIT = 1e-5
FAMILIES = ("qwen3_5", "qwen3_next")
FORMS = ("operation", "matmuls")
GEOMETRIES = ("qwen3_5-more-heads-in-a-wave-than-cores", "qwen3_5-wide-values-tied", "qwen3_5-narrow-values")
ALIKE = 0.98


@cache
def bench_of(family: str, form: str | None = None) -> HybridBench:
    """A geometry in the form that it is emitted in by itself, or in another."""
    if form is None:
        return hybrid_bench(family)
    data = manifest(family, EXACT)
    data["target"]["n150"] |= {"recurrence": form, "lengths": (64, 128)}
    return HybridBench(family, module=build_module(data))


BENCHES = [*[(family, form) for family in FAMILIES for form in FORMS], *[(family, None) for family in GEOMETRIES]]


@pytest.fixture(params=BENCHES, ids=lambda one: "-".join(filter(None, one)))
def bench(request):
    return bench_of(*request.param)


def equal_keys(drawn: Drawn) -> Drawn:
    """One key for all tokens, each update whole, no decay: every token replaces what the one before it wrote."""
    return drawn._replace(
        k=drawn.k[:, :1].expand_as(drawn.k), beta=torch.ones_like(drawn.beta), g=torch.zeros_like(drawn.g)
    )


CASES = {
    "slow decay": {"decay": "slow"},
    "fast decay": {"decay": "fast"},
    "a decay of 1e-12": {"decay": "1e-12"},
    "no decay": {"decay": "none"},
    "keys alike": {"likeness": ALIKE},
    "keys alike and slow decay": {"likeness": ALIKE, "decay": "slow"},
    "keys alike and no decay": {"likeness": ALIKE, "decay": "none"},
}


def drawn_for(bench: HybridBench, case: str, seed: int, tokens: int, rows: int = 1) -> Drawn:
    net = bench.geometry.gated_delta_net
    sizes = {name: getattr(net, name) for name in ("key_heads", "value_heads", "key_dim", "value_dim")}
    made = draw(seed, batch=rows, tokens=tokens, **sizes, **CASES.get(case, {}))
    return equal_keys(made) if case == "equal keys" else made


def worst(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> float:
    return max(relative_error(*pair) for pair in zip(found, wanted, strict=True))


@pytest.mark.parametrize("case", [*CASES, "equal keys"])
def test_every_form_equals_token_order_in_float64(bench, case):
    for seed, (rows, tokens) in enumerate([(1, 128), (8, 64)]):
        drawn = drawn_for(bench, case, seed, tokens, rows)
        assert worst(scanned(bench, drawn), token_by_token(drawn)) <= LIMIT


def test_keys_that_count_as_alike_are():
    drawn = draw(1, tokens=128, likeness=ALIKE)
    unit = torch.nn.functional.normalize(drawn.k[0, :, 0], dim=-1)
    assert (unit @ unit.T).mean() >= 0.96


def test_rows_of_a_wave_may_be_of_any_kind(bench):
    """Each row of another kind, so that none may be scaled or masked by its neighbour's."""
    cases = [*CASES, "equal keys"]
    parts = [drawn_for(bench, case, seed, 64) for seed, case in enumerate(cases)]
    drawn = Drawn(*[torch.cat(part) for part in zip(*parts)])
    found, heads = scanned(bench, drawn), drawn.v.shape[2]
    for row, (case, part) in enumerate(zip(cases, parts, strict=True)):
        own = found[0][row * heads : (row + 1) * heads], found[1][row : row + 1]
        assert worst(own, token_by_token(part)) <= LIMIT, case


def test_s001_15_a_wave_equals_each_of_its_rows_alone(bench):
    drawn = drawn_for(bench, "keys alike", 5, 64, rows=8)
    given, states = scanned(bench, drawn)
    for row in range(8):
        alone = scanned(bench, drawn.row(row))
        heads = drawn.v.shape[2]
        assert worst(alone, (given[row * heads : (row + 1) * heads], states[row : row + 1])) <= LIMIT


def test_s001_08_a_recurrence_in_two_calls_is_one_bit_for_bit(bench):
    """It covers every token it is given, from the state it is given, and leaves the state that the next one goes on from."""
    drawn = drawn_for(bench, "keys alike", 6, 128)
    given, states = scanned(bench, drawn)
    first, between = scanned(bench, drawn.cut(0, 64))
    second, after = scanned(bench, drawn.cut(64, 128)._replace(state=between))
    assert torch.equal(torch.cat([first, second], dim=1), given) and torch.equal(after, states)
    assert not torch.equal(between, states) and not torch.equal(drawn.state, between)


def test_s001_26_a_state_behind_padding_is_the_one_before_it(bench):
    """S001-07: and what padding holds is of no account, as long as it is finite."""
    shape, layer, counts = shape_of(bench, 8, 64), layer_of(bench), [64, 1, 33, 0, 63, 2, 32, 5]
    drawn = drawn_for(bench, "mixed", 7, 64, rows=8)
    padding = (torch.arange(64) >= torch.tensor(counts)[:, None])[:, :, None]
    rates = {"g": drawn.g.masked_fill(padding, 0), "beta": drawn.beta.masked_fill(padding, 0)}
    wild = padding[..., None]
    masked = drawn._replace(**rates, **{name: getattr(drawn, name).masked_fill(wild, 1e3) for name in ("q", "k", "v")})
    given, states = scanned(bench, masked)
    heads = drawn.v.shape[2]
    for row, count in enumerate(counts):
        if not count:
            assert torch.equal(states[row], drawn.state[row])
            continue
        wanted = token_by_token(drawn.row(row).cut(0, count))
        own = given[row * heads : (row + 1) * heads, :count]
        assert worst((own, states[row : row + 1]), wanted) <= LIMIT, count
    assert torch.isfinite(given).all() and layer.kind == "gated_delta_net" and shape.rows == 8


def test_s001_14_a_wave_reads_and_writes_the_states_of_its_own_rows(bench):
    drawn = drawn_for(bench, "mixed", 8, 64, rows=8)
    given, states = scanned(bench, drawn)
    order = [3, 0, 7, 5, 1, 2, 6, 4]
    again, moved = scanned(bench, Drawn(*[part[order] for part in drawn]))
    heads = drawn.v.shape[2]
    assert torch.equal(moved, states[order])
    assert torch.equal(again.unflatten(0, (8, heads)), given.unflatten(0, (8, heads))[order])
    other = drawn._replace(state=torch.cat([drawn.state[:1] + 1, drawn.state[1:]]))
    changed_given, changed = scanned(bench, other)
    assert torch.equal(changed[1:], states[1:]) and not torch.equal(changed[0], states[0])
    assert torch.equal(changed_given[heads:], given[heads:])


def test_states_of_rows_beyond_a_pass_are_not_written(bench):
    module, shape, layer = bench.module, shape_of(bench, 2, 64), layer_of(bench)
    drawn = drawn_for(bench, "mixed", 9, 64, rows=2)
    held = [*states_of(bench, drawn), on_device(bench, torch.full((1, *drawn.state.shape[1:]), 3.5), ttnn.float32)]
    given = convolved_of(bench, drawn)
    delta = delta_of(bench, shape)
    if hasattr(module, "normalise"):
        given = module.normalise(given, delta, layer, shape)
    module.recur(given, held, delta, layer, shape)
    assert (back(held[2]) == 3.5).all() and not torch.equal(back(held[0])[0], drawn.state[0])


# --- the whole model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_in_either_form_gives_the_same(family):
    one, other = (bench_of(family, form) for form in FORMS)
    assert set(one.module.RECURRENCE.values()) == {"alone", "wave"} and set(other.module.RECURRENCE.values()) == {
        "matmuls"
    }
    one.forget(), other.forget()
    rows = one.rows([1, 3, 64, 65, 100, 128, 129, 300, 300], seed=2)
    found, wanted = one.call(rows), other.call(rows)
    first, errors = 0.0, {"logits": relative_error(found, wanted)}
    for slot, row in enumerate(rows):
        ours, theirs = one.cache(row) | one.held(slot), other.cache(row) | other.held(slot)
        first = max(first, *[relative_error(ours[name][0], theirs[name][0]) for name in PARTS])
        for name in ("keys", "values", *PARTS):
            errors[f"{name} of {len(row.tokens)}"] = max(map(relative_error, ours[name], theirs[name]))
    assert first <= LIMIT, "states and tails of the first layer, before which nothing differs"
    assert max(errors.values()) <= FLOAT32_ERROR, errors  # each norm makes as much of a small head as of any other

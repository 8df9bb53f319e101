"""The phases of emitted recurrent layers, one by one: what each takes, leaves and touches, in both forms of the recurrence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.backend import ttnn
from runtime.phases import Convolved, Projected, Recurred
from runtime.verification.comparison import relative_error
from tests.support.hybrids import HybridBench, hybrid_bench
from tests.support.phase_calls import (
    PHASED,
    arguments_of,
    back,
    convolved_of,
    delta_of,
    drawn_of,
    hidden_of,
    inputs_of,
    layer_of,
    on_device,
    shape_of,
    states_of,
    tails_of,
)
from tests.support.recurrence import Drawn, token_by_token, unit_rows

LIMIT = 1e-5
POISON = 1e4


@pytest.fixture(params=PHASED)
def bench(request):
    made = hybrid_bench(request.param)
    made.device.before_operation = None
    return made


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def projected(bench: HybridBench, hidden: torch.Tensor, shape: Any, counts: Any = None, layer: Any = None) -> Projected:
    delta = delta_of(bench, shape, counts)
    return bench.module.project(hidden_of(bench, hidden), delta, layer or layer_of(bench), shape)


def parts(made: Projected) -> dict[str, torch.Tensor]:
    """Each part [tokens, width]."""
    return {name: back(part)[0, 0] for name, part in vars(made).items()}


def mixed_of(bench: HybridBench, mixed: torch.Tensor) -> Projected:
    """[tokens, width] as what the convolution takes; it passes the rest on."""
    return Projected(on_device(bench, mixed[None, None]), None, None, None)


def convolved(
    bench: HybridBench, mixed: torch.Tensor, tails: torch.Tensor, shape: Any, counts: Any = None
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Of each row [tokens, width] what the convolution gives, and the tails after it."""
    held, inputs = tails_of(bench, tails), inputs_of(bench, shape, counts or [shape.tokens] * shape.rows)
    delta = delta_of(bench, shape, counts)
    made = bench.module.convolve(mixed_of(bench, mixed), held, delta, layer_of(bench), inputs, shape)
    assert type(made) is Convolved and len(made.rows) == shape.rows
    return [torch.cat([back(part)[0] for part in row], dim=-1) for row in made.rows], torch.cat(
        [back(tail) for tail in held]
    )


# --- phase 1 -----------------------------------------------------------------------------------------------------------


def test_s001_02_a_projection_of_stacked_rows_is_that_of_each_row_and_holds_no_state(bench):
    hidden = normal(2, 128, bench.module.HIDDEN)
    before = bench.device_bits()
    stacked = parts(projected(bench, hidden, shape_of(bench, 2, 64)))
    again = parts(projected(bench, hidden, shape_of(bench, 2, 64)))
    for row in range(2):
        own = slice(64 * row, 64 * row + 64)
        alone = parts(projected(bench, hidden[own], shape_of(bench, 1, 64)))
        for name, part in alone.items():
            assert relative_error(stacked[name][own], part) <= 1e-6, name
    assert all(torch.equal(stacked[name], again[name]) for name in stacked)
    assert bench.device_bits() == before


def test_s001_03_phase_one_leaves_what_is_convolved_a_gate_and_two_rates_in_float32(bench):
    """Where the row speaks of one float32 tensor of gates and updates [T, 2 * value heads], this form leaves two of them, decay
    first; the first is the logarithm of a decay, and the output gate and what is convolved are raw.
    """
    module, net, shape = bench.module, bench.geometry.gated_delta_net, shape_of(bench, 1, 64)
    layer, hidden = layer_of(bench), normal(3, 64, bench.module.HIDDEN)
    made = projected(bench, hidden, shape)
    assert list(vars(made)) == ["mixed", "gate", "decay", "update"]
    widths = {
        "mixed": net.convolution_width,
        "gate": net.value_width,
        "decay": net.value_heads,
        "update": net.value_heads,
    }
    for name, width in widths.items():
        tensor = getattr(made, name)
        assert tuple(tensor.shape) == (1, 1, 64, width)
        assert tensor.dtype == (ttnn.float32 if name in ("decay", "update") else ttnn.bfloat16)
    rms = hidden.double() * torch.rsqrt(hidden.double().square().mean(-1, keepdim=True) + module.NORM_EPSILON)
    normed = rms * back(layer.delta_norm).double().flatten()
    raw = {name: normed @ back(getattr(layer, name)).double() for name in ("mixed", "output_gate", "decay", "update")}
    rate, bias = (back(getattr(layer, name)).double().flatten() for name in ("decay_rate", "decay_bias"))
    wanted = {
        "mixed": raw["mixed"],
        "gate": raw["output_gate"],
        "decay": rate * torch.nn.functional.softplus(raw["decay"] + bias),
        "update": raw["update"].sigmoid(),
    }
    for name, found in parts(made).items():
        assert relative_error(found, wanted[name]) <= LIMIT, name
    assert (parts(made)["decay"] < 0).all() and (rate < 0).all()


def test_s001_26_padding_neither_decays_nor_updates_a_state(bench):
    shape, counts = shape_of(bench, 2, 64), [3, 64]
    made = parts(projected(bench, normal(4, 128, bench.module.HIDDEN), shape, counts))
    whole = parts(projected(bench, normal(4, 128, bench.module.HIDDEN), shape))
    real = torch.arange(128) < 3
    real[64:] = True
    for name in ("decay", "update"):
        assert (made[name][~real] == 0).all() and torch.equal(made[name][real], whole[name][real])
        assert (whole[name] != 0).all()
    assert torch.equal(made["mixed"], whole["mixed"]) and torch.equal(made["gate"], whole["gate"])


# --- the convolution ---------------------------------------------------------------------------------------------------


def reference(bench: HybridBench, mixed: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
    """A row behind its tail, in float64."""
    layer, behind = layer_of(bench), torch.cat([tail, mixed]).double()
    taps = [back(getattr(layer, f"tap_{index}")).double().flatten() for index in range(4)]
    summed = sum(tap * behind[index : index + len(mixed)] for index, tap in enumerate(taps))
    return torch.nn.functional.silu(summed)


def test_s001_04_a_convolution_reads_and_writes_its_own_row_alone(bench):
    width, shape = bench.geometry.gated_delta_net.convolution_width, shape_of(bench, 4, 64)
    mixed, tails = normal(5, 256, width), normal(6, 5, 3, width)
    made, after = convolved(bench, mixed, tails, shape)
    for row in range(4):
        own = slice(64 * row, 64 * row + 64)
        assert relative_error(made[row], reference(bench, mixed[own], tails[row])) <= LIMIT
        assert torch.equal(after[row], mixed[own][-3:])
    assert torch.equal(after[4], tails[4]), "a tail of no row of the pass"
    other, poisoned = mixed.clone(), tails.clone()
    other[64:128], poisoned[1] = POISON, -POISON
    changed, changed_after = convolved(bench, other, poisoned, shape)
    for row in (0, 2, 3):
        assert torch.equal(changed[row], made[row]) and torch.equal(changed_after[row], after[row])
    assert not torch.equal(changed[1], made[1])


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7, 64])
def test_s001_05_a_row_in_pieces_is_convolved_as_a_whole_and_leaves_its_tail(bench, step):
    """1 and 2 are shorter than what the convolution carries over."""
    width, shape = bench.geometry.gated_delta_net.convolution_width, shape_of(bench, 1, 64)
    tokens = min(64, 4 * step)
    mixed, tail = normal(7, tokens, width), normal(8, 1, 3, width)
    (whole,), after = convolved(bench, padded(mixed, 64), tail, shape, [tokens])
    pieces, held = [], tail
    for first in range(0, tokens, step):
        piece = mixed[first : first + step]
        (made,), held = convolved(bench, padded(piece, 64), held, shape, [len(piece)])
        pieces.append(made[: len(piece)])
    assert torch.equal(torch.cat(pieces), whole[:tokens])
    assert torch.equal(held, after) and torch.equal(after[0], torch.cat([tail[0], mixed])[-3:])


def padded(rows: torch.Tensor, tokens: int) -> torch.Tensor:
    """Rows and behind them what must be read by none."""
    return torch.cat([rows, torch.full((tokens - len(rows), rows.shape[1]), POISON)])


def test_s001_06_the_first_tokens_of_a_row_never_see_the_row_before_it(bench):
    width, shape = bench.geometry.gated_delta_net.convolution_width, shape_of(bench, 2, 64)
    mixed, tails = normal(9, 128, width), torch.zeros(2, 3, width)
    (_, second), after = convolved(bench, mixed, tails, shape)
    poisoned = mixed.clone()
    poisoned[:64] = POISON
    (_, again), again_after = convolved(bench, poisoned, tails, shape)
    assert torch.equal(again, second) and torch.equal(again_after[1], after[1])
    assert relative_error(second[:3], reference(bench, mixed[64:67], tails[1])) <= LIMIT


def test_s001_26_a_tail_is_what_the_last_real_tokens_were(bench):
    """A row of padding, as one without a token, keeps its tail."""
    width, shape, counts = (
        bench.geometry.gated_delta_net.convolution_width,
        shape_of(bench, 8, 64),
        [64, 1, 2, 3, 33, 0, 5],
    )
    mixed, tails = normal(10, 512, width), normal(11, 8, 3, width)
    _, after = convolved(bench, mixed, tails, shape, counts)
    for row, count in enumerate([*counts, 0]):
        assert torch.equal(after[row], torch.cat([tails[row], mixed[64 * row : 64 * row + count]])[-3:]), count


# --- the norm and the recurrence ---------------------------------------------------------------------------------------


def scan(bench: HybridBench, drawn: Drawn) -> tuple[torch.Tensor, torch.Tensor, Any]:
    module, shape, layer = bench.module, shape_of(bench, drawn.q.shape[0], drawn.q.shape[1]), layer_of(bench)
    delta, states, given = delta_of(bench, shape), states_of(bench, drawn), convolved_of(bench, drawn)
    normed = module.normalise(given, delta, layer, shape) if hasattr(module, "normalise") else given
    recurred = module.recur(normed, states, delta, layer, shape)
    return back(recurred.given), torch.cat([back(state) for state in states]), normed


def test_s001_07_queries_and_keys_are_of_unit_length_whatever_their_size_and_values_as_they_were(bench):
    """In the operation's form the norm is inside the recurrence, which takes raw heads; as matmuls it is a phase."""
    drawn = drawn_of(bench, 12, 2, 64)
    given, states, normed = scan(bench, drawn)
    longer = drawn._replace(q=8 * drawn.q, k=8 * drawn.k)
    again, states_again, _ = scan(bench, longer)
    assert relative_error(again, given) <= LIMIT and relative_error(states_again, states) <= LIMIT
    empty = drawn._replace(state=torch.zeros_like(drawn.state))
    once, _, _ = scan(bench, empty)
    twice, _, _ = scan(bench, empty._replace(v=2 * drawn.v))
    assert relative_error(twice, 2 * once) <= 1e-6
    for row, (query, key, value) in enumerate(normed.rows):
        if type(normed) is Convolved:
            assert torch.equal(back(value)[0], drawn.v[row].flatten(1)), "untouched"
            continue
        assert torch.equal(back(value)[0].transpose(0, 1), drawn.v[row]), "heads apart, each value as it was"
        scale = bench.geometry.gated_delta_net.key_dim**-0.5
        assert relative_error(back(query)[0].transpose(0, 1), unit_rows(drawn.q[row]) * scale) <= 1e-6
        assert relative_error(back(key)[0].transpose(0, 1), unit_rows(drawn.k[row])) <= 1e-6


def test_s001_07_its_epsilon_is_inside_the_root_of_the_sum_of_squares(bench):
    """Heads as short as its root: with the epsilon of a mean they would come out otherwise by the root of their width."""
    drawn = drawn_of(bench, 13, 1, 64)
    size = 1e-3 / bench.geometry.gated_delta_net.key_dim**0.5
    small = drawn._replace(q=size * drawn.q, k=size * drawn.k)
    given, states, _ = scan(bench, small)
    wanted = token_by_token(small)
    assert relative_error(given, wanted[0]) <= LIMIT and relative_error(states, wanted[1]) <= LIMIT


# --- phase 3 -----------------------------------------------------------------------------------------------------------


def test_s001_09_phase_three_on_two_ranges_of_tokens_equals_one_call(bench):
    """Gated norm, projection, the residual's sum, norm and feed-forward: each token by itself."""
    module, net, layer = bench.module, bench.geometry.gated_delta_net, layer_of(bench)
    hidden, gate = normal(14, 128, module.HIDDEN), normal(15, 128, net.value_width)
    given = normal(16, net.value_heads, 128, net.value_dim)
    ones = [bench.weights.ones] if hasattr(bench.weights, "ones") else []

    def third(first: int, last: int) -> torch.Tensor:
        shape = shape_of(bench, 1, last - first)
        part = Projected(None, on_device(bench, gate[None, None, first:last]), None, None)
        recurred = Recurred(on_device(bench, given[:, first:last], ttnn.float32), part)
        summed = module.finish(recurred, hidden_of(bench, hidden[first:last]), *ones, layer, shape)
        return back(feed_forward(bench, summed, layer, shape))[0, 0]

    whole = third(0, 128)
    assert relative_error(torch.cat([third(0, 64), third(64, 128)]), whole) <= LIMIT
    norm = given.double() * torch.rsqrt(given.double().square().mean(-1, keepdim=True) + module.NORM_EPSILON)
    norm = (norm * back(layer.value_norm).double().flatten()).transpose(0, 1).flatten(1)
    summed = hidden + (norm * torch.nn.functional.silu(gate.double())) @ back(layer.delta_output).double()
    shape = shape_of(bench, 1, 128)
    wanted = back(feed_forward(bench, hidden_of(bench, summed.float()), layer, shape))[0, 0]
    assert relative_error(whole, wanted) <= LIMIT


def feed_forward(bench: HybridBench, hidden: Any, layer: Any, shape: Any) -> Any:
    """Whatever the layer has behind its mixer."""
    module = bench.module
    function = module.mlp if hasattr(module, "mlp") else module.experts
    values = {"hidden": hidden, "layer": layer, "shape": shape}
    if hasattr(module, "routing_tables"):
        values["routing"] = module.routing_tables(bench.weights, shape)
    return function(*[values.get(name, getattr(bench.weights, name, None)) for name in arguments_of(function)])

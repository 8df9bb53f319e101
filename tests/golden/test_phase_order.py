"""Which phase may follow which, on which layers, and what is waited for and said where one fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.backend import ttnn
from runtime.errors import LayerKindMismatch, PhaseFailed, PhaseOrder
from runtime.phases import DEBUG_SYNC, MADE_BY, Convolved, Normed, Projected, Recurred
from runtime.stores import tensors
from tests.support.hybrids import HybridBench, hybrid_bench
from tests.support.phase_calls import (
    PHASED,
    arguments_of,
    delta_of,
    drawn_of,
    hidden_of,
    inputs_of,
    layer_of,
    shape_of,
    states_of,
    tails_of,
)


@pytest.fixture(params=PHASED)
def bench(request):
    made = hybrid_bench(request.param)
    made.device.before_operation = None
    return made


def calls(bench: HybridBench, layer: Any) -> dict[str, Any]:
    """Each phase with a first argument of one's choice; the others would do, but for the layer's kind."""
    module, shape = bench.module, shape_of(bench, 1, 64)
    delta, inputs = delta_of(bench, shape), inputs_of(bench, shape, [64])
    tails = tails_of(bench, torch.zeros(1, 3, bench.geometry.gated_delta_net.convolution_width))
    states = states_of(bench, drawn_of(bench, 0, 1, 64))
    hidden = hidden_of(bench, torch.zeros(64, bench.module.HIDDEN))
    ones = [bench.weights.ones] if hasattr(bench.weights, "ones") else []
    made = {
        "project": lambda first: module.project(first, delta, layer, shape),
        "convolve": lambda first: module.convolve(first, tails, delta, layer, inputs, shape),
        "recur": lambda first: module.recur(first, states, delta, layer, shape),
        "finish": lambda first: module.finish(first, hidden, *ones, layer, shape),
    }
    if hasattr(module, "normalise"):
        made["normalise"] = lambda first: module.normalise(first, delta, layer, shape)
    return made


def untouched(bench: HybridBench, call: Any) -> Any:
    """What a call raises or returns, which launched nothing and wrote nothing."""
    reached: list[str] = []
    before = bench.device_bits()
    bench.device.before_operation = reached.append
    try:
        return call()
    except (PhaseOrder, LayerKindMismatch) as error:
        return error
    finally:
        bench.device.before_operation = None
        assert not reached and bench.device_bits() == before


def test_s001_01_phases_in_any_other_order_are_refused_by_name_before_any_operation(bench):
    given = {made: made(*[None] * len(made.__dataclass_fields__)) for made in (Projected, Convolved, Normed, Recurred)}
    normed = hasattr(bench.module, "normalise")
    takes = {"convolve": Projected, "recur": Normed if normed else Convolved, "finish": Recurred}
    takes |= {"normalise": Convolved} if normed else {}
    phases = calls(bench, layer_of(bench))
    for name, wanted in takes.items():
        for kind, value in [*given.items(), (type(None), None)]:
            if kind is wanted:
                continue
            error = untouched(bench, lambda: phases[name](value))
            assert isinstance(error, PhaseOrder)
            said = f"{name} takes what {MADE_BY[wanted]} gives, {wanted.__name__}, and was given {kind.__name__}"
            assert str(error) == said


def test_s001_10_phases_on_an_attention_layer_are_refused_by_name(bench):
    phases = calls(bench, layer_of(bench, "full"))
    for name in {"project", "convolve", "normalise"} & set(phases):
        error = untouched(bench, lambda: phases[name](None))
        assert isinstance(error, LayerKindMismatch)
        assert str(error).startswith(f"{name}: only implemented for layers of kind gated_delta_net; this one is full")


@pytest.mark.parametrize("rows", [1, 2])
def test_s001_11_attention_on_a_recurrent_layer_is_refused_by_name(bench, rows):
    module, shape = bench.module, shape_of(bench, rows, 64)
    values = {"layer": layer_of(bench), "shape": shape}
    arguments = [values.get(name) for name in arguments_of(module.attention)]
    error = untouched(bench, lambda: module.attention(*arguments))
    assert isinstance(error, LayerKindMismatch)
    assert str(error) == "attention: only implemented for layers of kind full; this one is gated_delta_net"


def test_s001_08_recurrence_and_the_phase_after_it_have_no_effect_on_a_layer_without_a_state(bench):
    phases, given = calls(bench, layer_of(bench, "full")), object()
    for name in ("recur", "finish"):
        assert untouched(bench, lambda: phases[name](given)) is given


def test_s001_07_the_norm_comes_behind_every_convolution_once_a_layer(bench, monkeypatch):
    names, module = [], bench.module
    for name in ("project", "convolve", "convolve_row", "normalise", "recur", "finish"):
        if hasattr(module, name):
            inner = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *given, inner=inner, name=name: (names.append(name), inner(*given))[1]
            )
    bench.forget()
    bench.call(bench.rows([60, 50, 64]))
    a_layer = [
        "project",
        "convolve",
        *["convolve_row"] * 4,
        *["normalise"] * hasattr(module, "normalise"),
        "recur",
        "finish",
    ]
    assert names == a_layer * module.RECURRENT_LAYERS


def waits(bench: HybridBench, lengths: list[int]) -> int:
    names: list[str] = []
    bench.forget()
    rows = bench.rows(lengths)
    bench.device.before_operation = names.append
    bench.call(rows)
    bench.device.before_operation = None
    return names.count("synchronize_device")


def test_s001_24_the_device_is_waited_for_behind_each_phase_only_where_that_is_asked_for(bench, monkeypatch):
    monkeypatch.delenv(DEBUG_SYNC, raising=False)
    assert waits(bench, [60]) == waits(bench, [300]) == 0
    monkeypatch.setenv(DEBUG_SYNC, "1")
    module = bench.module
    phases = (4 + hasattr(module, "normalise")) * module.RECURRENT_LAYERS + module.ATTENTION_LAYERS
    assert waits(bench, [60]) == phases
    assert waits(bench, [300]) == 3 * phases


@pytest.mark.parametrize("operation", ["linear", "qkv_causal_conv1d_silu", "sigmoid_gated_rms_norm"])
def test_s001_24_an_error_names_the_phase_and_the_tokens_of_the_pass(bench, monkeypatch, operation):
    phase = {"linear": "project", "qkv_causal_conv1d_silu": "convolve", "sigmoid_gated_rms_norm": "finish"}[operation]

    def fail(name: str) -> None:
        if name.endswith(operation):
            raise RuntimeError("of the device")

    bench.forget()
    for asked in (True, False):
        monkeypatch.setenv(DEBUG_SYNC, "1") if asked else monkeypatch.delenv(DEBUG_SYNC)
        bench.device.before_operation = fail
        with pytest.raises(Exception) as caught:
            bench.call(bench.rows([60, 50, 40]))
        bench.device.before_operation = None
        if asked:
            assert isinstance(caught.value, PhaseFailed)
            assert str(caught.value) == f"{phase} (tokens=256): of the device"
        else:
            assert str(caught.value) == "of the device"


def test_s001_23_every_row_and_every_held_state_begins_with_zeros():
    bench = HybridBench("qwen3_5")
    of_slots = SimpleNamespace(states=bench.stores.states, tails=bench.stores.tails, slots=bench.stores.slots)
    held = [ttnn.to_torch(tensor) for tensor in tensors(of_slots)]
    assert len(held) > 6 * bench.module.STATE_SLOTS and not any(one.any() for one in held)

"""What a module states about recurrent layers, and what stores, weights and host values make of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from runtime.backend import ttnn
from runtime.errors import DeviceMismatch, ModuleError, WeightError
from runtime.load import check_module
from runtime.prefill import Prefill
from runtime.request import PrefillChunk, PrefillRequest, PreparedPrefill
from runtime.stores import allocate, release, tensors
from runtime.tables import held_states
from runtime.values import HostValues
from runtime.weights import load_weights
from runtime.weights import release as release_weights
from tests.support.state_module import CARRIED, SLOTS, StateRig, dense_module, parameters, state_module


@pytest.fixture(scope="module")
def rig():
    return StateRig()


def altered(**changes):
    return SimpleNamespace(**{**vars(state_module()), **changes})


def inputs_without(name):
    inputs = state_module().INPUTS
    return inputs | {"batched": lambda shape: tuple(e for e in inputs["batched"](shape) if e.name != name)}


STATES = state_module().STATES


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"LAYER_KINDS": ("gated_delta_net", "full", "mamba")},
            "LAYER_KINDS has 'mamba'; this runtime knows gated_delta_net",
        ),
        ({"LAYER_KINDS": ("gated_delta_net", "full")}, "LAYER_KINDS has 2 entries for 3 layers"),
        ({"STATES": ()}, "has layers of kind gated_delta_net and lacks STATES"),
        ({"STATE_SLOTS": 0}, "lacks STATE_SLOTS"),
        ({"STATE_SLOTS": -1}, "STATE_SLOTS is -1, not a positive integer"),
        ({"RECURRENCE": {}}, "lacks RECURRENCE"),
        ({"RECURRENCE": {1: "rows", 3: "wave"}}, "'wave' for 3 rows; its passes have 1, 2, 4 rows"),
        ({"RECURRENCE": {1: "fused"}}, "'fused' for 1 rows; .* forms are alone, wave, rows, matmuls"),
        ({"RECURRENCE": {2: "wave"}}, "RECURRENCE lacks 1 rows, to which larger waves fall back"),
        ({"STATES": (replace(STATES[0], layers=3), STATES[1])}, "states is of 3 layers and LAYER_KINDS has 2"),
        ({"STATES": (replace(STATES[0], dtype=ttnn.bfloat8_b), STATES[1])}, "stores float32 or bfloat16"),
        ({"STATES": (replace(STATES[0], placement="heads"), STATES[1])}, "states is placed 'heads'"),
        ({"STATES": (STATES[0], replace(STATES[1], name="keys"))}, "give each a name of its own"),
        ({"STATES": (STATES[0], replace(STATES[1], name="slots"))}, "give each a name of its own, and none slots"),
        (
            {"STORES": tuple(replace(s, layers=3) for s in dense_module().STORES)},
            "keys is of 3 layers .* has 1 of full",
        ),
        ({"INPUTS": inputs_without("valid")}, "lacks the inputs valid, without which padding changes states"),
        ({"INPUTS": inputs_without("tail_picks")}, "lacks the inputs tail_picks"),
        ({"ALIGNMENT": 16, "BLOCK_SIZE": 16}, "ALIGNMENT 16 is no multiple of 32|blocks of 16 do not hold"),
        (
            {"LAYER_KINDS": ("full",) * 3, "STATES": (), "RECURRENCE": {1: "rows"}},
            "has STATE_SLOTS or RECURRENCE and no layer",
        ),
    ],
)
def test_tables_of_recurrent_layers_that_contradict_each_other_are_refused(changes, message):
    check_module(altered())
    with pytest.raises(ModuleError, match=message):
        check_module(altered(**changes))


def test_a_module_whose_passes_cannot_begin_at_a_state_is_refused():
    packed = tuple(shape for shape in dense_module().TRACES if not shape.read_pages)
    with pytest.raises(ModuleError, match="has no chunks: nothing could begin at a held state"):
        check_module(altered(TRACES=packed))


def test_states_are_zeroed_one_for_each_row_of_the_largest_wave_and_two_for_each_slot_and_row(rig):
    stores = rig.stores
    assert [len(of_layer) for of_layer in stores.states] == [len(of_layer) for of_layer in stores.tails] == [4, 4]
    assert len(stores.slots) == held_states(rig.module) == 1 + 2 * (SLOTS + 4)
    made = allocate(rig.module, rig.device)
    for tensor in tensors(made):
        assert not bool(ttnn.to_torch(tensor).any())
    assert {tensor.dtype for of_layer in made.states for tensor in of_layer} == {ttnn.float32}
    release(made)


@pytest.mark.parametrize("layers, paged, recurrent", [(1, 0, 1), (2, 1, 1), (3, 1, 2), (None, 1, 2)])
def test_layers_are_counted_by_their_kinds(rig, layers, paged, recurrent):
    live = rig.live()
    made = allocate(rig.module, rig.device, layers=layers, blocks=8)
    assert (len(made.keys), len(made.states), len(made.tails), len(made.slots[0].tails)) == (paged, *[recurrent] * 3)
    weights = load_weights(rig.module, rig.device, parameters(), layers=layers)
    prefill = Prefill(rig.module, rig.device, weights, made)
    assert prefill._bindings.blocks == (8 if paged else rig.module.KEY_VALUE_BLOCKS)
    release(made), release_weights(weights)
    assert rig.live() == live
    with pytest.raises(ModuleError, match="4 layers of the store keys were asked for; the module has 1 to 3"):
        allocate(rig.module, rig.device, layers=4)


def test_stores_that_do_not_fit_the_module_are_refused_with_the_numbers(rig):
    def refused(message, **changes):
        stores = SimpleNamespace(**{**vars(rig.stores), **changes})
        with pytest.raises(DeviceMismatch, match=message):
            Prefill(rig.module, rig.device, rig.weights, stores)

    of = rig.stores
    refused("hold 16 states and STATE_SLOTS 4 with waves of up to 4 rows need 17", slots=of.slots[:16])
    refused("2 recurrent layers and the states tails have 1 and 2", tails=of.tails[:1])
    refused("states have 3 rows and the largest wave has 4", states=tuple(rows[:3] for rows in of.states))
    refused(r"a state of states is .* \(1, 3, 32\) .* built for .*\(1, 1, 32, 32\)", states=of.tails)
    refused("3 layers, 1 of them with keys and values, and the store keys has 0", keys=())
    wrong = SimpleNamespace(states=of.slots[0].tails, tails=of.slots[0].tails)
    refused("a state of states is", slots=(*of.slots[:-1], wrong))


def test_layers_have_their_kind_and_the_weights_of_it(rig):
    assert [layer.kind for layer in rig.weights.layers] == list(rig.module.LAYER_KINDS)
    names = [set(vars(layer)) - {"kind"} for layer in rig.weights.layers]
    assert names[0] == names[2] == {"table"} and "table" not in names[1] and len(names[1]) > 5
    live = rig.live()
    release_weights(load_weights(rig.module, rig.device, parameters()))
    assert rig.live() == live
    held = parameters()
    with pytest.raises(WeightError, match="lacks model.layers.2.table"):
        load_weights(rig.module, rig.device, {name: held[name] for name in held if name != "model.layers.2.table"})
    with pytest.raises(WeightError, match="has model.layers.1.table, which"):
        load_weights(rig.module, rig.device, held | {"model.layers.1.table": held["model.layers.2.table"]})


def plan_of(lengths, start, stop, shape):
    pages = np.zeros(12, np.int32)
    requests = tuple(
        PrefillRequest(row, row, np.zeros(length, np.int32), 0, 0, length, pages, True)
        for row, length in enumerate(lengths)
    )
    chunk = PrefillChunk(shape, start, stop)
    return PreparedPrefill(requests, (chunk,), "logits", True), chunk


@pytest.mark.parametrize(
    "lengths, start, stop",
    [
        ([64, 63, 2, 1], 0, 64),
        ([1, 2], 0, 2),
        ([3], 0, 3),
        ([130, 129, 190], 128, 190),
        ([300, 260], 192, 256),
        ([33], 0, 33),
    ],
)
def test_inputs_that_keep_padding_out_of_states_follow_their_definition(lengths, start, stop):
    """B22: tokens of padding, and whole rows of it, count for nothing."""
    (shape,) = [s for s in state_module().TRACES if (s.rows, s.tokens, s.read_pages > 0) == (4, 64, start > 0)]
    values = HostValues(state_module())
    prepared, chunk = plan_of(lengths, start, stop, shape)
    entries = {entry.name: entry for entry in values.inputs(shape)}
    rows, width = shape.rows, shape.tokens
    valid, picks = np.zeros((rows, width), int), np.zeros(3 * rows, int)
    selection = np.zeros((32, rows * width))
    for row in range(rows):
        real = max(0, min(lengths[row], stop) - start) if row < len(lengths) else 0
        valid[row, :real] = 1
        for i in range(CARRIED):
            position = real + i - 3
            if position >= 0:
                selection[3 * row + i, row * width + position] = 1
            picks[3 * row + i] = 3 * rows + 3 * row + i if position >= 0 else 3 * row + real + i
    for name, wanted in (("valid", valid), ("tail_selection", selection), ("tail_picks", picks)):
        found = values.value(entries[name], prepared, chunk)
        assert found.flatten().tolist() == wanted.flatten().tolist(), name


def test_a_pass_that_stops_before_it_is_full_computes_and_writes_nothing_past_its_stop():
    (shape,) = [s for s in state_module().TRACES if (s.variant, s.tokens) == ("chunked", 128)]
    values = HostValues(state_module())
    request = PrefillRequest(
        0, 0, np.arange(1, 301, dtype=np.int32), 0, 0, 300, np.arange(100, 110, dtype=np.int32), True
    )
    chunk = PrefillChunk(shape, 128, 192)
    prepared = PreparedPrefill((request,), (chunk,), "logits", True)
    assert values.tokens(prepared, chunk)[0].tolist() == [*range(129, 193), *[0] * 64]
    assert values.fill_table(prepared, chunk)[0].tolist() == [104, 105, -1, -1]
    assert values.valid(prepared, chunk).sum() == 64


def test_s001_20_a_state_that_is_stored_narrow_is_worked_on_in_float32_and_rounded_once_a_plan():
    rig = StateRig(module=state_module(stored="bfloat16"), precision="declared")
    held, rows = rig.stores.slots[1].states[0], rig.stores.states[0][0]
    assert (held.dtype, rows.dtype) == (ttnn.bfloat16, ttnn.float32)
    prompt = rig.prompt(3)
    rig.run((0, prompt, 300))
    exact = StateRig(precision="declared")
    exact.run((0, prompt, 300))
    for narrow, wide in zip(rig.held(0), exact.held(0), strict=True):
        assert torch.equal(narrow, wide.bfloat16().float())
    assert not torch.equal(rig.held(0)[0], exact.held(0)[0]), "the sums must be too large for bfloat16"
    rig.prefill.restore(1, rig.prefill.snapshot(0))
    assert all(map(torch.equal, rig.held(0), rig.held(1)))
    rig.run((0, prompt, 320, 256))
    assert rig.prefill.positions(0) == (320, 256)

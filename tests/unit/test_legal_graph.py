"""Graphs that ttnn 0.81.1 captured of five calls on a mock device, as `codegen legal` reads and scales them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.legality import measure
from runtime.legality.graph import Memory, Operand, Operation, Place, footprint, memory, operations, transfers
from runtime.legality.recorder import Call

GRAPHS = json.loads((Path(__file__).parents[1] / "support" / "captured_graphs.json").read_text(encoding="utf-8"))
BANKS, L1_TOP = 12, 1499136  # of an n150


@pytest.fixture
def found() -> tuple[Operation, ...]:
    return operations(GRAPHS["NO_DISPATCH"])


def test_operations_are_known_by_stage_layer_and_call(found) -> None:
    assert [(one.name, one.place) for one in found] == [
        ("NlpCreateHeadsDeviceOperation", Place("body", 0, 0)),
        ("MatmulDeviceOperation", Place("body", 0, 1)),
        ("BinaryNgDeviceOperation", Place("body", 1, 2)),
        ("ArgMaxDeviceOperation", Place("argmax", None, 3)),
    ]


def test_operands_have_shape_type_layout_and_the_bytes_of_their_padding(found) -> None:
    scores, chosen = found[3].inputs[0].to_json(), found[3].outputs[0].to_json()
    assert scores == {
        "shape": [1, 1, 32, 500],
        "dtype": "bfloat16",
        "layout": "ROW_MAJOR",
        "buffer": "DRAM",
        "bytes": 32000,
    }
    assert (chosen["shape"], chosen["dtype"]) == ([1, 1, 32], "uint32")
    weight, product = found[1].inputs[1], found[1].outputs[0]
    assert (weight.dtype, weight.bytes) == ("bfloat8_b", 36 * 1088)  # the graph leaves out the exponents
    assert (product.buffer, product.bytes) == ("L1", 64 * 96 * 2)


def test_several_outputs_are_found_where_the_library_connects_none(found) -> None:
    assert [one.shape for one in found[0].outputs] == [(1, 2, 64, 64)] * 3


def test_a_tile_is_padded_to_32_in_its_last_two_dimensions() -> None:
    assert Operand((1, 1, 33, 80), "bfloat16", "TILE", "DRAM").to_json()["padded_shape"] == [1, 1, 64, 96]
    assert Operand((5,), "bfloat16", "TILE", "DRAM").padded_shape == (32, 32)
    assert "padded_shape" not in Operand((1, 33), "bfloat16", "ROW_MAJOR", "DRAM").to_json()


def test_cores_and_buffers_are_those_of_the_fullest_core(found) -> None:
    """The library's own extraction from this graph: 12288 bytes of circular and 10368 of dataflow buffers at most."""
    assert [(one.cores, one.buffer_bytes) for one in found] == [(12, 8192), (6, 10368), (64, 12288), (16, 3328)]
    assert [one.fidelity for one in found] == [None, "HiFi2", None, None]


def test_buffers_on_some_cores_start_above_what_lies_on_any_of_them() -> None:
    assert footprint((("{[0-0 - 0-1]}", 100), ("{[1-0 - 1-0]}", 40), ("{[0-0 - 7-7]}", 8), ("{[1-0 - 1-0]}", 8))) == (
        64,
        116,
    )
    assert footprint((("{[0-0 - 7-6], [0-7 - 6-7]}", 16),)) == (63, 16)
    assert footprint(()) == (0, 0)


def test_buffers_in_the_memory_of_a_tensor_are_counted_with_the_tensor(found) -> None:
    nodes = json.loads(json.dumps(GRAPHS["NO_DISPATCH"]))
    for node in nodes:
        if node["node_type"] == "circular_buffer_allocate":
            node["params"]["globally_allocated"] = "1"
    assert [(one.cores, one.buffer_bytes) for one in operations(nodes)][2] == (64, 0)


def test_transfers_are_found_once_with_their_direction_and_stage() -> None:
    assert [(one.kind, one.place.stage) for one in transfers(GRAPHS["NO_DISPATCH"])] == [
        ("read", "body"),
        ("upload", "argmax"),
    ]


def test_memory_during_an_operation_has_its_outputs_and_what_still_lives() -> None:
    lived = memory(GRAPHS["NORMAL"], BANKS, L1_TOP)
    heads = 3 * BANKS * 2048  # 8 tiles of each output over 12 banks
    assert [one.l1 for one in lived] == [0, 2048, 2048, 0]
    assert [one.dram - heads for one in lived] == [0, 0, BANKS * 2048, BANKS * (2048 + 128)]


def _recorded(layers: list[int | None], stages: list[str] | None = None) -> measure.Recorded:
    places = [Place(stage, layer, 0) for stage, layer in zip(stages or ["body"] * len(layers), layers)]
    operation = replace(operations(GRAPHS["NO_DISPATCH"])[2], name="MatmulDeviceOperation")
    return measure.Recorded(
        (Call("ttnn.linear", "mlp", 7, "down", "2d 8x8"),),
        tuple(replace(operation, place=place) for place in places),
        tuple(Memory(place, 100 + 10 * (place.layer or 0), 5) for place in places),
        (),
    )


def test_counts_of_two_layers_are_scaled_to_all() -> None:
    found = measure.report(_recorded([None, 0, 0, 0, 1, 1, None]), measure.Sizes(1, 2, 1000, 20000), 32 * ("",))
    assert (found["operations"], found["operations_per_layer"]) == (5 + 2 * 31, 2)
    assert found["dram_bytes"] == {"weights": 1, "key_value": 2, "activations_peak": 110 + 30 * 10, "capacity": 1000}
    assert found["l1_bytes"] == {"peak": 12288 + 5, "limit": 20000} and found["circular_buffer_bytes"]["peak"] == 12288
    assert found["matmuls"] == {"down": "2d 8x8"}
    call = found["calls"][0]
    assert {name: call[name] for name in ("operation", "call", "line", "function", "layer", "cores", "program")} == {
        "operation": "MatmulDeviceOperation",
        "call": "ttnn.linear",
        "line": 7,
        "function": "mlp",
        "layer": None,
        "cores": 64,
        "program": "2d 8x8",
    }


@pytest.mark.parametrize(("layers", "operations"), [(1, 3), (2, 4), (3, 5)])
def test_a_model_of_few_layers_is_counted_as_it_is(layers: int, operations: int) -> None:
    recorded = _recorded([None, 0, None] if layers == 1 else [None, 0, 1, None])
    assert measure.report(recorded, measure.Sizes(0, 0, 0, 0), layers * ("",))["operations"] == operations


@pytest.mark.parametrize(
    ("pattern", "recorded"),
    [("sssf", 4), ("sf", 3), ("fs", 3), ("ffs", 3), ("fsss", 3), ("s", 1), ("sffff", 3)],
)
def test_each_kind_of_layers_is_scaled_by_its_own(pattern: str, recorded: int) -> None:
    """A sliding layer of three operations and a full one of two; a layer takes ten bytes more than the one before it."""
    kinds = tuple(pattern) * (5 if len(pattern) < 4 else 1)
    kinds = kinds if pattern not in ("s", "fsss", "sffff") else tuple(pattern)
    assert measure.recorded_layers(kinds) == recorded
    seen = [layer for layer in range(recorded) for _ in range(3 if kinds[layer] == "s" else 2)]
    found = measure.report(_recorded([None, *seen, None]), measure.Sizes(0, 0, 0, 0), kinds)
    assert found["operations"] == 2 + 3 * kinds.count("s") + 2 * kinds.count("f")
    assert found["operations_per_layer"] == (3 if "s" in kinds else 2)
    growing = 10 if len(kinds) > recorded else 0
    assert found["dram_bytes"]["activations_peak"] == 100 + 10 * (recorded - 1) + growing * (len(kinds) - recorded)


def test_a_pass_that_differs_between_captures_is_no_measurement() -> None:
    good = _recorded([0, 1])
    with pytest.raises(RuntimeError, match="2 operations without dispatch and 1 with it"):
        measure.Recorded(good.calls, good.operations, good.memory[:1], ())


def test_a_pass_without_measurement_has_the_same_fields() -> None:
    full = measure.report(_recorded([0, 1]), measure.Sizes(0, 0, 0, 0), ("", ""))
    assert measure.nothing_measured().keys() == full.keys()

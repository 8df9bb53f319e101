"""What the generator plans a layer by is what the library does: every committed pass, operation by operation.

Buffers are held to equality wherever a formula claims it. Seconds are modelled on both sides, by the same rates, from
planned and from captured tensors: they say that the plan is of the module that runs, and nothing about a board.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from generator import catalog, geometry, manifest, targets
from generator.captured import _program
from generator.geometry import Resolved
from generator.placement import Programs, choose_programs
from generator.shapes import enumerate_shapes
from generator.tiles import TILE
from tests.device.emitted import emitted_modules
from tests.device.layer_model import Layer, assert_modelled, layers

each_module = pytest.mark.parametrize("path", emitted_modules(), ids=lambda path: f"{path.parent.name}-{path.stem}")


@cache
def resolved(folder: str, target: str) -> Resolved:
    (name,) = (one for one in catalog.names(catalog.BUILT_IN) if manifest.module_name(one) == folder)
    return geometry.resolve(manifest.load(catalog.BUILT_IN, name), targets.load_board(catalog.BUILT_IN, target))


def of(verdicts: dict[tuple[str, str], dict[str, Any]], path: Path) -> list[Layer]:
    found = list(layers(resolved(path.parent.name, path.stem), verdicts[path.parent.name, path.stem]))
    assert found, path
    return found


@each_module
def test_a_captured_layer_is_the_modelled_one(verdicts, path: Path) -> None:
    for layer in of(verdicts, path):
        assert_modelled(layer)


@each_module
def test_intermediates_lie_where_they_were_planned(verdicts, path: Path) -> None:
    planned = choose_programs(
        resolved(path.parent.name, path.stem), enumerate_shapes(resolved(path.parent.name, path.stem))
    )
    for layer in of(verdicts, path):
        places = planned.places[layer.shape.token_tiles]
        for pair in layer.pairs:
            if pair.step.operation == "paged_fill_cache":
                continue  # returns the cache, which no step writes as a tensor
            if layer.kind == "gated_delta_net" and len(pair.step.writes) != len(pair.call["outputs"]):
                continue  # tails and states, or what lies between the two programs of the delta rule
            for tensor, output in zip(pair.step.writes, pair.call["outputs"], strict=True):
                assert output["buffer"] == ("L1" if tensor.place in places else "DRAM"), (layer.name, tensor)
                assert output["dtype"] == tensor.dtype and output["bytes"] == tensor.bytes, (layer.name, tensor, output)


SHARED = {
    "exact_sums": ("counts", "ranks"),
    "tiles_before": ("starts",),
    "mix": (),
}  # one function's several products, by what they are planned as


# A weight or a function -> what its product is planned as.
PLANNED_AS = {"gate": "gate_up", "up": "gate_up", "decay": "rates", "update": "rates", "advance_tails": "tails"}


def programs_of(planned: Programs, function: str, size: int) -> set[Any]:
    """The programs that the products of a function may have in a pass of so many tiles."""
    of_scores = {program for cut in planned.scores.values() for program in (cut.product, cut.mixture)}
    return of_scores if function == "mix" else {planned.matmuls[role, size] for role in SHARED[function]}


@each_module
def test_every_configuration_is_read_back_from_what_the_library_prints(verdicts, path: Path) -> None:
    """`described` writes and `captured._program` reads: the objects here are the library's own."""
    planned = choose_programs(
        resolved(path.parent.name, path.stem), enumerate_shapes(resolved(path.parent.name, path.stem))
    )
    for report in verdicts[path.parent.name, path.stem]["shapes"]:
        size = report["shape"]["rows"] * report["shape"]["tokens"] // TILE
        for role, text in report["matmuls"].items():
            planned_as = PLANNED_AS.get(role, role)
            if role in SHARED:
                assert _program(text) in programs_of(planned, role, size), (role, size, text)
                continue
            chosen = planned.matmuls[planned_as, 1 if role == "head" else size]
            assert _program(text) == chosen, (role, size, text)

"""B-15: an opt-in build in which a row is summed in the same order in every wave that it can be in."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest

from generator import catalog, geometry, targets
from generator.manifest import ModelFile, load, parse
from generator.matmuls import Matmul
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes

MODULES = [
    (model, target)
    for model in catalog.names(catalog.BUILT_IN)
    for target in load(catalog.BUILT_IN, model).manifest.target
]
DENSE = [  # in every layer, and with attention in every layer
    (model, target)
    for model, target in MODULES
    if (described := load(catalog.BUILT_IN, model).manifest.model).experts is None and described.gated_delta_net is None
]


def opted_in(model: str, target: str) -> ModelFile:
    path = catalog.find(catalog.BUILT_IN, catalog.MODELS, model)
    header = re.compile(rf"^\[target\.{target}\].*$", re.MULTILINE)
    text = re.sub("^ragged_tokens.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = header.sub(lambda line: f"{line[0]}\nbatch_invariant = true", text)
    return parse(text, str(path), catalog.names(catalog.BUILT_IN, catalog.TARGETS))


def orders(file: ModelFile, target: str) -> tuple[dict[Any, set[Any]], dict[Any, set[Any]]]:
    """For each matmul role the blocks that its sizes sum in, and for each row length how its waves cut attention."""
    resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, target))
    shapes = enumerate_shapes(resolved)
    sums: dict[Any, set[Any]] = defaultdict(set)
    cuts: dict[Any, set[Any]] = defaultdict(set)
    chosen = choose_programs(resolved, shapes)
    for (role, size), choice in chosen.matmuls.items():
        # A minimal matmul walks the inner dimension to and fro: its order depends on the size even with equal blocks.
        sums[role].add(choice.inner_block if isinstance(choice, Matmul) else (size, choice.inner_block))
    for shape, choice in chosen.attentions.items():
        cuts[shape.read_pages > 0, shape.tokens].add(choice)
    return sums, cuts


@pytest.mark.parametrize(("model", "target"), DENSE)
def test_b15_every_wave_sums_a_row_in_one_order(model: str, target: str) -> None:
    sums, cuts = orders(opted_in(model, target), target)
    assert {len(blocks) for blocks in sums.values()} == {1}, sums
    assert {len(ways) for ways in cuts.values()} == {1}, cuts


def test_b15_without_the_option_waves_are_cut_for_speed() -> None:
    found = [orders(load(catalog.BUILT_IN, model), target) for model, target in MODULES]
    assert any(len(blocks) > 1 for sums, _ in found for blocks in sums.values())
    assert any(len(ways) > 1 for _, cuts in found for ways in cuts.values())

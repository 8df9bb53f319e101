"""What is copied to the device for a pass is what its emitted module states."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from generator import catalog, geometry, manifest, targets
from generator.pass_time import pass_times
from generator.shapes import enumerate_shapes
from generator.uploads import upload_bytes, upload_seconds
from runtime.backend import ttnn
from runtime.load import load
from runtime.staging import NEVER

GENERATED = Path(__file__).resolve().parents[2] / "generated"
BYTES = {ttnn.uint32: 4, ttnn.int32: 4, ttnn.bfloat16: 2}
# One of each set of inputs: rows of any lengths, equal rows, windows beside full layers and alone, capped scores, a recurrence.
MODULES = [
    ("llama-3.1-8b", "n150"),
    ("gpt-oss-20b", "p150"),
    ("gemma-3-1b", "n150"),
    ("mistral-7b-v0.1", "p150"),
    ("gemma-2-9b", "n150"),
    ("qwen3.5-9b", "p150"),
]


@pytest.mark.parametrize("model, target", MODULES)
def test_every_pass_copies_the_inputs_of_its_module(model: str, target: str) -> None:
    resolved = geometry.resolve(manifest.load(catalog.BUILT_IN, model), targets.load_board(catalog.BUILT_IN, target))
    module = load(GENERATED / resolved.module / f"{target}.py")
    planned = enumerate_shapes(resolved)
    assert [shape.digest for shape in planned] == [shape.digest for shape in module.TRACES]
    for shape, emitted in zip(planned, module.TRACES):
        inputs = [entry for entry in module.INPUTS[emitted.variant](emitted) if entry.refresh != NEVER]
        assert sorted(upload_bytes(resolved, shape)) == sorted(BYTES[one.dtype] * prod(one.shape) for one in inputs)


def test_a_pass_takes_its_copies_beside_its_operations() -> None:
    resolved = geometry.resolve(
        manifest.load(catalog.BUILT_IN, "smollm2-135m"), targets.load_board(catalog.BUILT_IN, "n150")
    )
    for shape, time in pass_times(resolved, enumerate_shapes(resolved)).items():
        assert time.upload == upload_seconds(resolved, shape)
        assert time.seconds == time.without_tail + time.tail == time.upload + time.body + time.tail


def test_copies_take_a_call_each_and_their_bytes_the_bus() -> None:
    """224 tokens and positions, 7 blocks, 32 last rows: four copies of 1,948 bytes together."""
    resolved = geometry.resolve(
        manifest.load(catalog.BUILT_IN, "smollm2-135m"), targets.load_board(catalog.BUILT_IN, "n150")
    )
    rates = replace(resolved.board.rates, upload_seconds=0.25, upload_bytes_per_second=1000.0)
    slow = replace(resolved, board=replace(resolved.board, rates=rates))
    assert upload_seconds(slow, enumerate_shapes(slow)[0]) == pytest.approx(1 + 1.948)

"""B-08: what a module lists is what its planner can ask for: by trying every call that a geometry admits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import lcm
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planning import tables
from generator.shapes import enumerate_shapes
from runtime.admission import Admission
from runtime.errors import PrefillError
from runtime.planner import Planner
from runtime.slices import SliceCursors
from tests.support.building import committed, resolved

TWINS = {repr(resolved(model, target, True).lengths): (model, target) for model, target in committed()}


def calls(module: SimpleNamespace, every_length: bool) -> Iterator[tuple[int, int, int, bool]]:
    """(rows, prompt tokens, cached tokens, final). Every threshold of a plan is a multiple of the block, so that lengths at
    block ends and one past them stand for all where not every length is tried."""
    block = module.BLOCK_SIZE
    widest = max(shape.rows for shape in module.TRACES)
    for length in range(1, module.CONTEXT + 1):
        edge = length % block in (0, 1)
        for cached in range(0, length + 1, block):
            for rows in range(1, widest + 2) if edge else (1,) if every_length else ():
                yield rows, length, cached, True
                if length % block == 0 and cached < length and rows == 1:
                    yield rows, length, cached, False


def reached(module: SimpleNamespace, every_length: bool = True) -> tuple[set, Counter]:
    """Every pass that some admitted call runs, and how many calls were admitted, refused and planned."""
    block = module.BLOCK_SIZE
    planner, admission = Planner(module), Admission(module, SliceCursors())
    found, count = set(), Counter()
    for rows, length, cached, final in calls(module, every_length):
        shared, own = cached // block, -(-length // block) - cached // block
        if shared + rows * own > module.KEY_VALUE_BLOCKS or rows > module.KEY_VALUE_BLOCKS:
            count["do not fit the blocks"] += 1
            continue
        pages = np.empty((rows, shared + own), dtype=np.int32)
        pages[:, :shared] = np.arange(shared)
        pages[:, shared:] = shared + np.arange(rows * own).reshape(rows, own)
        tokens = np.zeros((rows, length), dtype=np.int32)
        try:
            plans = planner.plan(admission.rows(tokens, pages, [length] * rows, [cached] * rows, None, final), "logits")
        except PrefillError as error:
            pytest.fail(f"{rows} rows of {length} tokens, {cached} cached, final {final}: {error}")
        found |= {chunk.shape for plan in plans for chunk in plan.chunks}
        count["planned"] += 1
    return found, count


@pytest.mark.parametrize(("model", "target"), TWINS.values(), ids=["-".join(name) for name in TWINS.values()])
def test_b08_every_admitted_request_of_a_twin_is_served_by_its_passes_and_every_pass_serves_one(model, target, report):
    module = tables(resolved(model, target, True))
    found, count = reached(module)
    report(
        f"twin of {model} on {target}: {dict(count)} of all calls, {len(found)} of {len(module.TRACES)} passes reached"
    )
    assert count["planned"] > 20_000
    assert found == set(module.TRACES)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_b08_no_geometry_lists_a_pass_that_no_call_can_need(data):
    """Also where the context is one chunk, the blocks hold few rows, or the alignment is one block."""
    block = 32
    attention_chunk = data.draw(st.sampled_from([32, 64, 128]))
    alignment = lcm(block, attention_chunk)
    chunk = alignment * data.draw(st.integers(1, 2))
    shorter = data.draw(st.sets(st.integers(1, chunk // block).map(lambda n: n * block), max_size=2))
    context = chunk + block * data.draw(st.integers(0, 4))
    model = replace(
        resolved("smollm2-135m", "n150", True),
        attention_chunk=attention_chunk,
        alignment=alignment,
        prefill_chunk=chunk,
        lengths=tuple(sorted({*shorter, chunk})),
        waves=(1, *sorted(data.draw(st.sets(st.sampled_from([2, 4, 8]), max_size=2)))),
        wave_tokens=8 * chunk,
        ragged_tokens=tuple(sorted(data.draw(st.sets(st.sampled_from([256, 512, 768, 1024]), max_size=3)))),
        context=context,
        key_value_blocks=context // block + data.draw(st.sampled_from([0, 1, 4, 12, 30])),
    )
    module = tables(model)
    found, _ = reached(module, every_length=False)
    assert found == set(module.TRACES), (model.lengths, model.waves, model.key_value_blocks, context)


def test_b08_a_pass_longer_than_any_call_needs_is_left_out():
    """One chunk of context, cut at every block: what is left of a cached prompt fits the shorter length."""
    model = resolved("smollm2-135m", "n150", True)
    small = replace(model, attention_chunk=32, alignment=32, context=64, prefill_chunk=64, lengths=(32, 64), waves=(1,))
    listed = [(shape.variant, shape.tokens) for shape in enumerate_shapes(replace(small, ragged_tokens=()))]
    assert listed == [("single", 32), ("single", 64), ("chunked", 32)]


@pytest.mark.parametrize(
    ("blocks", "sizes"), [(1, []), (2, [256]), (8, [256]), (9, [256, 512]), (17, [256, 512, 1024])]
)
def test_b08_a_ragged_wave_larger_than_all_blocks_fill_is_left_out(blocks, sizes):
    model = replace(resolved("smollm2-135m", "n150", True), key_value_blocks=blocks, ragged_tokens=(256, 512, 1024))
    ragged = [shape for shape in enumerate_shapes(model) if shape.variant == "ragged"]
    assert [shape.rows * shape.tokens for shape in ragged] == sizes

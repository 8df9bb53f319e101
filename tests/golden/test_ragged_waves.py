"""Rows of any lengths in one pass, against the reference: every row as if it were alone, eager and replayed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from runtime.tables import RAGGED
from tests.support.twins import Rig, relative_error, traced_rig

MODELS = {
    "smollm2-135m": "n150",
    "qwen3-8b": "n150",
    "phi-3.5-mini": "n150",
    "mixtral-8x7b-v0.1": "p150",
}  # with experts last
CALLS = (  # bounds of one and the same pass differ from call to call
    (1, 31, 32, 33),
    (33, 32, 31, 1),
    (128, 127, 1),
    (64, 65, 127),
    (32,) * 8,
    (32,) * 7 + (1,),
    (128,) * 8,
    (127,) * 8,
    (1,) * 33,
    (5, 128, 33, 64, 96, 100, 2, 31, 90, 77, 128, 1),
)
GATE = 1e-5


@pytest.fixture(scope="module", params=MODELS)
def rig(request: pytest.FixtureRequest) -> Rig:
    return traced_rig(request.param, target=MODELS[request.param], ragged=True)


def waves(rig: Rig, lengths: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Tokens of each ragged pass of a call, and its rows."""
    call = rig.call(lengths)
    plans = rig.prefill.prepare(call.tokens, call.page_table, call.prompt_lens)
    shapes = [(plan.chunks[0].shape, plan.source_rows) for plan in plans]
    return [(shape.rows * shape.tokens, rows) for shape, rows in shapes if shape.variant == RAGGED]


def test_rows_of_any_lengths_share_passes(rig: Rig) -> None:
    assert waves(rig, CALLS[0]) == [(256, (0, 1, 2, 3))] and waves(rig, CALLS[4]) == [(256, tuple(range(8)))]
    assert waves(rig, CALLS[6]) == [(1024, tuple(range(8)))] and waves(rig, (128, 128, 1)) == [(512, (0, 1, 2))]
    assert waves(rig, CALLS[8]) == [(1024, tuple(range(32)))] and waves(rig, (77,)) == []


@pytest.mark.parametrize("traced", [False, True])
def test_every_row_is_what_the_reference_says(rig: Rig, traced: bool) -> None:
    for seed, lengths in enumerate(CALLS):
        call = rig.call(lengths, seed)
        found = rig.prefill.prefill_forward(call.tokens, call.page_table, call.prompt_lens, traced=traced)
        assert relative_error(found, rig.expected(call)) < GATE, lengths


def test_the_cache_holds_each_rows_keys_and_values_and_nothing_else_changes(rig: Rig) -> None:
    """As the same rows leave it one by one, also in the blocks of rows that are not in the call."""
    lengths = CALLS[-1]
    call = rig.call(lengths)
    used = sorted({int(block) for row, length in zip(call.page_table, lengths) for block in row[: -(-length // 32)]})
    others = [block for block in range(rig.module.KEY_VALUE_BLOCKS) if block not in used]
    rig.poison(range(rig.module.KEY_VALUE_BLOCKS))
    for row in range(len(lengths)):
        alone = slice(row, row + 1)
        rig.prefill.prefill_forward(call.tokens[alone], call.page_table[alone], call.prompt_lens[alone], slots=[row])
    expected = rig.blocks()
    rig.poison(range(rig.module.KEY_VALUE_BLOCKS))
    rig.prefill.prefill_forward(call.tokens, call.page_table, call.prompt_lens)
    found = rig.blocks()
    assert torch.equal(found[:, others], expected[:, others])
    for row, length in zip(call.page_table, lengths):
        for at, block in enumerate(row[: -(-length // 32)]):
            real = min(32, length - 32 * at)
            assert relative_error(found[:, block, :, :real], expected[:, block, :, :real]) < GATE


def test_a_row_does_not_depend_on_its_neighbours(rig: Rig) -> None:
    """Bit for bit: other tokens beside a row, of equal lengths, are not seen."""
    call = rig.call((40, 70, 33))
    first = rig.prefill.prefill_forward(call.tokens, call.page_table, call.prompt_lens)
    other = np.array(call.tokens)
    other[[0, 2]] = (other[[0, 2]] + 7) % rig.module.VOCABULARY
    second = rig.prefill.prefill_forward(other, call.page_table, call.prompt_lens)
    if not rig.module.GEOMETRY.experts:  # which share blocks of an expert's products
        assert torch.equal(first[1], second[1])
    assert relative_error(first[1], second[1]) < GATE and not torch.equal(first[0], second[0])


def test_a_delay_keeps_rows_apart_and_changes_no_result() -> None:
    rig = Rig(ragged=True)
    free, bound = rig.prefill, type(rig.prefill)(rig.module, rig.device, rig.weights, rig.stores, most_delay=0.0)
    call = rig.call((128, 20, 128))
    plans = [one.prepare(call.tokens, call.page_table, call.prompt_lens) for one in (free, bound)]
    assert [len(one) for one in plans] == [1, 3]
    results = [one.collect(one.run(plan)) for one, plan in zip((free, bound), plans)]
    assert relative_error(*results) < GATE

"""Host values of a pass: what lies where, and what padding holds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.errors import ModuleError
from runtime.planner import Planner
from runtime.request import PrefillChunk, PrefillRequest
from runtime.values import HostValues
from runtime.tables import RAGGED, Input, Shape
from tests.support.plan_tables import plan_tables


def request(row, length, cached=0, first_block=0):
    begin = min(cached, length - 1) // 128 * 128
    pages = np.arange(first_block, first_block + -(-length // 32), dtype=np.int32)
    return PrefillRequest(row, row, np.arange(begin, length, dtype=np.int32) + 1, begin, cached, length, pages, True)


def staged(tables, prepared, chunk):
    values = HostValues(tables)
    return {entry.name: values.value(entry, prepared, chunk) for entry in values.inputs(chunk.shape)}


def test_a_packed_wave_lies_row_after_row_with_zeros_in_the_padding():
    tables = plan_tables()
    (plan,) = Planner(tables).plan(
        (request(0, 87), request(1, 115, first_block=9), request(2, 1, first_block=20)), "logits"
    )
    values = staged(tables, plan, plan.chunks[0])
    tokens = values["tokens"].view(4, 128)
    assert tokens[0, :87].tolist() == list(range(1, 88)) and tokens[0, 87:].sum() == 0
    assert tokens[1, :115].tolist() == list(range(1, 116)) and tokens[3].sum() == 0
    assert values["positions"].view(4, 128).tolist() == [list(range(128))] * 4
    assert values["row_bounds"].tolist() == [0, 128, 256, 384, 512]
    assert values["fill_table"].tolist() == [[0, 1, 2, -1, 9, 10, 11, 12, 20, -1, -1, -1, -1, -1, -1, -1]]


def ragged_tables(rows=4, tokens=128):
    """Beside lengths of one row a wave of so many rows that share its tokens."""
    tables = plan_tables()
    wave = Shape(RAGGED, rows, tokens, rows * tokens // 32, 0, "last", "ragged", 500)
    singles = [replace(shape, microseconds=400) for shape in tables.TRACES if shape.variant == "single"]
    chunks = [shape for shape in tables.TRACES if shape.read_pages]
    return SimpleNamespace(
        **{
            **vars(tables),
            "TRACES": (*singles, wave, *chunks),
            "INPUTS": {**tables.INPUTS, RAGGED: tables.INPUTS["batched"]},
        }
    )


def test_rows_of_a_ragged_wave_take_whole_blocks_and_what_is_left_is_a_row_of_padding():
    tables = ragged_tables()
    rows = (request(0, 33), request(1, 300, first_block=9), request(2, 32, first_block=20))
    (plan,) = Planner(tables).plan(rows, "logits")
    values = staged(tables, plan, plan.chunks[0])
    assert values["row_bounds"].tolist() == [0, 64, 384, 416, 512]
    assert values["tokens"][0].tolist() == [
        *range(1, 34),
        *[0] * 31,
        *range(1, 301),
        *[0] * 20,
        *range(1, 33),
        *[0] * 96,
    ]
    assert values["positions"][0].tolist() == [*range(64), *range(320), *range(32), *range(96)]
    assert values["fill_table"][0].tolist() == [0, 1, *range(9, 19), 20, -1, -1, -1]
    assert values["last_rows"][0, :4].tolist() == [32, 64 + 299, 384 + 31, 0]


def test_a_ragged_wave_of_as_many_rows_as_can_be_gives_what_is_left_to_the_last():
    tables = ragged_tables()
    rows = tuple(request(row, length, first_block=4 * row) for row, length in enumerate((1, 31, 32, 33)))
    (plan,) = Planner(tables).plan(rows, "logits")
    values = staged(tables, plan, plan.chunks[0])
    assert values["row_bounds"].tolist() == [0, 32, 64, 96, 512]
    assert values["fill_table"][0].tolist() == [0, 4, 8, 12, 13, *[-1] * 11]
    assert values["positions"][0, 96:].tolist() == list(range(416))
    assert values["last_rows"][0, :4].tolist() == [0, 32 + 30, 64 + 31, 96 + 32]


def test_a_full_ragged_wave_has_bounds_without_tokens_between():
    tables = ragged_tables()
    (plan,) = Planner(tables).plan((request(0, 256), request(1, 250, first_block=9)), "logits")
    values = staged(tables, plan, plan.chunks[0])
    assert values["row_bounds"].tolist() == [0, 256, 512, 512, 512]
    assert values["fill_table"][0].tolist() == [*range(8), *range(9, 17)]


def test_only_rows_from_their_start_that_fit_one_pass_are_packed():
    tables = ragged_tables()
    rows = (
        request(0, 40),
        request(1, 100, cached=32, first_block=9),
        request(2, 2000, first_block=20),
        request(3, 50, first_block=90),
    )
    plans = Planner(tables).plan(rows, "logits")
    assert [(plan.source_rows, plan.chunks[0].shape.variant) for plan in plans] == [
        ((0, 3), RAGGED),
        ((1,), "chunked"),
        ((2,), "chunked"),
    ]
    alone = Planner(tables).plan(rows[:1] + rows[3:], "logits", alone=True)
    assert [(plan.source_rows, plan.chunks[0].shape.variant) for plan in alone] == [((0,), "single"), ((3,), "single")]
    apart = Planner(tables).plan((rows[0], replace(rows[3], final=False)), "logits")
    assert [(plan.source_rows, plan.final) for plan in apart] == [((0,), True), ((3,), False)]


def test_s000_51_the_last_row_of_each_prompt_is_picked_and_padding_picks_row_0():
    tables = plan_tables()
    (plan,) = Planner(tables).plan((request(0, 87), request(1, 115, first_block=9)), "logits")
    picked = staged(tables, plan, plan.chunks[0])["last_rows"][0].tolist()
    assert picked == [86, 128 + 114] + [0] * 62


def test_s000_21_a_chunk_states_absolute_positions_and_a_relative_last_row():
    tables = plan_tables()
    (plan,) = Planner(tables).plan((request(0, 1500, cached=256),), "logits")
    first, last = (staged(tables, plan, chunk) for chunk in plan.chunks)
    assert first["start"].tolist() == [256] and last["start"].tolist() == [1280]
    assert first["positions"][0].tolist() == list(range(256, 1280))
    assert last["positions"][0].tolist() == list(range(1280, 1792))
    assert last["tokens"][0].tolist() == [*range(1281, 1501), *[0] * 292]
    assert last["last_rows"][0, :2].tolist() == [219, 0] and first["last_rows"].sum() == 0
    assert first["read_table"].tolist() == last["read_table"].tolist()


def test_s000_35_padding_past_the_context_takes_its_last_position():
    tables = plan_tables(context=1088)
    (plan,) = Planner(tables).plan((request(0, 1080),), "logits")
    positions = staged(tables, plan, plan.chunks[1])["positions"][0].tolist()
    assert positions == [*range(1024, 1088), *[1087] * 64]


def test_rows_of_a_chunked_wave_share_the_start_and_have_a_read_row_each():
    tables = plan_tables(chunk_rows=(1, 2))
    rows = (request(0, 200, cached=128), request(1, 210, cached=128, first_block=100))
    (plan,) = Planner(tables).plan(rows, "logits")
    values = staged(tables, plan, plan.chunks[0])
    assert values["tokens"].view(2, 128)[1, :82].tolist() == list(range(129, 211))
    assert values["fill_table"].tolist() == [[4, 5, 6, -1, 104, 105, 106, -1]]
    assert values["read_table"][1, :8].tolist() == [100, 101, 102, 103, 104, 105, 106, 100]
    assert values["last_rows"][0, :2].tolist() == [71, 128 + 81] and values["start"].tolist() == [128]


def test_an_input_without_a_value_or_of_another_shape_is_refused():
    tables = plan_tables()
    plain = tables.INPUTS["single"]
    tables.INPUTS = tables.INPUTS | {"single": lambda shape: (*plain(shape), Input("mood", (1,), None, "always"))}
    with pytest.raises(ModuleError, match="no value is known for: mood"):
        HostValues(tables)
    tables = plan_tables()
    (plan,) = Planner(tables).plan((request(0, 87),), "logits")
    with pytest.raises(ModuleError, match=r"input tokens of .* is \(1, 64\) in the module and \(1, 128\) here"):
        HostValues(tables).value(Input("tokens", (1, 64), None, "always"), plan, plan.chunks[0])


def test_a_plan_of_another_module_is_refused():
    tables, others = plan_tables(), plan_tables({128: (1, 2)})
    with pytest.raises(ModuleError, match="is not a pass of this module"):
        HostValues(others).inputs(tables.TRACES[3])


@pytest.mark.parametrize("start, stop", [(0, 0), (5, 4), (-128, 10), (0, 129)])
def test_s000_19_a_chunk_refuses_positions_that_do_not_fit_it(start, stop):
    with pytest.raises(ValueError, match=f"positions {start} to {stop} do not fit a pass of 128 tokens"):
        PrefillChunk(plan_tables().TRACES[0], start, stop)

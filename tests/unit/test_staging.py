"""Host values of a pass: what lies where, and what padding holds."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ModuleError
from runtime.planner import Planner
from runtime.request import PrefillChunk, PrefillRequest
from runtime.values import HostValues
from runtime.tables import Input
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

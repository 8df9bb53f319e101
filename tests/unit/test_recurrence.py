"""Routes of a pass's recurrence: which run, in which order, and what declining means."""

from __future__ import annotations

import pytest
import torch

from runtime.backend import ttnn
from runtime.errors import NoBatchedRecurrence
from runtime.recurrence import (
    EQUAL,
    SINGLE,
    VARIABLE,
    equal_length,
    require_batched,
    route,
    row_by_row,
    variable_length,
)
from runtime.stores import tensors
from tests.support.state_module import StateRig

FORMS = {1: "alone", 2: "wave", 4: "rows", 8: "matmuls"}


def test_s001_13_the_equal_length_route_is_for_rows_that_are_all_there_and_equally_long():
    assert equal_length(FORMS, 2, [64, 64]) and not variable_length(FORMS, 2, [64, 64])
    assert not equal_length(FORMS, 2, [64, 65]) and variable_length(FORMS, 2, [64, 65])
    assert not equal_length(FORMS, 2, [64]) and variable_length(FORMS, 2, [64])


def test_s001_16_a_route_that_declines_launches_nothing_and_touches_no_state_and_errors_are_neither():
    rig = StateRig()
    rig.run((0, rig.prompt(0), 100))
    state = [ttnn.to_torch(tensor).clone() for tensor in tensors(rig.stores)]
    operations = rig.device.counters.operations
    for route_function in (variable_length, equal_length, row_by_row):
        assert route_function({}, 2, [64, 64]) is False, "the default, without the table"
        assert route_function({4: "wave"}, 2, [64, 64]) is False
    assert variable_length(FORMS, 4, [3, 4]) is equal_length(FORMS, 4, [4] * 4) is False
    assert rig.device.counters.operations == operations
    assert all(torch.equal(ttnn.to_torch(now), was) for now, was in zip(tensors(rig.stores), state, strict=True))
    with pytest.raises(NoBatchedRecurrence):
        require_batched(FORMS, 3)


@pytest.mark.parametrize(
    "rows, counts, wanted",
    [
        (2, [7, 7], EQUAL),
        (2, [7, 8], VARIABLE),
        (2, [7], VARIABLE),
        (4, [7, 7, 7, 7], SINGLE),
        (8, [7] * 8, SINGLE),
        (1, [7], SINGLE),
        (16, [7] * 16, ""),
    ],
)
def test_s001_18_routes_are_asked_in_order_and_the_first_that_runs_is_taken(rows, counts, wanted):
    assert route(FORMS, rows, counts) == wanted
    assert route({}, rows, counts) == ""


def test_s001_12_the_error_of_a_missing_batched_form_says_to_run_the_rows_one_by_one():
    with pytest.raises(
        NoBatchedRecurrence, match="for 16 rows at once, only for 1, 2, 4, 8; fall back to running .* one by one"
    ):
        require_batched(FORMS, 16)
    require_batched(FORMS, 8), require_batched({}, 16), require_batched({2: "wave"}, 1)

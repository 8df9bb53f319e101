"""Calls planned for figures: what is refused is left out by itself, and everything else is planned as ever."""

from __future__ import annotations

from benchmarks.workloads import module_tables
from runtime.replay import Replay

CONTEXT = 8192


def test_a_refused_row_leaves_the_others_of_its_call() -> None:
    replay = Replay(module_tables(CONTEXT, 2048))
    planned = replay.plan([CONTEXT + 1, 100, 0, 4096], [0, 0, 0, 512])
    rows = sorted((one.length, one.cached) for plan in planned.plans for one in plan.requests)
    assert planned.refused == (0, 2) and rows == [(100, 0), (4096, 512)] and planned.seconds > 0


def test_a_call_of_refused_rows_alone_has_no_plans() -> None:
    planned = Replay(module_tables(CONTEXT, 2048)).plan([CONTEXT + 1, CONTEXT + 2], [0, 0])
    assert (planned.plans, planned.refused) == ((), (0, 1))


def test_rows_of_a_call_have_blocks_enough_for_all_of_them() -> None:
    """Thirty-two whole contexts, and one more: which blocks are free is not in a log."""
    planned = Replay(module_tables(CONTEXT, 2048)).plan([CONTEXT] * 33, [0] * 33)
    assert planned.refused == () and sum(len(plan.requests) for plan in planned.plans) == 33

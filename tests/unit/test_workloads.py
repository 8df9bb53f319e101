"""Request logs, and what the two policies make of them."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from benchmarks import request_logs, workloads
from benchmarks.measure import Figure
from benchmarks.request_logs import Request, available, azure, calls, mooncake
from benchmarks.workloads import Count, Default, add_power_of_two, compare, module_tables
from generator.choosing.power_of_two import Limits


def test_logs_are_read_with_their_prefixes(tmp_path: Path) -> None:
    (tmp_path / request_logs.AZURE).write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.9799600,0,8\n2023-11-16 18:17:05.4799600,110,27\n"
    )
    assert azure(tmp_path / request_logs.AZURE) == [Request(0, 4808), Request(1.5, 110)]
    lines = [
        {"timestamp": 0, "input_length": 1300, "hash_ids": [0, 1, 2]},
        {"timestamp": 500, "input_length": 1600, "hash_ids": [0, 1, 7, 8]},
        {"timestamp": 900, "input_length": 1024, "hash_ids": [0, 1]},
        {"timestamp": 950, "input_length": 600, "hash_ids": [0, 1]},
    ]
    (tmp_path / request_logs.MOONCAKE).write_text("\n".join(map(json.dumps, lines)))
    assert mooncake(tmp_path / request_logs.MOONCAKE) == [
        Request(0, 1300),
        Request(0.5, 1600, 1024),
        Request(0.9, 1024, 1024),
        Request(0.95, 600, 512),
    ]
    assert list(available(tmp_path)) == ["azure", "mooncake"]


def test_a_small_log_stands_in_where_none_is_at_hand(tmp_path: Path) -> None:
    (log,) = available(tmp_path).values()
    assert log == request_logs.synthetic() and len(log) == request_logs.SYNTHETIC_REQUESTS


def test_a_call_holds_what_arrives_within_a_second_up_to_its_rows() -> None:
    log = [Request(arrival, 10) for arrival in (0, 0.4, 0.9, 1.0, 1.1, 5)]
    assert [len(call) for call in calls(log, 32, 1.0)] == [3, 2, 1]
    assert [len(call) for call in calls(log, 2, 1.0)] == [2, 2, 1, 1]
    assert list(chain(*calls(log, 2, 1.0))) == log


def test_b01_one_refused_row_takes_its_call_with_it_today_and_none_is_refused_here() -> None:
    call = [Request(0, 100), Request(0, 5000), Request(0, 200)]
    here, today = Count(), Count()
    Default(module_tables(5120, 2048)).add(call, here)
    add_power_of_two(call, Limits(5120, 2048), today)
    assert (here.refused, here.served, here.real) == (0, 3, 5300)
    assert (today.refused, today.refused_with_their_call, today.served, today.real) == (1, 2, 2, 300)
    assert (today.passes, today.computed) == (2, 128 + 1024)
    assert (here.passes, here.computed) == (1 + 1 + 3, 128 + 256 + 2 * 2048 + 1024)


def test_b06_today_a_fully_cached_row_counts_as_a_row_of_zeros() -> None:
    here, today = Count(), Count()
    Default(module_tables(5120, 2048)).add([Request(0, 512, 512)], here)
    add_power_of_two([Request(0, 512, 512)], Limits(5120, 2048), today)
    assert (here.passes, here.computed, here.served, here.zero_rows) == (1, 128, 1, 0)
    assert (today.passes, today.served, today.zero_rows) == (0, 0, 1)


@pytest.mark.parametrize(("context", "chunk"), workloads.CONTEXTS)
def test_b04_the_default_policy_refuses_nothing_and_pads_less(context: int, chunk: int) -> None:
    log = request_logs.synthetic()
    made = compare("synthetic", log, context, chunk)
    default, today = made.counts["default"], made.counts["power-of-two"]
    assert made.requests + made.over_context == len(log)
    assert default.refused == 0 and default.served == made.requests
    assert 1 < default.padding < today.padding
    assert str(default.computed) in workloads.table([made])


def test_the_figures_hold_what_the_table_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(request_logs, "available", lambda: {"synthetic": request_logs.synthetic()[:20]})
    figures = workloads.measure()
    assert len(figures) == len(workloads.CONTEXTS) * 2 * 4 and all(isinstance(figure, Figure) for figure in figures)
    assert capsys.readouterr().out.count("power-of-two") == len(workloads.CONTEXTS)

"""Every committed module is accepted whole by the real library, on a mock device of its board.

All weights and stores of all layers are allocated and every pass of the module's table runs: one row, waves and chunks. Nothing is
computed, so this shows that the calls, the program configurations and the memory are legal, and nothing about numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.device.emitted import emitted_modules
from tests.device.mock import describe

MODULES = emitted_modules()
each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")


@pytest.fixture(scope="module")
def report_of(mock_device) -> Callable[[Path], dict[str, Any]]:
    """What running a module gave; each is run once."""
    reports: dict[Path, dict[str, Any]] = {}

    def report(path: Path) -> dict[str, Any]:
        if path not in reports:
            reports[path] = mock_device(path.stem).run(path)
        return reports[path]

    return report


def test_there_are_emitted_modules_of_every_board_to_run() -> None:
    assert {path.stem for path in MODULES} == {"n150", "p150"}


@each_module
def test_every_pass_of_a_module_is_legal_on_its_board(report_of, path: Path) -> None:
    report = report_of(path)

    assert not report["refusals"], describe(report)
    assert {shape.split()[0] for shape in report["ran"]} == {"single", "batched", "chunked", "chunked_batched"}
    assert report["outputs"] == report["expected"]


@each_module
def test_a_module_leaves_no_device_memory_behind(report_of, path: Path) -> None:
    assert report_of(path)["held_bytes"] == 0


@each_module
def test_a_module_states_its_board_as_the_library_reports_it(mock_device, report_of, path: Path) -> None:
    stated, reported = report_of(path)["stated_board"], mock_device(path.stem).board

    assert {key: stated[key] for key in reported} == reported

"""Every committed module is accepted by the real library, on a mock device of its board, at full width and two layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.emitted import SMALLEST_MODEL, emitted_modules
from tests.device.legality import VARIANTS
from tests.device.mock import describe

MODULES = emitted_modules()
TRACE_RESERVE = 1 << 20  # bytes of one bank


def test_there_are_emitted_modules_of_every_board_to_run() -> None:
    assert {path.stem for path in MODULES} == {"n150", "p150"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_module_is_legal_on_its_board(mock_device, path: Path) -> None:
    """One row, one wave and one chunk at their largest; every shape of the smallest model."""
    report = mock_device(path.stem).run(path, every_shape=path.parent.name == SMALLEST_MODEL)

    assert not report["refusals"], describe(report)
    assert {shape.split()[0] for shape in report["ran"]} == set(VARIANTS)
    assert report["outputs"] == report["expected"]
    assert report["held_bytes"] == 0, "the run left device memory allocated"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_module_states_its_board_as_the_library_reports_it(mock_device, path: Path) -> None:
    """A module may leave a little of each DRAM bank to a trace region; it never counts on more than there is."""
    device = mock_device(path.stem)
    stated, reported = dict(device.run(path)["stated_board"]), dict(device.board)
    reserve = reported.pop("dram_bank_bytes") - stated.pop("dram_bank_bytes")

    assert {key: stated[key] for key in reported} == reported
    assert 0 <= reserve <= TRACE_RESERVE, reserve

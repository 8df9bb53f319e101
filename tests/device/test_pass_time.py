"""The time of a pass that is planned before it is emitted is the time of what the real library then runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.captured import modelled
from generator.pass_time import pass_times
from generator.shapes import enumerate_shapes
from tests.device.emitted import emitted_modules
from tests.device.test_layer_model import resolved

each_module = pytest.mark.parametrize("path", emitted_modules(), ids=lambda path: f"{path.parent.name}-{path.stem}")
OUTLINED = (1.0, 1.35)  # experts: the plan has their buffers' largest sizes, and not each operation as it runs


@each_module
def test_a_captured_pass_takes_what_was_planned(verdicts, path: Path) -> None:
    of = resolved(path.parent.name, path.stem)
    planned = {(one.variant, one.rows, one.tokens): time for one, time in pass_times(of, enumerate_shapes(of)).items()}
    least, most = (0.99, 1.01) if of.experts is None else OUTLINED
    for report in verdicts[path.parent.name, path.stem]["shapes"]:
        size = tuple(report["shape"][name] for name in ("variant", "rows", "tokens"))
        if report["calls"]:
            assert least <= (planned[size].body + planned[size].tail) / modelled(report, of)["seconds"] <= most, size

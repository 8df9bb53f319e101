"""The README's tables of modelled figures are what the benchmarks give today."""

from __future__ import annotations

import pytest

from benchmarks import first_token, readme, request_logs, run, shapes


@pytest.mark.skipif(
    not all((request_logs.SHARED / name).is_file() for name in (request_logs.AZURE, request_logs.MOONCAKE)),
    reason="the public request logs do not lie beside the project",
)
def test_the_modelled_figures_are_those_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "CHOOSING", ())  # which is measured by the clock
    record = run.record([*shapes.measure(), *first_token.measure()])
    text = readme.README.read_text(encoding="utf-8")
    assert (
        readme.with_tables(text, readme.tables(record)) == text
    ), "python -m benchmarks.run shapes first-token; then benchmarks.readme"
    assert [figure["name"] for figure in record["figures"] if not figure["met"]] == []


def test_a_figure_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="azure: modelled time, hand-written"):
        readme.tables({"figures": []})

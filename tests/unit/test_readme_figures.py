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
        readme.with_tables(text, readme.MODELLED, readme.tables(record)) == text
    ), "python -m benchmarks.run shapes first-token; then benchmarks.readme"
    assert [figure["name"] for figure in record["figures"] if not figure["met"]] == []


def test_a_figure_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="azure: modelled time, hand-written"):
        readme.tables({"figures": []})


def test_the_measured_figures_have_the_rows_and_limits_of_the_benchmarks() -> None:
    """What they are is the clock's, whoever ran `make bench` last; a limit that is missed says so."""
    begin, end = f"<!-- {readme.MEASURED}, by python -m benchmarks.readme -->", f"<!-- end of {readme.MEASURED} -->"
    shown = readme.README.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip().splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in shown] == [row.what for row in readme.ROWS]
    record = {"figures": [figure for row in readme.ROWS for figure in map(_figure, row.figures)]}
    assert len(readme.measured(record).splitlines()) == len(readme.ROWS) + 2


def _figure(name: str, median: float = 2.0, limit: float | None = 3.0) -> dict:
    return {
        "name": f"{name} and more",
        "unit": "s",
        "median": median,
        "limit": limit,
        "met": limit is None or median <= limit,
    }


def test_a_measured_figure_is_its_median_and_says_where_it_misses_its_limit() -> None:
    names = [name for row in readme.ROWS for name in row.figures]
    record = {"figures": [_figure(name) for name in names]}
    record["figures"][0] = _figure(names[0], 4.0)
    first, second = readme.measured(record).splitlines()[2:4]
    assert first == f"| {readme.ROWS[0].what} | 4 s, 2 s | 3 s, missed, 3 s |"
    assert second == f"| {readme.ROWS[1].what} | 2.00 s | 3 s |"
    with pytest.raises(KeyError, match=names[-1]):
        readme.measured({"figures": record["figures"][:-1]})


def test_a_text_without_both_marks_is_refused_whole() -> None:
    with pytest.raises(ValueError, match="lacks the marks of measured figures"):
        readme.with_tables("<!-- measured figures, by python -m benchmarks.readme -->\n", readme.MEASURED, "new")


def test_a_table_takes_the_place_between_its_own_marks() -> None:
    text = readme.README.read_text(encoding="utf-8")
    made = readme.with_tables(text, readme.MEASURED, "new")
    assert "\nnew\n" in made and readme.with_tables(made, readme.MEASURED, "new") == made
    assert made.partition("## Choosing lengths")[2] == text.partition("## Choosing lengths")[2]

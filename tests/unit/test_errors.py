"""The table of errors: every class has its row, in the code and in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime import errors

README = Path(__file__).resolve().parents[2] / "README.md"


def classes(base=errors.PrefillError):
    return {base.__name__} | {name for child in base.__subclasses__() for name in classes(child)}


def test_every_error_is_a_class_of_its_own_under_one_base_with_a_sentence_of_its_own():
    rows = errors.table()
    assert {row.name for row in rows} == classes() and len(rows) == len({row.name for row in rows}) > 25
    assert all(row.meaning.endswith(".") and len(row.meaning) > 20 for row in rows)
    assert len({row.meaning for row in rows}) == len(rows)
    exported = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert {value.__name__ for value in exported} == classes()


@pytest.mark.parametrize("row", errors.table(), ids=lambda row: row.name)
def test_every_error_is_in_the_readme_with_what_it_means(row):
    assert f"| `{row.name}` | `{row.base}` | {row.meaning} |" in README.read_text(encoding="utf-8").splitlines()


def test_a_row_error_names_the_row_and_the_rows_that_could_be_served():
    assert str(errors.InvalidPage(2, "a page", (0, 1))) == "row 2: a page; servable rows of this call: 0, 1"
    assert str(errors.InvalidPage(2, "a page")) == "row 2: a page"

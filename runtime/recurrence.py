"""Which form of the recurrence a pass runs in, asked in order: a wave of rows of several lengths, a wave of equally long rows,
row by row.

Each route says True, it runs, or False, it declines: then nothing was launched and no state was touched. An error is neither.
A module without the table RECURRENCE has no route. The compiled program of a wave masks padding either way, so that the first
two routes replay the same trace: they tell apart what the rows were, not which program ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.errors import NoBatchedRecurrence
from runtime.tables import WAVE

VARIABLE, EQUAL, SINGLE = "variable-length wave", "equal-length wave", "row by row"


def variable_length(forms: Mapping[int, str], rows: int, counts: Sequence[int]) -> bool:
    """One recurrence over all rows, which differ in their real tokens `counts`, or are fewer than the padded `rows`."""
    return forms.get(rows) == WAVE and (len(counts) < rows or len(set(counts)) > 1)


def equal_length(forms: Mapping[int, str], rows: int, counts: Sequence[int]) -> bool:
    """One recurrence over all rows, every one of which is there and has as many real tokens."""
    return forms.get(rows) == WAVE and len(counts) == rows and len(set(counts)) == 1


def row_by_row(forms: Mapping[int, str], rows: int, counts: Sequence[int]) -> bool:
    """A recurrence for each row by itself."""
    return rows in forms


ROUTES = ((VARIABLE, variable_length), (EQUAL, equal_length), (SINGLE, row_by_row))


def route(forms: Mapping[int, str], rows: int, counts: Sequence[int]) -> str:
    """The first route that runs a pass of padded `rows`, of which those with real tokens have `counts` of them; "" where
    none does.
    """
    return next((name for name, runs in ROUTES if runs(forms, rows, counts)), "")


def require_batched(forms: Mapping[int, str], rows: int) -> None:
    """Refuse a wave for which the module has no recurrence, where it has a table of them."""
    if forms and rows > 1 and rows not in forms:
        raise NoBatchedRecurrence(
            f"no recurrence is emitted for {rows} rows at once, only for {', '.join(map(str, sorted(forms)))}; "
            f"fall back to running these rows one by one"
        )

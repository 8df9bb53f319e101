"""The promises that tests hold, by the ids under which the project's contract states them, and who cites which.

A test cites a row in its name (`test_s000_08_...`, `test_s000_12_and_14_...`, `test_b02_...`) or in its docstring
(S000-08, B-02). B-01 to B-15 are the contract's own; B02 to B61, without the dash, are fault reports from the field. Up
to 15 the two would read alike in a name, so that such a fault is `test_fault_b02_...` there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def _numbered(section: str, *spans: tuple[int, int]) -> list[str]:
    return [f"{section}-{number:02}" for first, last in spans for number in range(first, last + 1)]


DENSE_FAULTS = [f"B{n:02}" for n in (2, 3, 5, 8, 9, 13, 22, 26, 28, 38, 40, *range(51, 62))]
ROWS: tuple[str, ...] = (
    *_numbered("S000", (1, 56)),
    *_numbered("B", (1, 15)),
    *_numbered("S001", (1, 26)),
    *_numbered("S002", (1, 16), (21, 26)),
    *_numbered("S003", (1, 11), (23, 23), (25, 26), (30, 30), (32, 32), (39, 41), (47, 47)),
    *DENSE_FAULTS,
)
# Rows that no test can cite, each with the reason. Common sense wins where a row's wording and this project's form disagree.
WITHOUT_A_TEST: dict[str, str] = {
    "S003-03": "decode lanes are outside prefill; the prefill list of a mixed call is S003-02",
}
NAMED = re.compile(r"(?:^|_)(fault_b|s\d{3}_|b_?)(\d{2}(?:_and_\d{2})*)(?=_|$)")
WRITTEN = re.compile(r"\b(S\d{3}-\d{2}|B-?\d{2})\b")


def ids_in_name(name: str) -> Iterator[str]:
    for prefix, numbers in NAMED.findall(name.lower()):
        for number in numbers.split("_and_"):
            if prefix.startswith("s"):
                yield f"{prefix[:4].upper()}-{number}"
            else:
                yield f"B{number}" if prefix == "fault_b" or int(number) > 15 else f"B-{number}"


def cited(files: Iterable[Path]) -> dict[str, list[str]]:
    """Row -> the tests that cite it, over the test functions of some files."""
    found: dict[str, list[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                ids = {*ids_in_name(node.name), *WRITTEN.findall(ast.get_docstring(node) or "")}
                for row in ids:
                    found.setdefault(row, []).append(f"{path.name}::{node.name}")
    return found

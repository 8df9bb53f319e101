"""What tests want read: printed at the end of a session, also where the tests ran in worker processes.

A property whose name begins with "count of" is a number that is added up over all tests; a reported line is printed as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

REPORTED, COUNTED = "reported line", "count of "


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Call it with a line for the end of the session."""
    return lambda line: record_property(REPORTED, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for result in terminalreporter.getreports(outcome):
            for name, value in result.user_properties:
                if name == REPORTED:
                    terminalreporter.write_line(str(value))
                elif name.startswith(COUNTED):
                    counts[name.removeprefix(COUNTED)] += value
    for name, number in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {number}")

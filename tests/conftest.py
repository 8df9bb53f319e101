"""What tests want read: printed at the end of a session, also where the tests ran in worker processes.

A property whose name begins with "count of" is a number that is added up over all tests; a reported line is printed as it is.
What the golden suite took is printed after them: seconds from its first test to its last, and peak memory.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("SOURCE_DATE_EPOCH", "1700000000")  # builds of tests record this day, whatever the clock says
REPORTED, COUNTED, PEAK = "reported line", "count of ", "peak bytes of the process"
GOLDEN = "golden/"  # of a test's id, wherever pytest was started


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Call it with a line for the end of the session."""
    return lambda line: record_property(REPORTED, line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Each test of the golden suite tells the largest resident size that its process has had, and which process that was."""
    made = yield
    if call.when == "call" and GOLDEN in item.nodeid:
        made.user_properties.append((PEAK, (os.getpid(), peak_memory())))
    return made


def peak_memory() -> int:
    """Bytes that this process held at most. Linux counts what its parent held before it into the usage of a process."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    results = [result for outcome in ("passed", "failed") for result in terminalreporter.getreports(outcome)]
    counts: Counter[str] = Counter()
    for result in results:
        for name, value in result.user_properties:
            if name == REPORTED:
                terminalreporter.write_line(str(value))
            elif name.startswith(COUNTED):
                counts[name.removeprefix(COUNTED)] += value
    for name, number in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {number}")
    golden = [result for result in results if any(name == PEAK for name, _ in result.user_properties)]
    if golden:
        terminalreporter.write_line(golden_line(golden, alone=len(golden) == len(results)))


def golden_line(golden: Iterable[pytest.TestReport], alone: bool) -> str:
    """What the reports of the golden suite took; `alone` where no other test ran, whose time and memory would be among it."""
    peaks: dict[int, int] = {}
    for result in golden:
        for process, peak in (value for name, value in result.user_properties if name == PEAK):
            peaks[process] = max(peaks.get(process, 0), peak)
    seconds = max(result.stop for result in golden) - min(result.start for result in golden)
    processes = f"{len(peaks)} process{'es' if len(peaks) > 1 else ''}"
    among = "" if alone else ", other tests among them"
    return (
        f"golden suite: {len(golden)} tests in {seconds:.0f} s{among}; peak memory {max(peaks.values()) / 1e9:.2f} GB"
        f" in one of {processes}, {sum(peaks.values()) / 1e9:.2f} GB in all"
    )

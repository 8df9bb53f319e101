"""A fault that ends or stops the process of the library is a refusal of the pass that was running, and the next module
is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.legality.command import Job, check
from tests.device.emitted import appended, smallest_module

FAULTS = {
    "leaves": ("import os; os._exit(3)", "ended with status 3"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV"),
    "aborts": ("import os; os.abort()", "was ended by SIGABRT"),
    "hangs": ("import time; time.sleep(1000)", "was ended after 4 s without an answer"),
}


def faulty(statement: str) -> str:
    return appended(
        smallest_module("n150"),
        f"_argmax = argmax\nLATER = []\n\n\ndef argmax(scores):\n    LATER.append(scores.shape)\n"
        f"    if len(LATER) > 3:\n        {statement}\n    return _argmax(scores)",
        passes="TRACES[:3]",
    )


@pytest.fixture(scope="module")
def verdicts(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One command over every fault and a sound module at the end."""
    folder = tmp_path_factory.mktemp("faults")
    sources = {name: faulty(statement) for name, (statement, _) in FAULTS.items()}
    sources["sound"] = appended(smallest_module("n150"), "", passes="TRACES[:1]")
    jobs = []
    for name, source in sources.items():
        path = folder / f"{name}.py"
        path.write_text(source)
        jobs.append(Job(name, "n150", path, str(path)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.legality.process.ANSWER_SECONDS", 4)
        return {one["model"]: one for one in check(jobs)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_with_the_pass_that_was_running(verdicts, fault: str) -> None:
    verdict = verdicts[fault]

    assert not verdict["passed"] and len(verdict["refusals"]) == 1
    refusal = verdict["refusals"][0]
    assert refusal["shape"] == "single 1x448" and FAULTS[fault][1] in refusal["message"]
    assert [one["shape"]["tokens"] for one in verdict["shapes"]] == [224], "what ran before is kept"


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "leaves"])
def test_a_fault_names_the_emitted_line_that_was_running(verdicts, fault: str) -> None:
    refusal = verdicts[fault]["refusals"][0]

    assert (refusal["function"], refusal["code"]) == ("argmax", FAULTS[fault][0])


def test_the_module_after_a_fault_is_checked_on_a_new_device(verdicts) -> None:
    assert verdicts["sound"]["passed"]

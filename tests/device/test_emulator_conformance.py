"""The emulator and the library give the same answers: to the recorded cases, and to calls generated for every operation.

Both run here side by side, the library on a mock device. "Alike" means accepted or refused alike and, where accepted,
results of the same shapes, padded shapes, types, layouts and memory configurations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.legality.environment import PROJECT
from tests.device.outcomes import ENDED, library_outcomes
from tests.support.emulated_calls import emulated_operations, emulated_outcomes
from tests.support.generated_arguments import CALLS, GENERATORS
from tests.support.generated_rules import CRASHES, STRICTER, described_by

RECORD = json.loads((PROJECT / "tests" / "support" / "ttnn_outcomes.json").read_text())
BOARDS = {"n150": "calls", "p150": "every third call"}  # what is asked of each: on the second board only grids differ
ONLY_ON = {"softcap": "p150"}  # operations that other boards refuse
REFUSED = "refused"
NOT_GENERATED = {"from_torch", "to_torch", "deallocate"}  # conversions are compared by value, and freeing has no result
Runs = Callable[[str, str], dict[str, str]]


@pytest.fixture(scope="module")
def answers(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The library's answers by what was run and on which board; the runs go on two at a time."""
    with ThreadPoolExecutor(2) as pool:
        runs: dict[tuple[str, str], Future] = {
            (what, board): pool.submit(library_outcomes, asked, board, library, tmp_path_factory.mktemp(board) / "mock")
            for board, calls in BOARDS.items()
            for what, asked in (("calls", calls), ("cases", "cases"))
        }
        yield lambda what, board: runs[what, board].result()


@pytest.mark.parametrize("board", BOARDS)
def test_the_library_answers_as_recorded(answers: Runs, board: str, report: Callable[[str], None]) -> None:
    expected = RECORD["n150"] | RECORD.get(f"{board} where it differs", {})
    found = answers("cases", board)
    different = {name: (expected.get(name), found[name]) for name in found if found[name] != expected.get(name)}

    assert not different, "\n".join(f"{name}: recorded {old}, now {new}" for name, (old, new) in different.items())
    assert set(found) == set(expected)
    report(f"conformance on {board}: {len(found)} cases written by hand are answered as recorded")


def _compared(board: str, library: dict[str, str]) -> tuple[Counter[str], list[str]]:
    """How many calls ended how, and the differences as text."""
    counts: Counter[str] = Counter()
    differences = []
    for name, ours in emulated_outcomes(board).items():
        call = CALLS[name]
        ends_it = bool(described_by(CRASHES, call))
        if name not in library and not ends_it:
            continue
        if ends_it:
            expected, kind = REFUSED, "refused by the emulator and not put to the library, whose process they end"
        elif library[name].startswith(REFUSED):
            expected, kind = REFUSED, "refused by both"
        elif described_by(STRICTER, call):
            expected, kind = REFUSED, "refused by the emulator alone"
        else:
            expected, kind = library[name], "accepted by both"
        counts[kind] += 1
        if ours != expected:
            rules = described_by(STRICTER, call) or "none"
            answer = library.get(name, ENDED)
            differences.append(f"{name}: library {answer}, emulator {ours} (stricter rules: {rules})\n    {call}")
    return counts, differences


@pytest.mark.parametrize("board", BOARDS)
def test_generated_calls_have_the_same_outcome_on_both(
    answers: Runs, board: str, report: Callable[[str], None]
) -> None:
    library = answers("calls", board)
    counts, differences = _compared(board, library)

    assert ENDED not in library.values(), [name for name, outcome in library.items() if outcome == ENDED]
    assert not differences, f"{len(differences)} of {len(CALLS)} calls differ\n" + "\n".join(differences[:40])
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    report(f"conformance on {board}: {len(GENERATORS)} operations, {counts.total()} generated argument sets: {kinds}")


def test_about_half_of_the_generated_calls_are_accepted(answers: Runs) -> None:
    for operation in GENERATORS:
        library = answers("calls", ONLY_ON.get(operation, "n150"))
        outcomes = [library[name] for name, call in CALLS.items() if call.operation == operation and name in library]
        share = sum(not outcome.startswith(REFUSED) for outcome in outcomes) / len(outcomes)

        assert 0.1 < share < 0.95, f"{operation}: the library accepts {share:.0%} of {len(outcomes)}"


def test_every_stricter_rule_is_needed(answers: Runs) -> None:
    """Each rule alone explains the refusal of a call that the library accepts."""
    library = answers("calls", "n150")
    accepted = [CALLS[name] for name, outcome in library.items() if not outcome.startswith(REFUSED)]
    alone = {rules[0] for rules in (described_by(STRICTER, call) for call in accepted) if len(rules) == 1}

    assert set(STRICTER) - alone == set()


@pytest.mark.parametrize("rule", CRASHES)
def test_what_is_said_to_end_the_process_ends_it(library: Path, tmp_path: Path, rule: str) -> None:
    with pytest.raises(RuntimeError, match="1 calls ended their process"):
        library_outcomes(rule, "n150", library, tmp_path / "mock", most_ends=1)


def test_calls_are_generated_for_every_operation() -> None:
    assert emulated_operations() - NOT_GENERATED == set(GENERATORS)

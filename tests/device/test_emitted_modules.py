"""Every committed module is accepted whole by the real library, on a mock device of its board, through the command's
own path.

All weights and stores of all layers are allocated and every pass of the module's table runs: one row, waves and
chunks. Nothing is computed, so this shows that the calls, the program configurations and the memory are legal, and
nothing about numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.emitted import described, emitted_modules

MODULES = emitted_modules()
each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")


def test_there_are_emitted_modules_of_every_board_to_run() -> None:
    assert {path.stem for path in MODULES} == {"n150", "p150"}


@each_module
def test_every_pass_of_a_module_is_legal_on_its_board(verdicts, path: Path) -> None:
    verdict = verdicts[path.parent.name, path.stem]

    assert verdict["passed"] and not verdict["refusals"], described(verdict["refusals"])
    chunked = set() if "\nATTENTION_SOFT_CAP = " in path.read_text() else {"chunked", "chunked_batched"}
    text, whole = path.read_text(), {"single"}
    if "\nRAGGED_TOKENS = " in text:
        whole.add("ragged")
    elif "\nWAVES = (1,)" not in text:
        whole.add("batched")
    if "\nWAVES = (1,)" in text:
        chunked.discard("chunked_batched")
    assert {one["shape"]["variant"] for one in verdict["shapes"]} == {*whole, *chunked}


@each_module
def test_a_body_moves_nothing_between_host_and_device_and_fits(verdicts, path: Path) -> None:
    for one in verdicts[path.parent.name, path.stem]["shapes"]:
        assert one["host_uploads"] == one["host_reads"] == 0
        assert 0 < one["circular_buffer_bytes"]["peak"] <= one["l1_bytes"]["peak"] <= one["l1_bytes"]["limit"]
        held = sum(one["dram_bytes"][name] for name in ("weights", "key_value", "activations_peak"))
        assert 0 < one["dram_bytes"]["activations_peak"] < held < one["dram_bytes"]["capacity"]


@each_module
def test_every_operation_is_known_by_the_line_that_calls_it(verdicts, path: Path) -> None:
    lines = path.read_text().splitlines()
    for one in verdicts[path.parent.name, path.stem]["shapes"]:
        layers = {call["layer"] for call in one["calls"]}
        assert (
            layers == {None, *range(len(layers) - 1)} and len(layers) > 2
        )  # two, or as many as show one of each kind twice
        for call in one["calls"]:
            assert call["call"].rpartition(".")[2] in lines[call["line"] - 1], call
            assert call["cores"] > 0 and call["circular_buffer_bytes"] > 0 and call["inputs"] and call["outputs"], call

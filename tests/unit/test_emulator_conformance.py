"""The emulator accepts and refuses what the library's mock device was seen to, with equal shapes, types, layouts and
places.

tests/device/test_emulator_conformance.py repeats the observation wherever the library is installed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import runtime.emulator as emulator
from runtime.tables import Board
from tests.support.emulator_cases import CASES, STRICTER, factory, outcome

BOARDS = {
    "n150": Board("n150", "wormhole_b0", (8, 8), 12, 1072693184, 32, 1393312, 1499136),
    "p150": Board("p150", "blackhole", (11, 10), 8, 4277141376, 64, 1461120, 1572864),
}
RECORD = json.loads((Path(__file__).parents[1] / "support" / "ttnn_outcomes.json").read_text())


def observed(board: str, name: str) -> str:
    return (
        RECORD[f"{board} where it differs"].get(name, RECORD["n150"][name]) if board != "n150" else RECORD["n150"][name]
    )


def emulated(board: str, name: str) -> str:
    device = emulator.open_device(board=BOARDS[board])

    def create(shape, dtype, layout, memory_config, values):
        tensor = emulator.empty(shape, dtype=dtype, layout=layout, device=device, memory_config=memory_config)
        buffer = tensor.ownership.buffer
        kind = torch.float32 if buffer.spec.is_float else torch.int64
        if values is not None and len(values) == buffer.spec.volume:
            buffer.values = torch.tensor(list(values), dtype=kind).reshape(shape)
        else:
            buffer.values = torch.zeros(shape, dtype=kind)
        return tensor

    return outcome(emulator, CASES[name], factory(emulator, create))


@pytest.mark.parametrize("board", BOARDS)
def test_outcomes_agree_with_the_library_or_are_stricter_where_stated(board: str) -> None:
    different = {}
    for name in CASES:
        if board != "n150" and name not in RECORD[f"{board} where it differs"] and "beyond L1" not in name:
            continue  # the same as on n150, which has run
        found, expected = emulated(board, name), observed(board, name)
        if found != ("refused" if name in STRICTER else expected):
            different[name] = (expected, found)

    assert not different, "\n".join(
        f"{name}: library {library}, emulator {ours}" for name, (library, ours) in different.items()
    )


def test_every_stricter_case_is_one_that_the_library_lets_pass() -> None:
    assert {name for name in STRICTER if observed("n150", name) in ("refused", "type error")} == set()


def test_the_record_covers_every_case() -> None:
    assert set(RECORD["n150"]) == set(CASES)

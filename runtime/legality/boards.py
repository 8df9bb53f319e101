"""The boards that a mock device can stand for, and the cluster descriptors that describe one chip of each to the
library."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class MockBoard:
    """What the library needs to know of a board. Masks have one bit for each disabled unit.

    `board_code` is the product code that a board's serial number carries above bit 36.
    """

    name: str
    architecture: str
    board_code: int
    worker_mask: int
    ethernet_mask: int
    pcie_mask: int


BOARDS = {
    board.name: board
    for board in (
        # One of ten rows of cores is off, and dispatch takes another: 8 x 8 workers remain.
        MockBoard("n150", "wormhole_b0", 0x18, worker_mask=1 << 6, ethernet_mask=0, pcie_mask=0),
        # Two of fourteen columns are off, and dispatch takes another: 11 x 10 workers remain. The library insists on
        # two disabled ethernet cores and on the second PCIe core being off.
        MockBoard("p150", "blackhole", 0x40, worker_mask=0b11 << 6, ethernet_mask=1 << 5 | 1 << 8, pcie_mask=1 << 1),
    )
}


def cluster_descriptor(board: MockBoard) -> str:
    """A one-chip cluster descriptor. JSON is also YAML, which is what the library reads."""
    harvesting = {
        "noc_translation": True,
        "harvest_mask": board.worker_mask,
        "eth_harvesting_mask": board.ethernet_mask,
        "pcie_harvesting_mask": board.pcie_mask,
    }
    descriptor = {
        "arch": {"0": board.architecture},
        "ethernet_connections": [],
        "chips_with_mmio": [{"0": 0}],
        "harvesting": {"0": harvesting},
        "boards": [[{"board_id": board.board_code << 36}, {"board_type": board.name}, {"chips": [0]}]],
    }
    return json.dumps(descriptor, indent=1)

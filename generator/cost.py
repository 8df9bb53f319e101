"""Modelled time: what an operation moves and multiplies against what the board can, a roofline for each operation.

Every rate is the target's, with its source in the target's file. Nothing here was measured on a board.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.targets import Rates


@dataclass(frozen=True)
class Work:
    """What one device operation does: bytes to and from DRAM; bytes and cycles of its busiest core."""

    dram_bytes: float
    core_bytes: float = 0.0
    cycles: float = 0.0


@dataclass(frozen=True)
class Time:
    """Modelled seconds of one operation and what bounds them: "dram", "network" or "compute"."""

    seconds: float
    bound: str


def time_of(work: Work, rates: Rates) -> Time:
    """The slowest of the three, since reading, multiplying and writing overlap, and the launch in a replayed trace."""
    seconds = {
        "dram": work.dram_bytes / rates.dram_bytes_per_second,
        "network": work.core_bytes / (rates.network_bytes_per_cycle * rates.clock_hertz),
        "compute": work.cycles / rates.clock_hertz,
    }
    bound = max(seconds, key=seconds.__getitem__)
    return Time(seconds[bound] + rates.traced_launch_seconds, bound)

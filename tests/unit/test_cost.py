"""Modelled time of one operation: the slowest of memory, network and compute, and one launch, by its target's rates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import catalog, targets
from generator.cost import Time, Work, time_of
from generator.targets import Rates

RATES = Rates(
    dram_bytes_per_second=100.0,
    clock_hertz=10.0,
    network_bytes_per_cycle=4,
    peak_flops={},
    eager_launch_seconds=99.0,
    traced_launch_seconds=0.5,
    upload_seconds=99.0,
    upload_bytes_per_second=99.0,
    core=None,
    compile_seconds=99.0,
)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Work(dram_bytes=400), Time(4.5, "dram")),
        (Work(dram_bytes=100, core_bytes=80), Time(2.5, "network")),  # 80 bytes at 4 a cycle and 10 cycles a second
        (Work(dram_bytes=100, core_bytes=80, cycles=30), Time(3.5, "compute")),
        (Work(dram_bytes=100, core_bytes=40, cycles=10), Time(1.5, "dram")),
        (Work(dram_bytes=0), Time(0.5, "dram")),
    ],
)
def test_an_operation_takes_as_long_as_its_slowest_part_and_a_launch(work: Work, expected: Time) -> None:
    assert time_of(work, RATES) == expected


amounts = st.floats(0, 1e12)


@given(amounts, amounts, amounts, st.sampled_from(["dram_bytes", "core_bytes", "cycles"]), st.floats(0, 1e12))
def test_more_work_is_never_quicker(dram: float, core: float, cycles: float, part: str, more: float) -> None:
    work = Work(dram, core, cycles)
    assert time_of(replace(work, **{part: getattr(work, part) + more}), RATES).seconds >= time_of(work, RATES).seconds


@pytest.mark.parametrize(
    ("target", "dram", "network", "compute", "launch"),
    [("n150", 288e9, 32e9, 1e9, 4e-6), ("p150", 512e9, 86.4e9, 1.35e9, 3e-6)],
)
def test_a_boards_own_rates_are_used(target: str, dram: float, network: float, compute: float, launch: float) -> None:
    """A second of each: bytes through DRAM, bytes into one core, cycles."""
    rates = targets.load_board(catalog.BUILT_IN, target).rates
    for work in (Work(dram), Work(0, core_bytes=network), Work(0, cycles=compute)):
        assert time_of(work, rates).seconds == pytest.approx(1 + launch, rel=1e-12)

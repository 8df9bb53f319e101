"""Targets: what ships, and what a target's file may not say."""

from __future__ import annotations

import pytest

from generator import catalog
from generator.errors import ManifestError
from generator.targets import load_board, parse_board

N150 = catalog.read(catalog.BUILT_IN / catalog.TARGETS / "n150.toml")


def refusal(old: str, new: str) -> str:
    assert old in N150
    with pytest.raises(ManifestError) as caught:
        parse_board(N150.replace(old, new, 1), "t.toml")
    return str(caught.value)


def test_the_boards_are_those_that_the_library_reports() -> None:
    """Figures of ttnn 0.81.1 on mock devices of both boards."""
    n150, p150 = load_board(catalog.BUILT_IN, "n150"), load_board(catalog.BUILT_IN, "p150")
    assert (n150.grid, n150.dram_banks, n150.dram_bank_bytes, n150.l1_bank_bytes, n150.l1_limit) == (
        (8, 8),
        12,
        1072693184,
        1393312,
        1499136,
    )
    assert (p150.grid, p150.dram_banks, p150.dram_bank_bytes, p150.l1_bank_bytes, p150.l1_limit) == (
        (11, 10),
        8,
        4277141376,
        1461120,
        1572864,
    )


def test_a_coarser_fidelity_is_never_slower() -> None:
    for name in catalog.names(catalog.BUILT_IN, catalog.TARGETS):
        peak = load_board(catalog.BUILT_IN, name).rates.peak_flops
        assert peak["lofi"] > peak["hifi2"] > peak["hifi3"] > peak["hifi4"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "product_cycles = 16",
            "product_cycles = 0",
            "t.toml:{}: rates.core.product_cycles = 0: must be at least 1; nearest legal value 1",
        ),
        (
            "pack_cycles = 64",
            "packs_cycles = 64",
            't.toml:{}: rates.core.packs_cycles = 64: unknown key; did you mean "pack_cycles"?',
        ),
        (
            "subblock_efficiency = [0.5, 0.75, 0.9, 1.0]",
            "subblock_efficiency = [0.5, 0.75, 0.9]",
            "t.toml:{}: rates.core.subblock_efficiency = [0.5, 0.75, 0.9]: must have at least 4 entries, not 3; add the missing",
        ),
        ("banks = 12", "bank = 12", 't.toml:{}: dram.bank = 12: unknown key; did you mean "banks"?'),
        ("mesh = [1, 1]", "mesh = [1, 2]", "t.toml:{}: mesh[1] = 2: must be one of 1; nearest legal value 1"),
        ("grid = [8, 8]", "grid = [8]", "t.toml:{}: grid = [8]: must have at least 2 entries, not 1; add the missing"),
        (
            "grid = [8, 8]",
            "grid = [8, 8, 8]",
            "t.toml:{}: grid = [8, 8, 8]: must have at most 2 entries, not 3; leave out the last",
        ),
        (
            "alignment = 32",
            "alignment = 48",
            "t.toml:{}: dram.alignment = 48: must be one of 32, 64; nearest legal value 32",
        ),
        (
            "maximum_wave = 32",
            "maximum_wave = 64",
            "t.toml:{}: maximum_wave = 64: must be one of 1, 2, 4, 8, 16, 32; nearest legal value 32",
        ),
        (
            '"wormhole_b0"',
            '"wormhole"',
            't.toml:{}: architecture = "wormhole": must be "wormhole_b0" or "blackhole"; '
            'did you mean "wormhole_b0"? (known: blackhole, wormhole_b0)',
        ),
        (
            "dram_bytes_per_second = 288e9",
            "dram_bytes_per_second = 288",
            "t.toml:{}: rates.dram_bytes_per_second = 288: must be at least 1000000000; nearest legal value 1000000000",
        ),
    ],
)
def test_a_target_file_is_as_strict_as_a_manifest(old: str, new: str, message: str) -> None:
    line = N150.count("\n", 0, N150.index(old)) + 1
    assert refusal(old, new).splitlines()[-1] == message.format(line)


def test_an_unknown_target_is_answered_with_the_closest_name() -> None:
    with pytest.raises(ManifestError) as caught:
        load_board(catalog.BUILT_IN, "n510")
    assert str(caught.value).endswith(
        'targets: target = "n510": no target of this name in the directory; did you mean "n150"? (known: n150, p150)'
    )

"""Targets: a board with its limits and rates, read from one file each."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from generator import catalog
from generator.errors import Diagnostic, ManifestError, shown
from generator.manifest import decode
from generator.schema import Table, between, named, one_of, refuse, validate
from generator.toml_source import scan


@dataclass(frozen=True)
class CoreRates:
    """Cycles of one core: of the product of two tiles in one pass of the matrix unit, of packing a tile of partial sums, of the
    hand-shake before each step over a matmul's inner dimension, of the softmax of a tile of scores, and of one index that a
    data-movement core looks at. `subblock_efficiency` is of the matrix unit, by the tiles of a subblock; `multicast_bytes` come into a
    core in a cycle when a matmul's operands are handed on.
    """

    product_cycles: int
    pack_cycles: int
    step_cycles: int
    softmax_cycles: int
    index_cycles: int
    multicast_bytes: int
    subblock_efficiency: tuple[float, ...]


@dataclass(frozen=True)
class Rates:
    """What the cost model of a target is made of. `peak_flops` is by math fidelity, over all worker cores."""

    dram_bytes_per_second: float
    clock_hertz: float
    network_bytes_per_cycle: int  # into or out of one core
    peak_flops: Mapping[str, float]
    eager_launch_seconds: float
    traced_launch_seconds: float
    upload_seconds: float  # of the host, for one copy to the device, however small
    upload_bytes_per_second: float
    core: CoreRates
    compile_seconds: float  # of a processor of the host, for one processor of a core that a kernel runs on


@dataclass(frozen=True)
class Board:
    """One device of a target. Bytes are for each bank (DRAM) and each core (L1)."""

    name: str
    architecture: str
    grid: tuple[int, int]  # worker cores, columns x rows
    mesh: tuple[int, int]  # devices, rows x columns
    dram_banks: int
    dram_bank_bytes: int
    dram_alignment: int
    trace_region_bytes: int  # kept free of tensors, all banks together
    l1_bank_bytes: int  # what the allocator may hand out on one core
    l1_limit: int  # highest address that program buffers may reach on one core
    maximum_wave: int
    rates: Rates

    @property
    def cores(self) -> int:
        """Worker cores, each of which is also a bank of L1."""
        return self.grid[0] * self.grid[1]


class Dram(Table):
    banks: Annotated[int, between(1, 256)]
    bank_bytes: Annotated[int, between(2**20, 2**40)]
    alignment: Annotated[int, one_of(32, 64)]
    trace_region_bytes: Annotated[int, between(0, 2**32)]


class L1(Table):
    bank_bytes: Annotated[int, between(2**16, 2**28)]
    limit: Annotated[int, between(2**16, 2**28)]


class PeakFlops(Table):
    lofi: Annotated[float, between(1e9, 1e18)]
    hifi2: Annotated[float, between(1e9, 1e18)]
    hifi3: Annotated[float, between(1e9, 1e18)]
    hifi4: Annotated[float, between(1e9, 1e18)]


Cycles = Annotated[int, between(1, 2**20)]
Efficiency = Annotated[float, between(0.0, 1.0)]


class CoreTable(Table):
    product_cycles: Cycles
    pack_cycles: Cycles
    step_cycles: Cycles
    softmax_cycles: Cycles
    index_cycles: Cycles
    multicast_bytes: Annotated[int, between(1, 4096)]
    subblock_efficiency: Annotated[tuple[Efficiency, ...], Field(strict=False, min_length=4, max_length=4)]


class RatesTable(Table):
    dram_bytes_per_second: Annotated[float, between(1e9, 1e16)]
    clock_hertz: Annotated[float, between(1e8, 1e11)]
    network_bytes_per_cycle: Annotated[int, between(1, 4096)]
    eager_launch_seconds: Annotated[float, between(0.0, 1.0)]
    traced_launch_seconds: Annotated[float, between(0.0, 1.0)]
    upload_seconds: Annotated[float, between(0.0, 1.0)]
    upload_bytes_per_second: Annotated[float, between(1e6, 1e13)]
    compile_seconds: Annotated[float, between(0.0, 1000.0)]
    peak_flops: PeakFlops
    core: CoreTable


Pair = Annotated[tuple[Annotated[int, between(1, 64)], ...], Field(strict=False, min_length=2, max_length=2)]
Single = Annotated[tuple[Annotated[int, one_of(1)], ...], Field(strict=False, min_length=2, max_length=2)]


def _name(value: str) -> str:
    """A target names a file of Python, a key of manifests and a word of emitted comments."""
    if re.fullmatch(r"[a-z][a-z0-9_]{0,31}", value) is None or keyword.iskeyword(value):
        raise refuse("must be lower-case letters, digits and underscores, first a letter", "for example n150")
    return value


class TargetFile(Table):
    name: Annotated[str, AfterValidator(_name)]
    architecture: Annotated[str, named("wormhole_b0", "blackhole")]
    grid: Pair
    mesh: Single  # a mesh of more devices needs sharded placements, which nothing here makes yet
    maximum_wave: Annotated[int, one_of(1, 2, 4, 8, 16, 32)]
    dram: Dram
    l1: L1
    rates: RatesTable


def load_board(manifests: Path, name: str) -> Board:
    """The board of a target by name. Raises ManifestError."""
    path = catalog.find(manifests, catalog.TARGETS, name)
    board = parse_board(catalog.read(path), str(path))
    if board.name != name:
        raise ManifestError(
            [Diagnostic(str(path), 1, "name", shown(board.name), "must be the file's own name", f'write "{name}"')]
        )
    return board


def parse_board(text: str, path: str) -> Board:
    """The text of a target's file -> its board. Raises ManifestError."""
    file = validate(TargetFile, decode(text, path), path, scan(text))
    return Board(
        name=file.name,
        architecture=file.architecture,
        grid=(file.grid[0], file.grid[1]),
        mesh=(file.mesh[0], file.mesh[1]),
        dram_banks=file.dram.banks,
        dram_bank_bytes=file.dram.bank_bytes,
        dram_alignment=file.dram.alignment,
        trace_region_bytes=file.dram.trace_region_bytes,
        l1_bank_bytes=file.l1.bank_bytes,
        l1_limit=file.l1.limit,
        maximum_wave=file.maximum_wave,
        rates=Rates(
            dram_bytes_per_second=file.rates.dram_bytes_per_second,
            clock_hertz=file.rates.clock_hertz,
            network_bytes_per_cycle=file.rates.network_bytes_per_cycle,
            peak_flops=dict(file.rates.peak_flops),
            eager_launch_seconds=file.rates.eager_launch_seconds,
            traced_launch_seconds=file.rates.traced_launch_seconds,
            upload_seconds=file.rates.upload_seconds,
            upload_bytes_per_second=file.rates.upload_bytes_per_second,
            compile_seconds=file.rates.compile_seconds,
            core=CoreRates(**dict(file.rates.core)),
        ),
    )

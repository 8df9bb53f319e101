"""Argument types of the operations: grids, memory, compute and program configurations.

All are frozen and hashable, because they are part of a program's identity. Field names, defaults and which fields are
keywords follow the library. Fields that no emitted module may set away from their default are not there: passing one
is a TypeError.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class MathFidelity(Enum):
    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255

    __hash__ = object.__hash__


class UnaryOpType(Enum):
    EXP = 0
    GELU = 2
    GELU_TANH = 3
    RELU = 4
    SIGMOID = 6
    TANH = 9
    SILU = 58

    __hash__ = object.__hash__


class GeluVariant(Enum):
    Accurate = 0
    Tanh = 2

    __hash__ = object.__hash__


class TensorMemoryLayout(Enum):
    INTERLEAVED = 0


class BufferType(Enum):
    DRAM = 0
    L1 = 1

    __hash__ = object.__hash__


@dataclass(frozen=True)
class MemoryConfig:
    """Where a tensor lives. Only interleaved tensors are modelled."""

    memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM

    def is_sharded(self) -> bool:
        return False

    def __hash__(self) -> int:
        return 1 + (self.buffer_type is BufferType.L1)


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)


@dataclass(frozen=True)
class CoreCoord:
    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.x}-{self.y}"


@dataclass(frozen=True, kw_only=True)
class CoreGrid:
    x: int
    y: int


def _integer(owner: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{owner}(): {name} must be a whole number from 0 on, got {value!r}")
    return value


def _coordinate(owner: str, name: str, value: Any) -> CoreCoord:
    if isinstance(value, CoreCoord):
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return CoreCoord(_integer(owner, name, value[0]), _integer(owner, name, value[1]))
    raise TypeError(f"{owner}(): {name} must be a CoreCoord or a pair of whole numbers, got {value!r}")


class _Checked:
    """Checks the fields of a configuration against their annotations once, when it is made."""

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.type == "CoreCoord":
                object.__setattr__(self, field.name, _coordinate(owner, field.name, value))
            elif field.type == "int" or (field.type == "int | None" and value is not None):
                _integer(owner, field.name, value)
            elif field.type == "bool" or (field.type == "bool | None" and value is not None):
                if not isinstance(value, bool):
                    raise TypeError(f"{owner}(): {field.name} must be a bool, got {value!r}")
            elif field.type == "MathFidelity" and not isinstance(value, MathFidelity):
                raise TypeError(f"{owner}(): {field.name} must be a MathFidelity, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class WormholeComputeKernelConfig(_Checked):
    math_fidelity: MathFidelity = MathFidelity.Invalid
    math_approx_mode: bool = True
    fp32_dest_acc_en: bool = False
    packer_l1_acc: bool = False
    dst_full_sync_en: bool = False


@dataclass(frozen=True, kw_only=True)
class MatmulMultiCoreReuseMultiCastProgramConfig(_Checked):
    """Rows of cores share rows of the output, columns of cores share its columns. Blocks are counted in tiles."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    out_block_h: int | None = None
    out_block_w: int | None = None
    per_core_M: int
    per_core_N: int
    transpose_mcast: bool
    fused_activation: Any = None
    fuse_batch: bool = True


@dataclass(frozen=True, kw_only=True)
class MatmulMultiCoreReuseMultiCast1DProgramConfig(_Checked):
    """Every core holds all rows (mcast_in0) or all columns of the output, and a slice of the other."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    out_block_h: int | None = None
    out_block_w: int | None = None
    per_core_M: int
    per_core_N: int
    fuse_batch: bool
    fused_activation: Any = None
    mcast_in0: bool


@dataclass(frozen=True, kw_only=True)
class MatmulMultiCoreReuseProgramConfig(_Checked):
    """Every core holds whole matrices of a batch, or rows of one. Blocks are counted in tiles."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    per_core_M: int
    per_core_N: int


@dataclass(frozen=True, kw_only=True)
class MinimalMatmulConfig(_Checked):
    """Blocks of the minimal matmul in tiles: rows and columns of the output, and the inner dimension, at a time."""

    M_block_size: int = 1
    K_block_size: int = 1
    N_block_size: int = 1
    subblock_h: int = 1
    subblock_w: int = 1
    compute_with_storage_grid_size: CoreCoord = CoreCoord(1, 1)


@dataclass(frozen=True, kw_only=True)
class SDPAProgramConfig(_Checked):
    """Tokens of queries and of keys that attention takes at a time."""

    compute_with_storage_grid_size: CoreCoord
    q_chunk_size: int
    k_chunk_size: int
    exp_approx_mode: bool | None = None
    max_cores_per_head_batch: int = 16


@dataclass(frozen=True, kw_only=True)
class ChunkGdnPhasedProgramConfig(_Checked):
    """The delta rule in two programs: every chunk is prepared by itself, then states follow one another."""


@dataclass(frozen=True, kw_only=True)
class ChunkGdnFusedProgramConfig(_Checked):
    """The delta rule in one program over the whole grid, whose geometry the library chooses: options are not modelled."""


@dataclass(frozen=True, kw_only=True)
class ChunkGdnMonoProgramConfig(_Checked):
    """The delta rule in one program with one core for each head, which is refused: it is not modelled."""


@dataclass(frozen=True, kw_only=True)
class QkvCausalConv1dSiluProgramConfig(_Checked):
    """Channels that a core of the causal convolution takes at a time."""

    channel_chunk_size: int

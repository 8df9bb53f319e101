"""Storage types hold what the library packs, bit for bit, on more than a million values of each."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from runtime.emulator.dtypes import BLOCK, BLOCK_FLOATS, DataType, round_to

VALUES = 1 << 18  # of each kind
WIDTH = 512
BLOCKS = VALUES // BLOCK
QUIET_NAN, EXPONENT_BITS, MANTISSA_BITS = 0x7FC00000, 0x7F800000, 0x007FFFFF


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(seed: int) -> torch.Tensor:
    return torch.randn(BLOCKS, BLOCK, generator=_generator(seed))


def _powers(low: int, high: int, seed: int, each: int = 1) -> torch.Tensor:
    """Powers of two between these exponents, one for each block or (`each` = 16) for each value."""
    exponents = torch.randint(low, high, (BLOCKS, each), generator=_generator(seed))
    return 2.0 ** exponents.double()


def of_one_magnitude() -> torch.Tensor:
    """A power of two for each block from the smallest normals to the largest."""
    return (_normal(1).double() * _powers(-124, 124, 2)).float()


def of_many_magnitudes() -> torch.Tensor:
    return (_normal(3).double() * _powers(-40, 40, 4, BLOCK)).float()


def ties(bits: int) -> torch.Tensor:
    """Odd halves of the unit of a block whose largest value has the leading bit: on them, and a 24th or 25th bit off."""
    generator = _generator(5 + bits)
    units = torch.randint(0, 2**bits, (BLOCKS, BLOCK), generator=generator).double() + 0.5
    units[:, 0] = 2.0**bits - 1
    nudge = torch.randint(-2, 3, (BLOCKS, BLOCK), generator=generator) * 2.0 ** (bits - 25)
    sign = torch.randint(0, 2, (BLOCKS, BLOCK), generator=generator) * 2.0 - 1
    return ((units + nudge) * sign * _powers(-100, 100, 6)).float()


def beside_denormals() -> torch.Tensor:
    """Exponents around the smallest normal one: some blocks hold denormals only."""
    return (_normal(7).double() * _powers(-140, -122, 8) * _powers(-4, 1, 9, BLOCK)).float()


def zeros() -> torch.Tensor:
    """Both zeros, alone or beside one value, in every block."""
    values = torch.zeros(BLOCKS, BLOCK) * (torch.randint(0, 2, (BLOCKS, BLOCK), generator=_generator(10)) * 2 - 1)
    values[::2, 5] = _normal(11)[::2, 5]
    return values


def largest() -> torch.Tensor:
    """Mantissas of all kinds under the two largest exponents: rounding would go beyond the largest float32."""
    bits = torch.randint(253 << 23, 255 << 23, (BLOCKS, BLOCK), generator=_generator(12), dtype=torch.int64)
    return _signed(bits, 13)


def not_finite() -> torch.Tensor:
    """One infinity, NaN or both among ordinary values."""
    values = _normal(14)
    rows = torch.arange(BLOCKS)
    values[rows[::3], (rows * 7 % BLOCK)[::3]] = torch.inf
    values[rows[1::3], (rows * 5 % BLOCK)[1::3]] = -torch.inf
    values[rows[2::3], (rows * 3 % BLOCK)[2::3]] = torch.nan
    values[rows[::5], (rows * 11 % BLOCK)[::5]] = torch.nan
    return values


def any_bits() -> torch.Tensor:
    """Any float32: every exponent, so that one value in 128 is no finite number and most are far apart."""
    return _signed(torch.randint(0, 1 << 31, (BLOCKS, BLOCK), generator=_generator(15), dtype=torch.int64), 16)


def _signed(bits: torch.Tensor, seed: int) -> torch.Tensor:
    signs = torch.randint(0, 2, bits.shape, generator=_generator(seed), dtype=torch.int64) << 31
    return ((bits | signs) - ((bits | signs) >> 31 << 32)).to(torch.int32).view(torch.float32)


def finite_bits() -> torch.Tensor:
    values = any_bits()
    return torch.where(values.isfinite(), values, 1.0)


def inputs(dtype: DataType) -> dict[str, torch.Tensor]:
    kinds = (of_one_magnitude, of_many_magnitudes, beside_denormals, zeros, largest, not_finite, any_bits, finite_bits)
    found = {kind.__name__: kind() for kind in kinds}
    if dtype in BLOCK_FLOATS:
        found["ties"] = ties(BLOCK_FLOATS[dtype])
    return found


def comparable_bits(values: torch.Tensor) -> torch.Tensor:
    """Bits as integers, with one NaN for all: which of them a conversion makes is no value."""
    bits = values.float().contiguous().view(torch.int32)
    return torch.where((bits & EXPONENT_BITS == EXPONENT_BITS) & (bits & MANTISSA_BITS != 0), QUIET_NAN, bits)


@pytest.mark.parametrize("dtype", (DataType.BFLOAT8_B, DataType.BFLOAT4_B, DataType.BFLOAT16))
def test_storage_is_the_librarys_bit_for_bit(
    host_library: ModuleType, dtype: DataType, report: Callable[[str], None]
) -> None:
    compared = 0
    for kind, values in inputs(dtype).items():
        values = values.reshape(-1, WIDTH)
        packed = host_library.from_torch(
            values, dtype=getattr(host_library, dtype.name.lower()), layout=host_library.TILE_LAYOUT
        )
        theirs = comparable_bits(host_library.to_torch(packed))
        ours = comparable_bits(round_to(values, dtype))
        different = (theirs != ours).nonzero()
        count = len(different)
        compared += values.numel()

        assert count == 0, (
            f"{kind}: {count} of {values.numel()} values differ; the first, {values[tuple(different[0])]!r}, is "
            f"{theirs.view(torch.float32)[tuple(different[0])]!r} in the library and "
            f"{ours.view(torch.float32)[tuple(different[0])]!r} here; its block is "
            f"{values.reshape(-1, BLOCK)[different[0][0] * WIDTH // BLOCK + different[0][1] // BLOCK].tolist()}"
        )
    assert compared > 1_000_000
    report(f"storage of {dtype.name.lower()}: {compared} values packed as the library packs them, bit for bit")

"""Storage rounding is the library's, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch

from runtime.emulator.dtypes import DataType, round_to

INPUTS = (
    [
        (-1) ** i * (1 + (i * 0x9E3779B1 % 2**23) / 2**23) * 2.0 ** (i * 7 % 23 - 11) for i in range(16)
    ],  # mixed exponents
    [(2 * i + 1) / 2 for i in range(8)]
    + [64 + (2 * i + 1) / 2 for i in range(7)]
    + [127.75],  # ties, and one that saturates
    [64.0]
    + [(1 + 2.0**-k) * 0.5 for k in range(10, 24)]
    + [0.5],  # just above a tie, some beyond the 24 bits that survive
    [2.0**-126 * (1 + i / 8) for i in range(8)]
    + [
        2.0**-127,
        2.0**-149,
        0.0,
        -0.0,
        -(2.0**-126),
        2.0**-120,
        -(2.0**-121) * 1.99,
        2.0**-119,
    ],  # denormals beside normals
    [2.0 ** (i * 8) for i in range(16)],  # far apart
    [0.0] * 16,
    [2.0**-126 * (1 + i / 8) for i in range(4)] + [2.0**-126 * (1 - i / 16) for i in range(1, 12)] + [-(2.0**-149)],
)
# Packed and unpacked by ttnn 0.81.1 on the host: the exponent of one unit, and the units of each value.
PACKED = {
    DataType.BFLOAT8_B: (
        (5, [0, 0, 0, -42, 0, 0, 13, 0, 0, -4, 0, 0, 1, -105, 0, 0]),
        (0, [0, 2, 2, 4, 4, 6, 6, 8, 64, 66, 66, 68, 68, 70, 70, 127]),
        (0, [64, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        (-125, [0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 32, -32, 64]),
        (114, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64]),
        (-6, [0] * 16),
        (-132, [64, 72, 80, 88] + [0] * 12),  # denormals count as zero beside the smallest normals too
    ),
    DataType.BFLOAT4_B: (
        (9, [0, 0, 0, -3, 0, 0, 1, 0, 0, 0, 0, 0, 0, -7, 0, 0]),
        (4, [0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 7]),
        (4, [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (-121, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, -2, 4]),
        (118, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]),
        (-2, [0] * 16),
        (-128, [4, 4, 5, 6] + [0] * 12),
    ),
}


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("block", range(len(INPUTS)))
def test_block_floats_are_packed_as_the_library_packs_them(dtype: DataType, block: int) -> None:
    exponent, units = PACKED[dtype][block]

    assert round_to(torch.tensor([INPUTS[block]]), dtype).tolist() == [[unit * 2.0**exponent for unit in units]]


@pytest.mark.parametrize("dtype", PACKED)
def test_blocks_of_one_tensor_do_not_touch_each_other(dtype: DataType) -> None:
    together = round_to(torch.tensor([sum(INPUTS, [])]), dtype)

    assert together.tolist() == [sum((round_to(torch.tensor([row]), dtype)[0].tolist() for row in INPUTS), [])]


@pytest.mark.parametrize("dtype", (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B))
def test_rounding_twice_changes_nothing(dtype: DataType) -> None:
    values = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)) * torch.logspace(-30, 30, 96)
    once = round_to(values, dtype)

    assert torch.equal(round_to(once, dtype), once)


def test_rows_that_are_no_whole_blocks_are_padded_with_zeros() -> None:
    values = torch.randn(3, 41, generator=torch.Generator().manual_seed(2))
    padded = torch.nn.functional.pad(values, (0, 7))

    assert torch.equal(round_to(values, DataType.BFLOAT8_B), round_to(padded, DataType.BFLOAT8_B)[:, :41])


def test_bfloat16_rounds_half_to_even() -> None:
    ulp = 2.0**-7
    values = torch.tensor([1 + ulp / 2, 1 + 1.5 * ulp, 1 + ulp * 0.51, -(1 + ulp / 2)])

    assert round_to(values, DataType.BFLOAT16).tolist() == [1.0, 1 + 2 * ulp, 1 + ulp, -1.0]


def test_infinity_and_nan_spoil_their_own_block_only() -> None:
    values = torch.ones(1, 48)
    values[0, 3], values[0, 20] = math.inf, math.nan
    rounded = round_to(values, DataType.BFLOAT8_B)[0]

    assert rounded[3] == math.inf and math.isnan(rounded[20])
    assert rounded[0] == 0 and rounded[16] == 0 and rounded[32:].tolist() == [1.0] * 16


def test_rounding_leaves_its_input_alone() -> None:
    values = torch.randn(32, 32, generator=torch.Generator().manual_seed(3))
    before = values.clone()
    for dtype in DataType:
        round_to(values, dtype)

    assert torch.equal(values, before)

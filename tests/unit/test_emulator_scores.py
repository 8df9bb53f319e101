"""Matmuls of each batch item with a matrix of its own, and sums and products that broadcast their second operand."""

from __future__ import annotations

import pytest
import torch

import runtime.emulator as ttnn
from tests.support.emulated import drawn, open_checked, tiles


@pytest.fixture
def device() -> ttnn.Device:
    return open_checked("float32")


def program(**changes) -> dict:
    cut = {
        "compute_with_storage_grid_size": (8, 8),
        "in0_block_w": 2,
        "out_subblock_h": 1,
        "out_subblock_w": 2,
        "per_core_M": 2,
        "per_core_N": 4,
        "transpose_mcast": False,
        "fuse_batch": False,
    }
    return {
        "program_config": ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(**{**cut, **changes}),
        "compute_kernel_config": ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=True),
    }


@pytest.mark.parametrize("transpose", [True, False])
def test_each_item_is_multiplied_by_its_own_matrix(device, transpose: bool) -> None:
    left, right = drawn(2, 3, 128, 64, seed=1), drawn(2, 3, 128, 64, seed=2)
    second = right if transpose else right.transpose(-1, -2).contiguous()
    found = ttnn.linear(tiles(device, left), tiles(device, second), transpose_b=transpose, **program())

    assert torch.allclose(ttnn.to_torch(found), left @ right.transpose(-1, -2), atol=1e-4)


def test_items_of_their_own_are_refused_where_the_program_fuses_them(device) -> None:
    left, right = drawn(2, 3, 128, 64, seed=1), drawn(2, 3, 128, 64, seed=2)
    with pytest.raises(ttnn.EmulatorError, match="fuse_batch=False"):
        ttnn.linear(tiles(device, left), tiles(device, right), transpose_b=True, **program(fuse_batch=True))


def test_other_items_than_the_firsts_are_refused(device) -> None:
    left, right = drawn(2, 3, 128, 64, seed=1), drawn(3, 2, 128, 64, seed=2)
    with pytest.raises(ttnn.EmulatorError, match="one for each of the first's"):
        ttnn.linear(tiles(device, left), tiles(device, right), transpose_b=True, **program())


@pytest.mark.parametrize("shape", [(1, 1, 64, 96), (2, 1, 64, 96), (1, 4, 64, 96), (2, 4, 64, 1), (1, 1, 1, 96)])
def test_the_second_operand_stands_for_all_along_its_dimensions_of_one(device, shape: tuple[int, ...]) -> None:
    whole, part = drawn(2, 4, 64, 96, seed=1), drawn(*shape, seed=2)
    summed = ttnn.add(tiles(device, whole), tiles(device, part))
    product = ttnn.mul(tiles(device, whole), tiles(device, part), input_tensor_a_activations=[ttnn.UnaryOpType.TANH])

    assert torch.equal(ttnn.to_torch(summed), whole + part)
    assert torch.equal(ttnn.to_torch(product), torch.tanh(whole) * part)


def test_sizes_that_neither_are_equal_nor_one_are_refused(device) -> None:
    with pytest.raises(
        ttnn.EmulatorError, match="both inputs must have the same sizes, or 1 where the other's is repeated"
    ):
        ttnn.add(tiles(device, drawn(1, 2, 64, 96, seed=1)), tiles(device, drawn(1, 4, 64, 96, seed=2)))

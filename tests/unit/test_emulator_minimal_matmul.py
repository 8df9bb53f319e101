"""The minimal matmul computes what its name and its fusions say, rounded once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime import emulator as ttnn
from runtime.tables import REPLICATE, Weight
from runtime.transforms import paired_projection
from tests.unit.test_emulator_conformance import BOARDS


def open_board(precision: str = "declared") -> Any:
    return ttnn.open_device(board=BOARDS["n150"], precision=precision)


def on_device(device: Any, values: torch.Tensor, dtype: Any = ttnn.bfloat16) -> Any:
    return ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)


def options(**more: Any) -> dict[str, Any]:
    compute = ttnn.WormholeComputeKernelConfig(
        math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
    )
    blocks = ttnn.MinimalMatmulConfig(
        M_block_size=2,
        K_block_size=2,
        N_block_size=4,
        subblock_h=1,
        subblock_w=2,
        compute_with_storage_grid_size=(8, 8),
    )
    return {"config": blocks, "compute_kernel_config": compute, "memory_config": ttnn.DRAM_MEMORY_CONFIG, **more}


def random(*shape: int, seed: int) -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5
    return values.bfloat16().float()


def gate_up(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Published gate and up [intermediate, hidden], and the form in which a device holds both."""
    gate, up = random(96, 64, seed=seed), random(96, 64, seed=seed + 1)
    weight = Weight("gate_up", ("g", "u"), "paired_projection", (64, 192), ttnn.bfloat16, ttnn.TILE_LAYOUT, REPLICATE)
    return gate, up, paired_projection([gate, up], weight, None)


def test_paired_columns_are_tiles_of_both_in_turn() -> None:
    gate, up, paired = gate_up()
    assert paired.shape == (64, 192)
    for tile in range(3):
        rows = slice(32 * tile, 32 * tile + 32)
        assert torch.equal(paired[:, 64 * tile : 64 * tile + 32], gate[rows].t())
        assert torch.equal(paired[:, 64 * tile + 32 : 64 * tile + 64], up[rows].t())


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 129])
def test_pairs_are_gated(rows: int) -> None:
    device, (gate, up, paired) = open_board("float32"), gate_up()
    x = random(1, 1, rows, 64, seed=7)
    found = ttnn.experimental.minimal_matmul(
        on_device(device, x), on_device(device, paired), **options(fuse_swiglu=True)
    )
    wanted = torch.nn.functional.silu(x @ gate.t()) * (x @ up.t())
    torch.testing.assert_close(ttnn.to_torch(found).float(), wanted, rtol=1e-5, atol=1e-6)


def test_a_bias_is_added_before_the_gate() -> None:
    device, (gate, up, paired) = open_board("float32"), gate_up()
    x, bias = random(1, 1, 32, 64, seed=7), random(1, 1, 1, 192, seed=9)
    found = ttnn.experimental.minimal_matmul(
        on_device(device, x),
        on_device(device, paired),
        **options(fuse_swiglu=True, bias_tensor=on_device(device, bias)),
    )
    first, second = bias.view(3, 2, 32)[:, 0].flatten(), bias.view(3, 2, 32)[:, 1].flatten()
    wanted = torch.nn.functional.silu(x @ gate.t() + first) * (x @ up.t() + second)
    torch.testing.assert_close(ttnn.to_torch(found).float(), wanted, rtol=1e-5, atol=1e-6)


def test_the_residual_and_the_product_are_rounded_once() -> None:
    device = open_board()
    x, weight, base = random(1, 1, 33, 64, seed=1), random(64, 96, seed=2), random(1, 1, 33, 96, seed=3)
    factors = torch.linspace(0.5, 2, 96).bfloat16().float()
    found = ttnn.experimental.dit_minimal_matmul_addcmul_fused(
        *(on_device(device, value) for value in (x, weight)),
        0.5,
        on_device(device, base),
        on_device(device, factors.view(1, 1, 1, 96)),
        **options(),
    )
    wanted = (base + 0.5 * (x @ weight) * factors).bfloat16().float()
    ours = ttnn.to_torch(found).float()
    assert (ours != wanted).float().mean() < 0.01  # sums in another order may fall on the other side of a tie
    torch.testing.assert_close(ours, wanted, rtol=2**-7, atol=1e-6)

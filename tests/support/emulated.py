"""A small emulated board and short ways to make its tensors, for the emulator's own tests."""

from __future__ import annotations

from typing import Any

import torch

import runtime.emulator as ttnn
from runtime.tables import Board

N150 = Board("n150", "wormhole_b0", (8, 8), 12, 1072693184, 32, 1393312, 1499136)
COMPUTE = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi2, fp32_dest_acc_en=True, packer_l1_acc=True
)


def open_checked(precision: str = "declared", board: Board = N150, trace_region_size: int = 0) -> ttnn.Device:
    """A device that verifies after every operation that its values are representable."""
    device = ttnn.open_device(board=board, precision=precision, trace_region_size=trace_region_size)
    device.check_representable = True
    return device


def tiles(device: ttnn.Device, values: torch.Tensor, dtype: Any = ttnn.bfloat16) -> ttnn.Tensor:
    return ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)


def rows(device: ttnn.Device, values: Any, dtype: Any = ttnn.bfloat16) -> ttnn.Tensor:
    return ttnn.from_torch(torch.as_tensor(values), dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attention_program(query_chunk: int = 32, key_chunk: int = 32) -> ttnn.SDPAProgramConfig:
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(8, 8), q_chunk_size=query_chunk, k_chunk_size=key_chunk, exp_approx_mode=False
    )


def bits(tensor: ttnn.Tensor) -> torch.Tensor:
    """Values as integers, so that equal means equal in every bit, NaN included."""
    return ttnn.to_torch(tensor).float().view(torch.int32)

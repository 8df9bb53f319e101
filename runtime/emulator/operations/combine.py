"""The weighted sum of what a token's experts return.

The rules and the order of the sums are those of `experimental.deepseek_prefill.post_combine_reduce` in the library.
"""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import L1_MEMORY_CONFIG, MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor
from .experts import rounding_of

COMBINE = "post_combine_reduce"
WIDEST_COMBINED = 8192  # eight destination registers of 1024 values


def _plan_combine(device: Device, rows: TensorSpec, shares: TensorSpec, expert_dim, memory_config) -> Plan:
    for name, spec in (("combine_output", rows), ("weights", shares)):
        require(
            spec.dtype is DataType.BFLOAT16 and spec.layout is Layout.ROW_MAJOR,
            COMBINE,
            f"{name} must be BFLOAT16 ROW_MAJOR, got {spec!r}",
        )
    rank = len(rows.shape)
    require(
        expert_dim == rank - 2,
        COMBINE,
        f"only sums over dimension {rank - 2} of rank {rank} are modelled, got {expert_dim}",
    )
    require(
        shares.shape == (*rows.shape[:-1], 1),
        COMBINE,
        f"weights must be {[*rows.shape[:-1], 1]} beside {list(rows.shape)}, got {list(shares.shape)}",
    )
    require(rows.shape[-1] % TILE == 0, COMBINE, f"columns must be whole tiles, got {rows.shape[-1]}")
    require(
        rows.shape[-1] <= WIDEST_COMBINED,
        COMBINE,
        f"{rows.shape[-1]} columns must fit eight destination registers of 1024",
    )
    tokens = rows.volume // (rows.shape[-1] * rows.shape[-2])
    require(tokens % TILE == 0, COMBINE, f"tokens must be a multiple of {TILE}, got {tokens}")
    shape = (*rows.shape[:-2], rows.shape[-1])
    return Plan((tensor_spec(shape, DataType.BFLOAT16, Layout.TILE, memory_config or L1_MEMORY_CONFIG),))


@checked
def post_combine_reduce(
    combine_output: Tensor, weights: Tensor, *, expert_dim: int = 3, output_memory_config: MemoryConfig | None = None
) -> Tensor:
    """Rows [.., tokens, chosen, columns] times weights [.., tokens, chosen, 1], summed over the chosen -> [.., tokens, columns].

    Each product and each sum is stored as BFLOAT16, in the order of the chosen. The kernel multiplies every row, so NaN passes.
    """
    rounding = rounding_of(combine_output)

    def compute(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        products = rounding(rows * weights, DataType.BFLOAT16).unbind(-2)
        total = products[0]
        for product in products[1:]:
            total = rounding(total + product, DataType.BFLOAT16)
        return total

    attributes = (expert_dim, output_memory_config)
    return launch(COMBINE, (combine_output, weights), attributes, _plan_combine, compute)[0]

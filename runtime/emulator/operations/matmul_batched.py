"""Products of many small matrices, each of its own pair."""

from __future__ import annotations

from typing import Any

import torch

from ..arguments import checked
from ..configs import (
    DRAM_MEMORY_CONFIG,
    MatmulMultiCoreReuseProgramConfig,
    MemoryConfig,
    WormholeComputeKernelConfig,
)
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor
from .matmul_programs import check_reuse_program

NAME = "matmul"


def _plan(device: Device, a: TensorSpec, b: TensorSpec, *attributes: Any) -> Plan:
    transpose_a, transpose_b, memory_config, dtype, program, compute = attributes
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, NAME, "both inputs must be in tiles")
    require(a.is_float and b.is_float, NAME, f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    require(
        len(a.shape) >= 3 and a.shape[:-2] == b.shape[:-2],
        NAME,
        f"both inputs must hold the same number of matrices in the same dimensions, three or more with those of a matrix "
        f"(ttnn.linear multiplies with one matrix), got {a!r} and {b!r}",
    )
    rows, inner = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
    height, columns = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
    require(
        inner == height, NAME, f"the width of the first input must be the height of the second: {inner} and {height}"
    )
    output = tensor_spec(
        (*a.shape[:-2], rows, columns), dtype or a.dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG
    )
    require(output.is_float, NAME, f"the output must be floats, got {output.dtype.name}")
    if program is None:
        return Plan((output,))
    require(compute is not None, NAME, "a program needs its compute_kernel_config stated with it")
    return Plan(
        (output,), l1_bytes=check_reuse_program(device, NAME, a, b, output, program, compute, inner, transpose_a)
    )


@checked
def matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    program_config: MatmulMultiCoreReuseProgramConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """[.., rows, inner] x [.., inner, columns] -> [.., rows, columns], accumulated in float32; either may be given transposed.

    How many matrices there are changes no bit of a product.
    """

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        left = a.flatten(0, -3)
        right = b.flatten(0, -3)
        product = torch.bmm(left.mT if transpose_a else left, right.mT if transpose_b else right)
        return product.reshape(*a.shape[:-2], *product.shape[-2:])

    attributes = (transpose_a, transpose_b, memory_config, dtype, program_config, compute_kernel_config)
    return launch(NAME, (input_tensor_a, input_tensor_b), attributes, _plan, compute)[0]

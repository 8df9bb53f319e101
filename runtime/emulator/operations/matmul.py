"""Matrix multiplication with its program configurations."""

from __future__ import annotations

from typing import Any

import torch

from ..arguments import checked
from ..configs import DRAM_MEMORY_CONFIG, MemoryConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor
from .unary import ACTIVATIONS
from .matmul_programs import MULTICAST_1D, MULTICAST_2D, check_program

NAME = "linear"


def _plan(device: Device, a: TensorSpec, b: TensorSpec, *rest: Any) -> Plan:
    bias, attributes = (rest[0], rest[1:]) if isinstance(rest[0], TensorSpec) else (None, rest)
    transpose_b, memory_config, dtype, program_config, activation, compute = attributes
    require(
        len(b.shape) >= 2 and len(a.shape) >= 2, NAME, f"both inputs need two dimensions or more, got {a!r} and {b!r}"
    )
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, NAME, "both inputs must be in tiles")
    require(a.is_float and b.is_float, NAME, f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    rows, inner = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
    require(
        a.shape[-1] == rows,
        NAME,
        f"the width of the first input must be the height of the second: {a.shape[-1]} and {rows}",
    )
    each = any(size != 1 for size in b.shape[:-2])
    require(
        not each or a.shape[:-2] == b.shape[:-2],
        NAME,
        f"the second input must hold one matrix, or one for each of the first's in the same dimensions, got {a!r} and {b!r}",
    )
    if bias is not None:
        # The library refuses this only where something lies in L1 and no program is stated, with a message about shapes.
        require(not transpose_b, NAME, "a bias beside a transposed second input is not modelled")
        require(bias.layout is Layout.TILE and bias.is_float, NAME, f"the bias must be floats in tiles, got {bias!r}")
        require(
            bias.shape[-1] == inner and bias.volume == inner, NAME, f"the bias must be one row of {inner}, got {bias!r}"
        )
    ones = (1,) * (max(len(spec.shape) for spec in (a, b, bias) if spec is not None) - len(a.shape))
    shape = (*ones, *a.shape[:-1], inner)
    output = tensor_spec(shape, dtype or a.dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG)
    require(output.is_float, NAME, f"the output must be floats, got {output.dtype.name}")
    if program_config is None:
        return Plan((output,))
    require(
        not (each and program_config.fuse_batch),
        NAME,
        f"matrices of their own for each of the first's need fuse_batch=False, got {a!r} and {b!r}",
    )
    require(compute is not None, NAME, "a program needs its compute_kernel_config stated with it")
    return Plan((output,), l1_bytes=check_program(device, NAME, a, b, bias, output, program_config, compute))


@checked
def linear(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_b: bool = False,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    program_config: MULTICAST_1D | MULTICAST_2D | None = None,
    activation: str | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """[.., rows, inner] x [inner, columns] (+ bias [1, columns]) -> [.., rows, columns], accumulated in float32.

    The result has as many dimensions as the input that has most. The second input may hold a matrix for each of the first's,
    [.., inner, columns], where the program does not fuse them.
    """
    require(activation is None or activation in ACTIVATIONS, NAME, f"activation {activation!r} is not modelled")
    if program_config is not None and type(program_config) not in (MULTICAST_1D, MULTICAST_2D):
        raise TypeError(f"linear(): program_config must be a matmul program, got {type(program_config).__name__}")
    if program_config is not None and program_config.fused_activation is not None:
        raise EmulatorError(NAME, "fused_activation is not modelled: state activation= instead")

    def compute(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        right = b.transpose(-1, -2) if transpose_b else b
        if right.shape[:-2].numel() > 1:
            result = torch.matmul(a, right)
            result = result if bias is None else result + bias.reshape(1, -1)
        else:
            left, right = a.reshape(-1, a.shape[-1]), right.reshape(right.shape[-2:])
            result = torch.mm(left, right) if bias is None else torch.addmm(bias.reshape(1, -1), left, right)
        if activation is not None:
            result = ACTIVATIONS[activation](result)
        return result.view(*(1,) * (rank - a.dim()), *a.shape[:-1], right.shape[-1])

    inputs = (input_tensor_a, input_tensor_b) if bias is None else (input_tensor_a, input_tensor_b, bias)
    rank = max(len(tensor.spec.shape) for tensor in inputs)
    attributes = (transpose_b, memory_config, dtype, program_config, activation, compute_kernel_config)
    return launch(NAME, inputs, attributes, _plan, compute)[0]

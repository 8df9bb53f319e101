"""The block-by-block matmul with what it can fuse: a bias, the gated product of neighbouring column tiles, a residual.

Its rules and the sizes of its buffers were read off the library's refusals on mock devices; the sum of bytes is the one in
its message, byte for byte. What the kernels do beyond the rules (compute_metal2.cpp in the library's sources) is said
where it matters.
"""

from __future__ import annotations

from typing import Any

import torch

from ..arguments import checked
from ..configs import MemoryConfig, MinimalMatmulConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import TILE_BYTES, DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor
from .matmul_programs import SUBBLOCK_TILES

PLAIN = "minimal_matmul"
RESIDUAL = "dit_minimal_matmul_addcmul_fused"
LEAST_GRID = 2  # cores across and down


def _check_blocks(device: Device, name: str, config: MinimalMatmulConfig, compute: WormholeComputeKernelConfig) -> None:
    sizes = {
        "M_block_size": config.M_block_size,
        "K_block_size": config.K_block_size,
        "N_block_size": config.N_block_size,
        "subblock_h": config.subblock_h,
        "subblock_w": config.subblock_w,
    }
    for field, size in sizes.items():
        require(size > 0, name, f"{field} must be positive, got {size}")
    for whole, part in (("M_block_size", "subblock_h"), ("N_block_size", "subblock_w")):
        require(
            sizes[whole] % sizes[part] == 0, name, f"{part} {sizes[part]} must divide {whole} {sizes[whole]} (tiles)"
        )
    limit = SUBBLOCK_TILES // 2 if compute.fp32_dest_acc_en else SUBBLOCK_TILES
    require(
        config.subblock_h * config.subblock_w <= limit,
        name,
        f"a subblock of {config.subblock_h} x {config.subblock_w} must have at most {limit} tiles "
        f"with fp32_dest_acc_en={compute.fp32_dest_acc_en}",
    )
    grid, board = config.compute_with_storage_grid_size, device.board
    require(
        LEAST_GRID <= grid.x <= board.grid[0] and LEAST_GRID <= grid.y <= board.grid[1],
        name,
        f"a grid of {grid.x} x {grid.y} cores must be at least {LEAST_GRID} x {LEAST_GRID} and inside the "
        f"{board.grid[0]} x {board.grid[1]} of {board.name}",
    )


def _check_inputs(name: str, a: TensorSpec, b: TensorSpec) -> None:
    require(
        len(b.shape) >= 2 and len(a.shape) >= 2, name, f"both inputs need two dimensions or more, got {a!r} and {b!r}"
    )
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, name, "both inputs must be in tiles")
    require(a.is_float and b.is_float, name, f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    require(
        a.shape[-1] == b.shape[-2],
        name,
        f"the width of the first input must be the height of the second: {a.shape[-1]} and {b.shape[-2]}",
    )
    require(all(size == 1 for size in b.shape[:-2]), name, f"the second input must hold one matrix, got {b!r}")


def _plan(device: Device, a: TensorSpec, b: TensorSpec, *rest: Any) -> Plan:
    bias, attributes = (rest[0], rest[1:]) if isinstance(rest[0], TensorSpec) else (None, rest)
    dtype, memory_config, config, compute, pairs = attributes
    _check_inputs(PLAIN, a, b)
    columns = b.shape[-1]
    if bias is not None:
        require(bias.layout is Layout.TILE and bias.is_float, PLAIN, f"the bias must be floats in tiles, got {bias!r}")
        require(
            bias.shape[-1] == columns and bias.volume == columns,
            PLAIN,
            f"the bias must be one row of {columns}, got {bias!r}",
        )
    _check_blocks(device, PLAIN, config, compute)
    if pairs:
        require(
            columns % (2 * TILE) == 0, PLAIN, f"fuse_swiglu needs whole pairs of column tiles; the width is {columns}"
        )
        require(
            config.N_block_size % 2 == 0, PLAIN, f"fuse_swiglu needs an even N_block_size, got {config.N_block_size}"
        )
        # The library accepts an odd width, but its kernel walks a subblock by twos and would read past the end.
        require(config.subblock_w % 2 == 0, PLAIN, f"fuse_swiglu needs an even subblock_w, got {config.subblock_w}")
    width = columns // 2 if pairs else columns
    output = tensor_spec((*a.shape[:-1], width), dtype or a.dtype, Layout.TILE, memory_config or a.memory_config)
    require(output.is_float, PLAIN, f"the output must be floats, got {output.dtype.name}")
    size = _buffer_bytes(config, compute, a.dtype, b.dtype, output.dtype, pairs)
    if bias is not None:
        size += config.N_block_size * TILE_BYTES[bias.dtype]
    return Plan((output,), l1_bytes=size)


def _buffer_bytes(
    config: MinimalMatmulConfig,
    compute: WormholeComputeKernelConfig,
    a: DataType,
    b: DataType,
    output: DataType,
    pairs: bool,
) -> int:
    """Both inputs and the output in double blocks (the output of pairs is half as wide), and the partial sums."""
    rows, inner, columns = config.M_block_size, config.K_block_size, config.N_block_size
    partial = DataType.FLOAT32 if compute.fp32_dest_acc_en else DataType.BFLOAT16
    size = 2 * inner * (rows * TILE_BYTES[a] + columns * TILE_BYTES[b])
    return size + rows * columns * (TILE_BYTES[partial] + (1 if pairs else 2) * TILE_BYTES[output])


def _gated_pairs(values: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up where column tiles alternate between gate and up."""
    gate, up = values.view(values.shape[0], -1, 2, TILE).unbind(2)
    return torch.nn.functional.silu(gate).mul_(up).reshape(values.shape[0], -1)


@checked
def minimal_matmul(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    config: MinimalMatmulConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    fuse_swiglu: bool = False,
) -> Tensor:
    """[.., rows, inner] x [inner, columns] (+ bias [1, columns]) -> [.., rows, columns], accumulated in float32.

    With `fuse_swiglu` the columns are tiles of gate and up in turn, and the result is silu(gate) * up of half the width.
    """
    _stated(PLAIN, config, compute_kernel_config)

    def compute(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        left, right = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:])
        result = torch.mm(left, right) if bias is None else torch.addmm(bias.reshape(1, -1), left, right)
        if fuse_swiglu:
            result = _gated_pairs(result)
        return result.view(*a.shape[:-1], result.shape[-1])

    inputs = (input_tensor, weight_tensor) if bias_tensor is None else (input_tensor, weight_tensor, bias_tensor)
    attributes = (dtype, memory_config, config, compute_kernel_config, fuse_swiglu)
    return launch(PLAIN, inputs, attributes, _plan, compute)[0]


def _plan_residual(device: Device, a: TensorSpec, b: TensorSpec, base: TensorSpec, scale: TensorSpec, *rest) -> Plan:
    dtype, memory_config, config, compute, _ = rest
    _check_inputs(RESIDUAL, a, b)
    for which, spec in (("third", base), ("fourth", scale)):
        require(
            spec.layout is Layout.TILE and spec.is_float, RESIDUAL, f"the {which} must be floats in tiles, got {spec!r}"
        )
    shape = (*a.shape[:-1], b.shape[-1])
    require(base.shape == shape, RESIDUAL, f"what is added to must have the shape {list(shape)}, got {base!r}")
    require(
        scale.shape[-1] == shape[-1] and scale.volume == shape[-1],
        RESIDUAL,
        f"the factors must be one row of {shape[-1]}, got {scale!r}",
    )
    require(
        TILE_BYTES[base.dtype] == TILE_BYTES[b.dtype],
        RESIDUAL,
        f"what is added to must be stored as the weight is: {base.dtype.name} and {b.dtype.name}",
    )
    _check_blocks(device, RESIDUAL, config, compute)
    output = tensor_spec(shape, dtype or a.dtype, Layout.TILE, memory_config or a.memory_config)
    require(output.is_float, RESIDUAL, f"the output must be floats, got {output.dtype.name}")
    size = _buffer_bytes(config, compute, a.dtype, b.dtype, output.dtype, pairs=False)
    size += config.N_block_size * (config.M_block_size * TILE_BYTES[base.dtype] + TILE_BYTES[scale.dtype])
    return Plan((output,), l1_bytes=size)


@checked
def dit_minimal_matmul_addcmul_fused(
    matmul_input_tensor: Tensor,
    matmul_weight_tensor: Tensor,
    scalar: float,
    addcmul_input_tensor1: Tensor,
    addcmul_input_tensor2: Tensor,
    *,
    config: MinimalMatmulConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """base [.., rows, columns] + scalar * ([.., rows, inner] x [inner, columns]) * factors [1, columns], rounded once."""
    _stated(RESIDUAL, config, compute_kernel_config)
    if isinstance(scalar, bool) or not isinstance(scalar, (int, float)):
        raise TypeError(f"{RESIDUAL}(): scalar must be a number, got {scalar!r}")

    def compute(a: torch.Tensor, b: torch.Tensor, base: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        product = torch.mm(a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:])).mul_(factors.reshape(1, -1))
        return product.mul_(scalar).view(base.shape).add_(base)

    inputs = (matmul_input_tensor, matmul_weight_tensor, addcmul_input_tensor1, addcmul_input_tensor2)
    attributes = (dtype, memory_config, config, compute_kernel_config, scalar)
    return launch(RESIDUAL, inputs, attributes, _plan_residual, compute)[0]


def _stated(name: str, config: Any, compute: Any) -> None:
    """The library would choose blocks and fidelity itself; what it would choose is not modelled."""
    if config is not None and not isinstance(config, MinimalMatmulConfig):
        raise TypeError(f"{name}(): config must be a MinimalMatmulConfig, got {type(config).__name__}")
    if config is None or compute is None:
        raise EmulatorError(name, "config and compute_kernel_config must be stated")

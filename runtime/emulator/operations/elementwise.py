"""Element by element, of two operands: sums and products with an activation, and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..arguments import checked
from ..configs import MemoryConfig, UnaryOpType
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import FLOATS, DataType, Layout
from ..errors import require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor
from .unary import ACTIVATIONS

FLOAT32_MAX = torch.finfo(torch.float32).max


def _plan_binary(device: Device, a: TensorSpec, b: TensorSpec, name, dtype, memory_config, *activations) -> Plan:
    require(
        len(a.shape) == len(b.shape) and all(one == other or 1 in (one, other) for one, other in zip(a.shape, b.shape)),
        name,
        f"both inputs must have the same sizes, or 1 where the other's is repeated, and equally many: "
        f"{list(a.shape)} and {list(b.shape)}",
    )
    shape = tuple(map(max, a.shape, b.shape))
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, name, "both inputs must be in tiles")
    require(a.is_float and b.is_float, name, f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    require(dtype is None or dtype in FLOATS, name, f"the output must be floats, got {dtype}")
    return Plan((tensor_spec(shape, dtype or a.dtype, Layout.TILE, memory_config or a.memory_config),))


def _checked_activations(name: str, activations: Sequence[UnaryOpType]) -> tuple[UnaryOpType, ...]:
    for activation in activations:
        if not isinstance(activation, UnaryOpType):
            raise TypeError(f"{name}(): an activation must be a UnaryOpType, got {activation!r}")
    return tuple(activations)


def _binary(name, function, a, b, dtype, memory_config, activations, of_second) -> Tensor:
    activations, of_second = _checked_activations(name, activations), _checked_activations(name, of_second)

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for activation in of_second:
            b = ACTIVATIONS[activation](b)
        if not activations:
            return function(a, b)
        for activation in activations:
            a = ACTIVATIONS[activation](a)
        return function(a, b, out=a) if a.shape == torch.broadcast_shapes(a.shape, b.shape) else function(a, b)

    return launch(name, (a, b), (name, dtype, memory_config, activations, of_second), _plan_binary, compute)[0]


def _plan_scaled(device: Device, a: TensorSpec, factor, dtype, memory_config, activations) -> Plan:
    require(
        a.layout is Layout.TILE and a.is_float, "mul", f"what a number multiplies must be floats in tiles, got {a!r}"
    )
    require(dtype is None or dtype in FLOATS, "mul", f"the output must be floats, got {dtype}")
    return Plan((tensor_spec(a.shape, dtype or a.dtype, Layout.TILE, memory_config or a.memory_config),))


def _scaled(a: Tensor, factor: float, dtype, memory_config, activations) -> Tensor:
    """The device holds the number in float32 beside float32 values, and in bfloat16 beside others."""
    activations = _checked_activations("mul", activations)
    require(
        math.isfinite(factor) and abs(factor) <= FLOAT32_MAX, "mul", f"a factor must be finite in float32, got {factor}"
    )
    held = torch.tensor(factor, dtype=torch.float32)
    if a.dtype is not DataType.FLOAT32 and a.device() is not None and a.device().precision == "declared":
        held = held.bfloat16()
    number = held.item()

    def compute(a: torch.Tensor) -> torch.Tensor:
        for activation in activations:
            a = ACTIVATIONS[activation](a)
        return a * number

    return launch("mul", (a,), (number, dtype, memory_config, activations), _plan_scaled, compute)[0]


@checked
def add(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    input_tensor_a_activations: Sequence[UnaryOpType] = (),
    input_tensor_b_activations: Sequence[UnaryOpType] = (),
) -> Tensor:
    """activation(a) + activation(b), which has the sizes of a or 1, and then stands for all along that dimension."""
    activations = (input_tensor_a_activations, input_tensor_b_activations)
    return _binary("add", torch.add, input_tensor_a, input_tensor_b, dtype, memory_config, *activations)


@checked
def mul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    input_tensor_a_activations: Sequence[UnaryOpType] = (),
    input_tensor_b_activations: Sequence[UnaryOpType] = (),
) -> Tensor:
    """activation(a) * activation(b), which has the sizes of a or 1, or is a number, of which bfloat16 is held where a is not
    float32.
    """
    if isinstance(input_tensor_b, (int, float)):
        require(len(input_tensor_b_activations) == 0, "mul", "an activation of a number is not modelled")
        return _scaled(input_tensor_a, input_tensor_b, dtype, memory_config, input_tensor_a_activations)
    activations = (input_tensor_a_activations, input_tensor_b_activations)
    return _binary("mul", torch.mul, input_tensor_a, input_tensor_b, dtype, memory_config, *activations)


@checked
def subtract(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """a - b, where b has the sizes of a or 1: one column [.., rows, 1] lessens every column of a, one row every row."""
    return _binary("subtract", torch.sub, input_tensor_a, input_tensor_b, dtype, memory_config, (), ())

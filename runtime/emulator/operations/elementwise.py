"""Element by element: sums, products with an activation, differences, powers and logarithms, and type changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..arguments import checked
from ..configs import MemoryConfig, UnaryOpType
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import FLOATS, INTEGER_RANGES, DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

ACTIVATIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "sigmoid": torch.sigmoid,
}
ACTIVATIONS |= {kind: ACTIVATIONS[kind.name.lower()] for kind in UnaryOpType}


def _plan_binary(device: Device, a: TensorSpec, b: TensorSpec, name, dtype, memory_config, activations) -> Plan:
    require(
        a.shape == b.shape,
        name,
        f"shapes must be equal (broadcasting is not modelled): {list(a.shape)} and {list(b.shape)}",
    )
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, name, "both inputs must be in tiles")
    require(a.is_float and b.is_float, name, f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    require(dtype is None or dtype in FLOATS, name, f"the output must be floats, got {dtype}")
    return Plan((tensor_spec(a.shape, dtype or a.dtype, Layout.TILE, memory_config or a.memory_config),))


def _binary(name, function, a, b, dtype, memory_config, activations) -> Tensor:
    activations = tuple(activations)
    for activation in activations:
        if not isinstance(activation, UnaryOpType):
            raise TypeError(f"{name}(): an activation must be a UnaryOpType, got {activation!r}")

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not activations:
            return function(a, b)
        for activation in activations:
            a = ACTIVATIONS[activation](a)
        return function(a, b, out=a)

    return launch(name, (a, b), (name, dtype, memory_config, activations), _plan_binary, compute)[0]


@checked
def add(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    input_tensor_a_activations: Sequence[UnaryOpType] = (),
) -> Tensor:
    """activation(a) + b of equal shapes."""
    return _binary("add", torch.add, input_tensor_a, input_tensor_b, dtype, memory_config, input_tensor_a_activations)


@checked
def mul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    input_tensor_a_activations: Sequence[UnaryOpType] = (),
) -> Tensor:
    """activation(a) * b of equal shapes."""
    return _binary("mul", torch.mul, input_tensor_a, input_tensor_b, dtype, memory_config, input_tensor_a_activations)


def _plan_subtract(device: Device, a: TensorSpec, b: TensorSpec, dtype, memory_config) -> Plan:
    require(
        b.shape in (a.shape, (*a.shape[:-1], 1)),
        "subtract",
        f"what is subtracted must have the shape {list(a.shape)} or be one column of it, got {list(b.shape)}",
    )
    require(a.layout is Layout.TILE and b.layout is Layout.TILE, "subtract", "both inputs must be in tiles")
    require(a.is_float and b.is_float, "subtract", f"both inputs must be floats, got {a.dtype.name} and {b.dtype.name}")
    require(dtype is None or dtype in FLOATS, "subtract", f"the output must be floats, got {dtype}")
    return Plan((tensor_spec(a.shape, dtype or a.dtype, Layout.TILE, memory_config or a.memory_config),))


@checked
def subtract(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """a - b, where b has the shape of a or is one column [.., rows, 1] that every column of a is lessened by."""
    return launch("subtract", (input_tensor_a, input_tensor_b), (dtype, memory_config), _plan_subtract, torch.sub)[0]


def _plan_unary(device: Device, source: TensorSpec, name, memory_config) -> Plan:
    require(source.is_float, name, f"the input must be floats, got {source.dtype.name}")
    return Plan((tensor_spec(source.shape, source.dtype, source.layout, memory_config or source.memory_config),))


@checked
def exp(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """e to the power of each value."""
    return launch("exp", (input_tensor,), ("exp", memory_config), _plan_unary, torch.exp)[0]


@checked
def log(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Natural logarithm of each value: minus infinity of 0, NaN below."""
    return launch("log", (input_tensor,), ("log", memory_config), _plan_unary, torch.log)[0]


def _plan_typecast(device: Device, source: TensorSpec, dtype, memory_config) -> Plan:
    target = tensor_spec(source.shape, dtype, source.layout, memory_config or source.memory_config)
    require(
        source.is_float == target.is_float,
        "typecast",
        f"only casts between floats or between integers are modelled, got {source.dtype.name} to {dtype.name}",
    )
    return Plan((target,))


@checked
def typecast(input_tensor: Tensor, dtype: DataType, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The same values rounded to another float type, or in another integer type that holds every one of them."""

    def check(values: torch.Tensor) -> None:
        low, high = INTEGER_RANGES[dtype]
        for value in torch.aminmax(values):
            if not low <= int(value) <= high:
                raise EmulatorError("typecast", f"{int(value)} does not fit {dtype.name}, which holds {low} to {high}")

    def compute(values: torch.Tensor) -> torch.Tensor:
        return values

    attributes = (dtype, memory_config)
    integers = check if dtype in INTEGER_RANGES else None
    return launch("typecast", (input_tensor,), attributes, _plan_typecast, compute, check=integers)[0]

"""Element by element, of one operand: powers, logarithms, activations and type changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..arguments import checked
from ..configs import GeluVariant, MemoryConfig, UnaryOpType
from ..device import Arch, Device
from ..dispatch import Plan, launch
from ..dtypes import INTEGER_RANGES, DataType, round_to
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

ACTIVATIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
}
ACTIVATIONS |= {kind: ACTIVATIONS[kind.name.lower()] for kind in UnaryOpType}


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


@checked
def ceil(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The least whole number that is not below each value."""
    return launch("ceil", (input_tensor,), ("ceil", memory_config), _plan_unary, torch.ceil)[0]


@checked
def tanh(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Hyperbolic tangent of each value."""
    return launch("tanh", (input_tensor,), ("tanh", memory_config), _plan_unary, torch.tanh)[0]


@checked
def gelu(
    input_tensor: Tensor,
    *,
    variant: GeluVariant = GeluVariant.Accurate,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """x Phi(x) of each value: by the error function, or by its approximation with a tanh."""
    kind = UnaryOpType.GELU_TANH if variant is GeluVariant.Tanh else UnaryOpType.GELU
    return launch("gelu", (input_tensor,), (kind, memory_config), _plan_gelu, ACTIVATIONS[kind])[0]


def _plan_gelu(device: Device, source: TensorSpec, kind, memory_config) -> Plan:
    return _plan_unary(device, source, "gelu", memory_config)


def _plan_softcap(device: Device, source: TensorSpec, beta, memory_config) -> Plan:
    require(
        device.arch() is Arch.BLACKHOLE,
        "softcap",
        f"the library has it on Blackhole only, not on {device.board.name}; multiply, and multiply tanh of that",
    )
    require(
        source.dtype in (DataType.BFLOAT16, DataType.BFLOAT8_B),
        "softcap",
        f"the input must be BFLOAT16 or BFLOAT8_B, got {source.dtype.name}",
    )
    require(beta != 0, "softcap", "beta must not be zero")
    return _plan_unary(device, source, "softcap", memory_config)


@checked
def softcap(input_tensor: Tensor, beta: float, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """beta tanh(x / beta) of each value, on Blackhole."""

    def compute(values: torch.Tensor) -> torch.Tensor:
        return torch.tanh(values / beta) * beta

    return launch("softcap", (input_tensor,), (beta, memory_config), _plan_softcap, compute)[0]


def _plan_softplus(device: Device, source: TensorSpec, beta, threshold, memory_config) -> Plan:
    require(beta > 0, "softplus", f"beta must be positive, got {beta}")
    return _plan_unary(device, source, "softplus", memory_config)


@checked
def softplus(
    input_tensor: Tensor, *, beta: float = 1.0, threshold: float = 20.0, memory_config: MemoryConfig | None = None
) -> Tensor:
    """log(1 + e^(beta x)) / beta of each value, and x itself where beta x is above the threshold."""

    def compute(values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(values, beta, threshold)

    return launch("softplus", (input_tensor,), (beta, threshold, memory_config), _plan_softplus, compute)[0]


def _plan_typecast(device: Device, source: TensorSpec, dtype, memory_config) -> Plan:
    target = tensor_spec(source.shape, dtype, source.layout, memory_config or source.memory_config)
    require(
        source.is_float == target.is_float or source.dtype is DataType.FLOAT32 and dtype is DataType.UINT32,
        "typecast",
        f"only casts between floats, between integers and from FLOAT32 to UINT32 are modelled, got {source.dtype.name} to "
        f"{dtype.name}",
    )
    return Plan((target,))


@checked
def typecast(
    input_tensor: Tensor,
    dtype: DataType,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """The same values rounded to another float type, or in another integer type that holds every one of them.

    Floats become integers where they are whole: how the device would round others is not relied on. With `output_tensor`,
    between floats, they are written into it and nothing is allocated.
    """
    if output_tensor is not None:
        return _typecast_into(input_tensor, dtype, output_tensor)
    counted = input_tensor.spec.is_float and dtype in INTEGER_RANGES

    def check(values: torch.Tensor) -> None:
        if counted and not bool((values == values.trunc()).all()):
            raise EmulatorError("typecast", f"what becomes {dtype.name} must be whole numbers")
        low, high = INTEGER_RANGES[dtype]
        for value in torch.aminmax(values):
            if not low <= int(value) <= high:
                raise EmulatorError("typecast", f"{int(value)} does not fit {dtype.name}, which holds {low} to {high}")

    def compute(values: torch.Tensor) -> torch.Tensor:
        return values.long() if counted else values

    attributes = (dtype, memory_config)
    integers = check if dtype in INTEGER_RANGES else None
    return launch("typecast", (input_tensor,), attributes, _plan_typecast, compute, check=integers)[0]


def _typecast_into(source: Tensor, dtype: DataType, target: Tensor) -> Tensor:
    rounds = target.device().precision == "declared"

    def compute(values: torch.Tensor, into: torch.Tensor) -> None:
        into.copy_(round_to(values, dtype) if rounds else values)

    launch("typecast", (source, target), (dtype,), _plan_typecast_into, compute, in_place=1)
    return target


def _plan_typecast_into(device: Device, source: TensorSpec, target: TensorSpec, dtype) -> Plan:
    require(
        source.is_float and target.is_float, "typecast", "only casts between floats are modelled with an output tensor"
    )
    require(
        target.dtype is dtype, "typecast", f"the output tensor is {target.dtype.name} and the cast is to {dtype.name}"
    )
    require(
        source.shape == target.shape and source.layout is target.layout,
        "typecast",
        f"the output tensor must have the input's shape and layout, got {source!r} and {target!r}",
    )
    return Plan(())

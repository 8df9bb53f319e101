"""Values written at the columns of a row that an index names."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "scatter"
INDICES = (DataType.UINT16, DataType.UINT32, DataType.INT32)


def _plan(device: Device, target: TensorSpec, index: TensorSpec, source: TensorSpec, memory_config) -> Plan:
    for spec in (target, index, source):
        require(spec.layout is Layout.ROW_MAJOR, NAME, f"only rows are modelled, got {spec!r}")
    require(index.dtype in INDICES, NAME, f"the index must be UINT16, UINT32 or INT32, got {index.dtype.name}")
    require(
        source.dtype is target.dtype,
        NAME,
        f"what is written must have the type of what it is written into: {source.dtype.name} and {target.dtype.name}",
    )
    require(
        index.shape == source.shape and len(index.shape) == len(target.shape) and index.shape[:-1] == target.shape[:-1],
        NAME,
        f"the index and the values must be equal in shape and have the rows of the target: "
        f"{list(index.shape)}, {list(source.shape)} and {list(target.shape)}",
    )
    return Plan(
        (tensor_spec(target.shape, target.dtype, target.layout, memory_config or target.memory_config),), moves=True
    )


@checked
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, memory_config: MemoryConfig | None = None
) -> Tensor:
    """A copy of `input` [.., columns] in which the columns of each row that `index` [.., written] names hold the values of
    `src`. The library skips a column outside the row and keeps the last of several values of one column; both are refused here.
    """
    rank = len(input.spec.shape)
    require(dim in (-1, rank - 1), NAME, f"only the last dimension is modelled, got dim={dim} of rank {rank}")

    def check(target: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> None:
        low, high = (int(bound) for bound in torch.aminmax(index))
        if not 0 <= low <= high < target.shape[-1]:
            raise EmulatorError(
                NAME, f"index {low if low < 0 else high} is outside the row of {target.shape[-1]} values"
            )
        ordered = index.sort(-1).values
        if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
            raise EmulatorError(NAME, "a row writes one column twice: which value stays is an accident")

    def compute(target: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return target.scatter(-1, index, source)

    return launch(NAME, (input, index, src), (memory_config,), _plan, compute, check=check)[0]

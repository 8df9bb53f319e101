"""Table look-up: token ids, positions and the rows that reach the head."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import MemoryConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import FLOATS, DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "embedding"


def _plan(device: Device, ids: TensorSpec, table: TensorSpec, layout, dtype, memory_config) -> Plan:
    require(ids.dtype is DataType.UINT32, NAME, f"indices must be UINT32, got {ids.dtype.name}")
    require(len(ids.shape) == 2, NAME, f"indices must be [batch, count], got {list(ids.shape)}")
    require(
        table.dtype in (DataType.BFLOAT16, DataType.BFLOAT8_B)
        and 2 <= len(table.shape) <= 4
        and all(size == 1 for size in table.shape[:-2]),
        NAME,
        f"the table must be BFLOAT16 or BFLOAT8_B and hold one matrix [.., 1, rows, columns], got {table!r}",
    )
    layout = layout or table.layout
    shape = (*ids.shape, table.shape[-1])
    dtype = dtype or DataType.BFLOAT16
    require(
        dtype is DataType.BFLOAT16 or layout is Layout.TILE and dtype in FLOATS,
        NAME,
        f"what is picked is BFLOAT16 and can be cast to other floats in tiles only, not to {dtype.name} {layout.name}",
    )
    output = tensor_spec(shape, dtype, layout, memory_config or ids.memory_config)
    if table.layout is Layout.ROW_MAJOR:
        return Plan((output,), moves=dtype is table.dtype)
    as_rows = tensor_spec(
        table.shape, DataType.BFLOAT16, Layout.ROW_MAJOR, table.memory_config
    )  # rows are what is picked
    return Plan((output,), moves=dtype is table.dtype, scratch=(as_rows,))


@checked
def embedding(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    layout: Layout | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Indices [batch, count] into a table [rows, columns] -> [batch, count, columns]. An index outside the table is
    refused.
    """

    def check(ids: torch.Tensor, table: torch.Tensor) -> None:
        largest, rows = int(ids.max()), table.shape[-2]
        if largest >= rows:
            raise EmulatorError(NAME, f"index {largest} is outside the table of {rows} rows")

    def compute(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(ids, table.reshape(table.shape[-2:]))

    return launch(NAME, (input_tensor, weight), (layout, dtype, memory_config), _plan, compute, check=check)[0]

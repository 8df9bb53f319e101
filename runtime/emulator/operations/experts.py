"""Routed experts: the fused feed-forward of every expert over its own rows.

The rules are those of `experimental.deepseek_prefill.moe_fused_swiglu` in the library, the intermediate types its kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import torch
from torch.nn.functional import silu

from ..arguments import checked
from ..configs import BufferType, CoreCoord, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout, round_to
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec
from ..tensor import Tensor
from .expert_buffers import buffer_bytes

FUSED = "moe_fused_swiglu"
WEIGHTS = (DataType.BFLOAT4_B, DataType.BFLOAT8_B, DataType.BFLOAT16)
OUTPUTS = (DataType.BFLOAT8_B, DataType.BFLOAT16)
GATE_LIMIT, GATE_SLOPE = 7.0, 1.702  # of the clamped gate


class RoutedExpertActivation(Enum):
    """How gate and up become the hidden values of an expert; the kinds that exist on one architecture only are left out."""

    Silu = 0
    SwiGluOai = 1

    __hash__ = object.__hash__


def clamped_gate(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """(up + 1) gate sigmoid(1.702 gate) of gate up to 7 and up between -7 and 7."""
    gate, up = gate.clamp(max=GATE_LIMIT), up.clamp(-GATE_LIMIT, GATE_LIMIT)
    return (up + 1) * gate * torch.sigmoid(GATE_SLOPE * gate)


def _plan_fused(device: Device, rows: TensorSpec, *rest) -> Plan:
    *specs, attributes = rest
    experts, activation, compute, grid, biased, dtype = attributes
    for spec in (rows, *specs):
        require(spec.memory_config.buffer_type is BufferType.DRAM, FUSED, f"everything must lie in DRAM, got {spec!r}")
    weights, specs = specs[: 3 * experts], specs[3 * experts :]
    biases, specs = (specs[: 3 * experts], specs[3 * experts :]) if biased else ((), specs)
    counts, table, offsets, output = specs
    require(
        rows.dtype is DataType.BFLOAT16 and rows.layout is Layout.ROW_MAJOR and len(rows.shape) == 2,
        FUSED,
        f"the rows must be [rows, hidden] in BFLOAT16 ROW_MAJOR (tiles of BFLOAT8_B are not modelled), got {rows!r}",
    )
    height, hidden = rows.shape
    gate = weights[0]
    require(len(gate.shape) == 2, FUSED, f"w_gate[0] must have rank 2, got {gate!r}")
    width = gate.shape[1]
    require(
        height % TILE == hidden % TILE == width % TILE == 0,
        FUSED,
        f"rows, hidden and intermediate must be whole tiles, got {height}, {hidden} and {width}",
    )
    for index, weight in enumerate(weights):
        shape = (width, hidden) if index >= 2 * experts else (hidden, width)
        require(
            weight.dtype in WEIGHTS
            and weight.dtype is gate.dtype
            and weight.layout is Layout.TILE
            and weight.shape == shape,
            FUSED,
            f"weights must be tiles of one type of BFLOAT4_B, BFLOAT8_B and BFLOAT16, gate and up [{hidden}, {width}] and down "
            f"[{width}, {hidden}]; got {weight!r}",
        )
    require(
        not biased or activation is not RoutedExpertActivation.Silu,
        FUSED,
        "expert biases require SwiGluOai; the kernel of Silu has no branch for them",
    )
    for index, bias in enumerate(biases):
        shape = (1, hidden if index >= 2 * experts else width)
        require(
            bias.dtype is DataType.BFLOAT16 and bias.layout is Layout.TILE and bias.shape == shape,
            FUSED,
            f"expert biases must be BFLOAT16 tiles of one row, gate and up [1, {width}] and down [1, {hidden}]; got {bias!r}",
        )
    for name, spec in (("counts", counts), ("global_expert_idx_table", table), ("expert_region_offsets", offsets)):
        require(
            spec.dtype is DataType.UINT32
            and spec.layout is Layout.ROW_MAJOR
            and (len(spec.shape) == 1 or len(spec.shape) == 2 and spec.shape[0] == 1),
            FUSED,
            f"{name} must be UINT32 ROW_MAJOR, [count] or [1, count]; got {spec!r}",
        )
    require(
        offsets.shape[-1] == counts.shape[-1] and table.shape[-1] >= experts,
        FUSED,
        f"expert_region_offsets must be as many as counts and the table no shorter than the {experts} experts, "
        f"got {offsets.shape[-1]}, {counts.shape[-1]} and {table.shape[-1]}",
    )
    require(dtype in OUTPUTS, FUSED, f"the output must be BFLOAT8_B or BFLOAT16, got {dtype}")
    require(
        output.shape == rows.shape and output.dtype is dtype and output.layout is Layout.TILE,
        FUSED,
        f"output must be {dtype.name} tiles of {list(rows.shape)}, got {output!r}",
    )
    require(
        compute is None or not (compute.fp32_dest_acc_en or compute.packer_l1_acc),
        FUSED,
        "fp32_dest_acc_en and packer_l1_acc must be false: the kernel needs eight destination tiles and manages the packer itself",
    )
    limit = device.compute_with_storage_grid_size()
    columns, lines = (limit.x, limit.y) if grid is None else (grid.x, grid.y)
    require(
        2 <= lines <= columns and columns <= limit.x and lines <= limit.y,
        FUSED,
        f"the grid must have columns >= rows >= 2 and lie inside {limit.x} x {limit.y}, got {columns} x {lines}",
    )
    need = buffer_bytes(hidden // TILE, width // TILE, (columns, lines), gate.dtype, bool(biased))
    if isinstance(need, str):
        raise EmulatorError(FUSED, need)
    require(
        need <= device.board.l1_bank_bytes,
        FUSED,
        f"needs up to {need} B of buffers on each core, of {device.board.l1_bank_bytes} B",
    )
    return Plan((), l1_bytes=need)


@checked
def moe_fused_swiglu(
    input: Tensor,
    w_gates: Sequence[Tensor],
    w_ups: Sequence[Tensor],
    w_downs: Sequence[Tensor],
    counts: Tensor,
    global_expert_idx_table: Tensor,
    *,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreCoord | None = None,
    output: Tensor | None = None,
    expert_region_offsets: Tensor | None = None,
    read_x_at_offset: bool = False,
    activation: RoutedExpertActivation = RoutedExpertActivation.Silu,
    gate_biases: Sequence[Tensor] | None = None,
    up_biases: Sequence[Tensor] | None = None,
    down_biases: Sequence[Tensor] | None = None,
) -> Tensor:
    """down(act(gate(x), up(x))) of every expert over its region of `input` [rows, hidden], written to the same rows of `output`.

    Expert i has `counts[table[i]]` rows from `expert_region_offsets[table[i]]` on, which is a multiple of 32. Rows that no
    expert has are not written; those of a region's last tile beyond its count are, with nothing that can be relied on, and
    are NaN here. Only the form that reads and writes at the offsets is modelled.

    As in the kernel, x and the hidden values pass as BFLOAT8_B, and so does each of the sums that the rows of the core grid make
    over their share of x; the reduced gate and up are BFLOAT16. Sums within a share are float32 here and bfloat16 there.
    """
    require(
        output is not None and expert_region_offsets is not None and read_x_at_offset,
        FUSED,
        "only the form with output, expert_region_offsets and read_x_at_offset is modelled",
    )
    experts = len(w_gates)
    require(
        0 < experts == len(w_ups) == len(w_downs),
        FUSED,
        f"needs a gate, an up and a down weight of each expert, got {experts}, {len(w_ups)} and {len(w_downs)}",
    )
    given = [biases for biases in (gate_biases, up_biases, down_biases) if biases is not None]
    require(len(given) in (0, 3), FUSED, "gate_biases, up_biases and down_biases are given together or not at all")
    require(all(len(biases) == experts for biases in given), FUSED, f"needs a bias of each of the {experts} experts")
    inputs = (
        input,
        *w_gates,
        *w_ups,
        *w_downs,
        *(bias for biases in given for bias in biases),
        counts,
        global_expert_idx_table,
        expert_region_offsets,
        output,
    )
    grid = core_grid or input.device().compute_with_storage_grid_size()
    attributes = (experts, activation, compute_kernel_config, core_grid, bool(given), dtype or DataType.BFLOAT8_B)
    rounding = rounding_of(input)

    def check(*values: torch.Tensor) -> None:
        _regions(experts, *values[-4:])

    def compute(rows: torch.Tensor, *values: torch.Tensor) -> None:
        written = values[-1]
        for index, (first, count) in enumerate(_regions(experts, *values[-4:])):
            if not count:
                continue
            weights = [values[role * experts + index] for role in range(3)]
            biases = [values[(3 + role) * experts + index] for role in range(3)] if given else None
            fed = _feed_forward(rows[first : first + count], weights, biases, activation, grid.y, rounding)
            written[first : first + count] = rounding(fed, attributes[-1])
            written[first + count : first + -(-count // TILE) * TILE] = float("nan")

    launch(FUSED, inputs, (attributes,), _plan_fused, compute, check=check, in_place=len(inputs) - 1)
    return output


def rounding_of(tensor: Tensor) -> Callable[[torch.Tensor, DataType], torch.Tensor]:
    device = tensor.device()
    if device is not None and device.precision == "float32":
        return lambda values, dtype: values
    return round_to


def _feed_forward(rows, weights, biases, activation, parts: int, rounding) -> torch.Tensor:
    """One expert over [rows, hidden]. The hidden width is summed in as many parts as the core grid has rows."""
    taken = rounding(rows, DataType.BFLOAT8_B)
    share = -(-rows.shape[1] // (TILE * parts)) * TILE

    def reduced(weight: torch.Tensor) -> torch.Tensor:
        sums = [
            rounding(columns @ lines, DataType.BFLOAT8_B)
            for columns, lines in zip(taken.split(share, dim=1), weight.split(share))
        ]
        return rounding(sum(sums[1:], sums[0]), DataType.BFLOAT16)

    gate, up = reduced(weights[0]), reduced(weights[1])
    if biases is not None:
        gate, up = gate + biases[0], up + biases[1]
    if activation is RoutedExpertActivation.Silu:
        inner = rounding(silu(gate), DataType.BFLOAT16) * up
    else:
        inner = clamped_gate(gate, up)
    fed = rounding(inner, DataType.BFLOAT8_B) @ weights[2]
    return fed if biases is None else rounding(fed, DataType.BFLOAT16) + biases[2]


def _regions(experts: int, counts, table, offsets, output) -> list[tuple[int, int]]:
    """First row and rows of each expert. What the kernel would skip or write over in silence is refused."""
    counts, table, offsets = (values.reshape(-1).tolist() for values in (counts, table, offsets))
    regions = []
    for index in table[:experts]:
        if not 0 <= index < len(counts):
            raise EmulatorError(FUSED, f"the table names expert {index} of {len(counts)}")
        regions.append((offsets[index], counts[index]))
    end = 0
    for first, count in sorted(region for region in regions if region[1]):
        if first % TILE or first < end or first + count > output.shape[0]:
            raise EmulatorError(
                FUSED,
                f"the region of {count} rows from {first} on must begin at a multiple of {TILE}, not before {end}, and end inside "
                f"{output.shape[0]} rows",
            )
        end = first + -(-count // TILE) * TILE
    return regions

"""The short causal convolution in front of a linear attention: `experimental.kda.qkv_causal_conv1d_silu`.

Its rules and its buffers were read off the library's mock devices, the arithmetic off its kernel.
"""

from __future__ import annotations

import torch

from ..arguments import checked
from ..configs import (
    DRAM_MEMORY_CONFIG,
    MemoryConfig,
    QkvCausalConv1dSiluProgramConfig,
    WormholeComputeKernelConfig,
)
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "qkv_causal_conv1d_silu"
TAPS = 4
HISTORY = TAPS - 1  # rows of what came before that reach into the first rows


def _plan(device: Device, x: TensorSpec, history: TensorSpec, *rest) -> Plan:
    *taps, start, carry = rest[: TAPS + 2]
    widths, program, memory_config, compute, offset = rest[TAPS + 2 :]
    named = (
        ("input", x, DataType.BFLOAT16, Layout.TILE),
        ("history", history, DataType.BFLOAT16, Layout.ROW_MAJOR),
        *((f"tap{index}", tap, DataType.BFLOAT16, Layout.TILE) for index, tap in enumerate(taps)),
        ("actual_start", start, DataType.UINT32, Layout.ROW_MAJOR),
    )
    for name, spec, dtype, layout in named:
        require(
            spec.dtype is dtype and spec.layout is layout,
            NAME,
            f"{name} must be {dtype.name} {layout.name}, got {spec!r}",
        )
    require(
        all(width > 0 and width % TILE == 0 for width in widths),
        NAME,
        f"the widths of q, k and v must be positive and whole tiles, got {list(widths)}",
    )
    channels = sum(widths)
    require(
        len(x.shape) == 3 and x.shape[0] == 1 and x.shape[2] >= offset + channels,
        NAME,
        f"the input must be [1, tokens, {offset + channels} or more], got {x!r}",
    )
    tokens = x.shape[1]
    require(tokens % TILE == 0, NAME, f"{tokens} tokens must be a multiple of {TILE}")
    require(offset % TILE == 0, NAME, f"input_column_offset must be whole tiles, got {offset}")
    require(
        history.shape == (1, HISTORY, channels),
        NAME,
        f"the history must be [1, {HISTORY}, {channels}], got {history!r}",
    )
    require(carry is history, NAME, f"predecessor_carry must be like the history, got {carry!r} and {history!r}")
    for index, tap in enumerate(taps):
        require(
            tap.shape[-1] == channels and tap.volume == channels,
            NAME,
            f"tap{index} must be one row of {channels}, got {tap!r}",
        )
    require(start.volume == 1, NAME, f"actual_start must be one number, got {start!r}")
    size = program.channel_chunk_size
    require(
        size > 0 and size % TILE == 0 and channels % size == 0,
        NAME,
        f"channel_chunk_size {size} must be whole tiles and divide the {channels} channels",
    )
    if compute is not None:
        require(not compute.packer_l1_acc, NAME, "packer_l1_acc=True is refused: its kernel does not accumulate in L1")
        require(not compute.math_approx_mode, NAME, "math_approx_mode=True is refused")
    place = memory_config or DRAM_MEMORY_CONFIG
    outputs = tuple(tensor_spec((1, tokens, width), DataType.BFLOAT16, Layout.TILE, place) for width in widths)
    return Plan(outputs, l1_bytes=buffer_bytes(size, compute is not None and compute.fp32_dest_acc_en))


def buffer_bytes(channel_chunk_size: int, float32_accumulation: bool) -> int:
    """What the program's buffers take on each core, in bytes: so many tiles at a time as the accumulators hold and divide the
    chunk.
    """
    tiles = channel_chunk_size // TILE
    most = 4 if float32_accumulation else 8
    group = max(size for size in range(1, most + 1) if tiles % size == 0)
    return 2304 + 20480 * group + 22208 * tiles


@checked
def qkv_causal_conv1d_silu(
    input: Tensor,
    history: Tensor,
    tap0: Tensor,
    tap1: Tensor,
    tap2: Tensor,
    tap3: Tensor,
    q_width: int,
    k_width: int,
    v_width: int,
    *,
    program_config: QkvCausalConv1dSiluProgramConfig,
    actual_start: Tensor,
    predecessor_carry: Tensor,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    input_column_offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """silu(tap0 x[t-3] + tap1 x[t-2] + tap2 x[t-1] + tap3 x[t]) of each channel of x [1, tokens, channels], with the three
    rows of `history` before the first -> q, k and v [1, tokens, width], BFLOAT16.

    The sum is in float32, in this order. The history is not changed. Only actual_start [0] is modelled: one chip has no
    predecessor, whose rows `predecessor_carry` would be.
    """
    widths = (q_width, k_width, v_width)
    if input_column_offset < 0 or min(widths) < 0:
        raise TypeError(f"{NAME}(): widths and input_column_offset must be whole numbers from 0 on")

    def check(*values: torch.Tensor) -> None:
        start = int(values[TAPS + 2].reshape(()))
        if start != 0:
            raise EmulatorError(NAME, f"actual_start must hold 0: only a sequence on one chip is modelled, got {start}")

    def compute(x: torch.Tensor, history: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        tokens, channels = x.shape[1], sum(widths)
        columns = x[..., input_column_offset : input_column_offset + channels]
        rows = torch.cat((history, columns), 1)[0]
        taps = [tap.reshape(channels) for tap in rest[:TAPS]]
        result = rows[:tokens] * taps[0]
        for place, tap in enumerate(taps[1:], 1):
            result.addcmul_(rows[place : place + tokens], tap)
        return torch.nn.functional.silu(result, inplace=True)[None].split(widths, -1)

    inputs = (input, history, tap0, tap1, tap2, tap3, actual_start, predecessor_carry)
    attributes = (widths, program_config, memory_config, compute_kernel_config, input_column_offset)
    return launch(NAME, inputs, attributes, _plan, compute, check=check)

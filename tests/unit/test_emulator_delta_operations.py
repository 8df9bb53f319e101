"""What stands around the emulated delta rule: convolution, gated norm, copies, joins, running sums and batched products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, silu

import runtime.emulator as ttnn
from runtime.emulator.operations import causal_convolution, gated_norm
from tests.support.emulated import bits, drawn, open_checked, rows, tiles

WIDTHS = (64, 32, 96)
CHANNELS = sum(WIDTHS)


@pytest.fixture(params=("float32", "declared"))
def device(request: pytest.FixtureRequest) -> ttnn.Device:
    return open_checked(request.param)


def convolved(device: ttnn.Device, x: torch.Tensor, history: torch.Tensor, start: int = 0, **options: Any) -> tuple:
    tail = rows(device, history)
    return ttnn.experimental.kda.qkv_causal_conv1d_silu(
        tiles(device, x),
        tail,
        *(tiles(device, drawn(1, 1, 1, CHANNELS, seed=10 + index)) for index in range(4)),
        *WIDTHS,
        program_config=ttnn.QkvCausalConv1dSiluProgramConfig(channel_chunk_size=64),
        actual_start=rows(device, torch.tensor([start]), ttnn.uint32),
        predecessor_carry=tail,
        **options,
    )


# --- the convolution ---


def test_the_convolution_is_causal_behind_its_history(device: ttnn.Device) -> None:
    x, history = drawn(1, 64, CHANNELS, seed=1), drawn(1, 3, CHANNELS, seed=2)
    found = torch.cat([ttnn.to_torch(part).float() for part in convolved(device, x, history)], -1)

    def stored(values: torch.Tensor) -> torch.Tensor:
        return values.bfloat16().float() if device.precision == "declared" else values

    kernel = torch.stack([stored(drawn(CHANNELS, seed=10 + index)) for index in range(4)], -1)[:, None]
    channels_first = torch.cat((stored(history), stored(x)), 1).mT
    wanted = silu(conv1d(channels_first, kernel, groups=CHANNELS)).mT
    assert (found - wanted).abs().max() <= wanted.abs().max() * (1e-6 if device.precision == "float32" else 2**-8)


def test_a_cut_with_its_last_three_rows_as_history_changes_no_bit(device: ttnn.Device) -> None:
    x, history = drawn(1, 160, CHANNELS, seed=3), drawn(1, 3, CHANNELS, seed=4)
    whole = convolved(device, x, history)
    for cut in (32, 64, 128):
        first = convolved(device, x[:, :cut], history)
        second = convolved(device, x[:, cut:], x[:, cut - 3 : cut])
        for part, one, other in zip(whole, first, second):
            assert torch.equal(bits(part), torch.cat((bits(one), bits(other)), 1))


def test_the_convolution_reads_its_columns_of_a_wider_input(device: ttnn.Device) -> None:
    x, history = drawn(1, 32, CHANNELS + 96, seed=5), drawn(1, 3, CHANNELS, seed=6)
    for wide, plain in zip(
        convolved(device, x, history, input_column_offset=32), convolved(device, x[..., 32 : 32 + CHANNELS], history)
    ):
        assert torch.equal(bits(wide), bits(plain))


def test_a_start_other_than_zero_is_refused(device: ttnn.Device) -> None:
    with pytest.raises(ttnn.EmulatorError, match="actual_start must hold 0: .*, got 32"):
        convolved(device, drawn(1, 32, CHANNELS), drawn(1, 3, CHANNELS), start=32)


@pytest.mark.parametrize(
    ("chunk", "float32", "wanted"),
    [
        (32, True, 44992),
        (160, True, 133824),
        (160, False, 215744),
        (256, True, 261888),
        (256, False, 343808),
        (320, True, 265344),
        (1024, True, 794880),
    ],
)
def test_buffers_of_the_convolution_are_those_of_the_library(chunk: int, float32: bool, wanted: int) -> None:
    assert causal_convolution.buffer_bytes(chunk, float32) == wanted


# --- the norm ---


def test_the_gated_norm_moves_heads_behind_tokens(device: ttnn.Device) -> None:
    x, gate, weight = drawn(6, 32, 64, seed=1), drawn(2, 32, 192, seed=2), drawn(64, seed=3)
    found = ttnn.experimental.kda.sigmoid_gated_rms_norm(
        tiles(device, x, ttnn.float32),
        tiles(device, gate),
        tiles(device, weight),
        3,
        epsilon=1e-6,
        output_dtype=ttnn.float32,
    )
    held = [ttnn.to_torch(tiles(device, values)).float() for values in (gate, weight)]
    for row in range(2):
        for head in range(3):
            own = x[3 * row + head]
            columns = slice(64 * head, 64 * head + 64)
            normed = own / (own.square().mean(-1, keepdim=True) + 1e-6).sqrt() * held[1]
            wanted = normed * torch.sigmoid(held[0][row, :, columns])
            assert (ttnn.to_torch(found)[row, :, columns] - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("dim", "dtype", "output", "wanted"),
    [
        (32, ttnn.float32, ttnn.bfloat16, 40960),
        (128, ttnn.float32, ttnn.bfloat16, 120832),
        (64, ttnn.bfloat16, ttnn.bfloat16, 59392),
        (64, ttnn.float32, ttnn.float32, 75776),
        (64, ttnn.bfloat16, ttnn.float32, 67584),
    ],
)
def test_buffers_of_the_norm_are_those_of_the_library(dim: int, dtype: Any, output: Any, wanted: int) -> None:
    assert gated_norm.buffer_bytes(dim, dtype, output) == wanted


# --- copies ---


def test_a_copy_writes_over_the_second_and_returns_it(device: ttnn.Device) -> None:
    source, target = tiles(device, drawn(1, 2, 32, 32), ttnn.float32), tiles(
        device, drawn(1, 2, 32, 32, seed=1), ttnn.float32
    )
    address, returned = target.buffer_address(), ttnn.copy(source, target)
    assert returned.buffer_address() == address and torch.equal(bits(target), bits(source))
    live = len(device.live_tensors())
    ttnn.copy(target, target)
    assert len(device.live_tensors()) == live and torch.equal(bits(target), bits(source))


def test_a_copy_rounds_to_the_type_that_it_writes() -> None:
    device = open_checked()
    source, target = tiles(device, drawn(32, 32), ttnn.float32), tiles(device, drawn(32, 32, seed=1))
    ttnn.copy(source, target)
    assert torch.equal(ttnn.to_torch(target), drawn(32, 32).bfloat16())


def test_a_copy_leaves_what_shares_memory_with_its_target(device: ttnn.Device) -> None:
    """A slice of everything and a join of one are handles or copies; neither may change when the original is written."""
    target = rows(device, drawn(1, 3, 64))
    picture = ttnn.slice(target, (0, 0, 0), (1, 3, 64))
    before = bits(picture)
    ttnn.copy(rows(device, drawn(1, 3, 64, seed=1)), target)
    assert torch.equal(bits(picture), before) and not torch.equal(bits(target), before)


def test_a_copied_part_stays_when_what_it_was_cut_from_is_written(device: ttnn.Device) -> None:
    ends, tail = rows(device, drawn(1, 6, 64)), rows(device, torch.zeros(1, 3, 64))
    ttnn.copy(ttnn.slice(ends, (0, 3, 0), (1, 6, 64)), tail)
    before = bits(tail)
    ttnn.copy(rows(device, drawn(1, 6, 64, seed=1)), ends)
    assert torch.equal(bits(tail), before)


# --- joins and repetitions ---


def test_joins_and_repetitions_are_in_order(device: ttnn.Device) -> None:
    one, other = rows(device, drawn(1, 3, 64)), rows(device, drawn(1, 6, 64, seed=1))
    joined = ttnn.concat([one, other, one], dim=1)
    assert torch.equal(bits(joined), torch.cat((bits(one), bits(other), bits(one)), 1))
    heads = tiles(device, drawn(1, 2, 32, 32), ttnn.float32)
    assert torch.equal(bits(ttnn.repeat_interleave(heads, 3, 1)), bits(heads).repeat_interleave(3, 1))


def test_one_tensor_joined_or_repeated_once_is_the_same_memory(device: ttnn.Device) -> None:
    tensor = tiles(device, drawn(1, 2, 32, 32))
    for alike in (ttnn.concat([tensor], 0), ttnn.repeat_interleave(tensor, 1, 1)):
        assert alike.buffer_address() == tensor.buffer_address()
    ttnn.deallocate(tensor)
    with pytest.raises(ttnn.EmulatorError, match="not allocated"):
        ttnn.concat([tensor], 0)


def test_what_is_joined_must_be_tensors(device: ttnn.Device) -> None:
    with pytest.raises(TypeError, match="expected a sequence of Tensors"):
        ttnn.concat([tiles(device, drawn(32, 32)), 3], 0)
    with pytest.raises(ttnn.EmulatorError, match="there must be a tensor to join"):
        ttnn.concat([], 0)


# --- gates, sums and products ---


def test_the_gates_of_a_layer_are_in_float32(device: ttnn.Device) -> None:
    """-rate softplus(x + bias) valid and sigmoid(x) valid: bfloat16 rows and columns beside float32 values."""
    x, bias, rate = 8 * drawn(1, 1, 64, 4), drawn(1, 1, 1, 4, seed=1), drawn(1, 1, 1, 4, seed=2)
    valid = (torch.arange(64) < 40).float()[None, None, :, None].expand(1, 1, 64, 4)
    wide, counted = tiles(device, x, ttnn.float32), tiles(device, valid)
    decay = ttnn.softplus(ttnn.add(wide, tiles(device, bias)), beta=1.0, threshold=20.0)
    decay = ttnn.mul(ttnn.mul(decay, tiles(device, -rate.exp(), ttnn.float32)), counted)
    update = ttnn.mul(wide, counted, input_tensor_a_activations=[ttnn.UnaryOpType.SIGMOID])
    held = ttnn.to_torch(tiles(device, bias)).float()
    wanted = torch.nn.functional.softplus(x + held) * -rate.exp() * valid
    assert decay.dtype is update.dtype is ttnn.float32
    assert (ttnn.to_torch(decay) - wanted).abs().max() <= 1e-5
    assert torch.equal(ttnn.to_torch(update), torch.sigmoid(x) * valid)


def test_an_activation_of_the_second_operand_is_of_it_alone(device: ttnn.Device) -> None:
    a, b = tiles(device, drawn(1, 1, 32, 64), ttnn.float32), tiles(device, drawn(1, 1, 32, 64, seed=1), ttnn.float32)
    for kind, function in (("SIGMOID", torch.sigmoid), ("SILU", silu), ("EXP", torch.exp)):
        found = ttnn.mul(a, b, input_tensor_b_activations=[getattr(ttnn.UnaryOpType, kind)])
        assert torch.equal(ttnn.to_torch(found), ttnn.to_torch(a) * function(ttnn.to_torch(b)))
    assert torch.equal(ttnn.to_torch(b), drawn(1, 1, 32, 64, seed=1))
    with pytest.raises(ttnn.EmulatorError, match="an activation of a number"):
        ttnn.mul(a, 2.0, input_tensor_b_activations=[ttnn.UnaryOpType.EXP])


def test_a_column_less_a_row_is_a_table(device: ttnn.Device) -> None:
    column, row = drawn(1, 3, 32, 1), drawn(1, 3, 1, 64, seed=1)
    found = ttnn.subtract(tiles(device, column, ttnn.float32), tiles(device, row, ttnn.float32))
    assert torch.equal(ttnn.to_torch(found), column - row)


def test_running_sums_begin_anew_in_each_row(device: ttnn.Device) -> None:
    values = drawn(2, 3, 32, 64)
    found = ttnn.cumsum(tiles(device, values, ttnn.float32), 2)
    assert (ttnn.to_torch(found) - values.double().cumsum(2)).abs().max() <= 1e-5


@pytest.mark.parametrize("dims", [(0, 1, 2, 4), (0, 1, 1, 3), (0, 1, 2), (0, 1, 2, -5)])
def test_an_order_that_is_none_is_refused(device: ttnn.Device, dims: tuple[int, ...]) -> None:
    with pytest.raises(ttnn.EmulatorError, match="names not every one of 4 dimensions once"):
        ttnn.permute(tiles(device, drawn(1, 2, 32, 32)), dims)


def batched(device: ttnn.Device, a: torch.Tensor, b: torch.Tensor, **options: Any) -> ttnn.Tensor:
    program = ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=2,
        per_core_N=1,
    )
    return ttnn.matmul(
        tiles(device, a, ttnn.float32),
        tiles(device, b, ttnn.float32),
        dtype=ttnn.float32,
        program_config=program,
        compute_kernel_config=ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=True),
        **options,
    )


@pytest.mark.parametrize("first", (False, True))
@pytest.mark.parametrize("second", (False, True))
def test_batched_products_turn_either_operand(device: ttnn.Device, first: bool, second: bool) -> None:
    a, b = drawn(1, 6, 64, 96), drawn(1, 6, 96, 32, seed=1)
    turned = {"transpose_a": first, "transpose_b": second}
    found = batched(device, a.mT if first else a, b.mT if second else b, **turned)
    wanted = a.double() @ b.double()
    assert (ttnn.to_torch(found) - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_how_many_products_are_made_together_changes_no_bit(device: ttnn.Device) -> None:
    a, b = drawn(1, 48, 64, 64), drawn(1, 48, 64, 32, seed=1)
    whole = bits(batched(device, a, b))
    for size in (1, 3, 16):
        parts = [bits(batched(device, a[:, i : i + size], b[:, i : i + size])) for i in range(0, 48, size)]
        assert torch.equal(torch.cat(parts, 1), whole)


@pytest.mark.parametrize(
    ("shape", "rows_of_core", "width", "turned", "wanted"),
    [
        ((64, 64), 1, 1, False, 32768),
        ((64, 64), 2, 1, False, 49152),
        ((64, 64), 16, 2, False, 196608),
        ((64, 64), 2, 2, True, 114688),
        ((64, 64), 2, 1, True, 65536),
        ((128, 128), 4, 4, False, 327680),
    ],
)
def test_buffers_of_batched_products_are_those_of_the_library(
    shape: tuple[int, int], rows_of_core: int, width: int, turned: bool, wanted: int
) -> None:
    device = open_checked()
    side = tiles(device, drawn(1, 8, *shape), ttnn.float32)
    program = ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=width,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=rows_of_core,
        per_core_N=shape[1] // 32,
    )
    ttnn.matmul(
        side,
        side,
        transpose_a=turned,
        program_config=program,
        compute_kernel_config=ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=True),
    )
    (made,) = [plan for key, plan in device.programs.items() if key[0] == "matmul"]
    assert made.l1_bytes == wanted

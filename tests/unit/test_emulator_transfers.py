"""Between torch and the device: values, types and places."""

from __future__ import annotations

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.dtypes import round_to
from tests.support.emulated import drawn, open_checked, rows, tiles

FLOATS = (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.float32)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_device_stores_what_the_type_holds(dtype) -> None:
    values = drawn(48, 80)

    assert torch.equal(ttnn.to_torch(tiles(open_checked(), values, dtype)).float(), round_to(values, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float32_mode_rounds_nothing_and_keeps_the_declared_type(dtype) -> None:
    values = drawn(48, 80)
    tensor = tiles(open_checked("float32"), values, dtype)

    assert tensor.dtype is dtype and torch.equal(ttnn.to_torch(tensor), values)
    assert torch.equal(ttnn.to_torch(ttnn.from_device(tensor)), values)


def test_torch_types_that_come_back() -> None:
    device = open_checked()
    expected = {
        ttnn.bfloat16: torch.bfloat16,
        ttnn.bfloat8_b: torch.float32,
        ttnn.float32: torch.float32,
        ttnn.uint32: torch.uint32,
        ttnn.int32: torch.int32,
        ttnn.uint16: torch.uint16,
    }
    for dtype, torch_dtype in expected.items():
        assert ttnn.to_torch(tiles(device, torch.ones(2, 40), dtype)).dtype is torch_dtype


@pytest.mark.parametrize("precision", ("declared", "float32"))
@pytest.mark.parametrize("dtype", (ttnn.bfloat16, ttnn.float32, ttnn.int32))
def test_the_callers_memory_is_never_shared(precision: str, dtype) -> None:
    device = open_checked(precision)
    source = torch.ones(32, 32, dtype=torch.int64 if dtype is ttnn.int32 else torch.float32)
    there, host = rows(device, source, dtype), ttnn.from_torch(source, dtype=dtype)
    moved = ttnn.to_device(host, device)
    source.fill_(7)
    read = ttnn.to_torch(there)
    read.fill_(9)

    for tensor in (there, host, moved):
        assert set(ttnn.to_torch(tensor).flatten().tolist()) == {1}


def test_a_copy_in_place_keeps_the_address_and_allocates_nothing() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(64, 64))
    address, made = tensor.buffer_address(), device.allocator(ttnn.BufferType.DRAM).allocations
    ttnn.copy_host_to_device_tensor(
        ttnn.from_torch(torch.ones(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT), tensor
    )

    assert tensor.buffer_address() == address and (ttnn.to_torch(tensor) == 1).all()
    assert device.allocator(ttnn.BufferType.DRAM).allocations == made


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "rule"),
    (
        ((64, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, "shapes differ"),
        ((64, 64), ttnn.float32, ttnn.TILE_LAYOUT, "dtypes differ"),
        ((64, 64), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, "layouts differ"),
    ),
)
def test_a_copy_in_place_needs_equal_specs(shape, dtype, layout, rule: str) -> None:
    tensor = tiles(open_checked(), drawn(64, 64))
    with pytest.raises(ttnn.EmulatorError, match=rule):
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.ones(shape), dtype=dtype, layout=layout), tensor)


@pytest.mark.parametrize(
    ("value", "dtype"), ((-1, ttnn.uint32), (2**32, ttnn.uint32), (2**31, ttnn.int32), (65536, ttnn.uint16))
)
def test_integers_that_do_not_fit_are_refused(value: int, dtype) -> None:
    with pytest.raises(ttnn.EmulatorError, match=f"value {value} does not fit"):
        rows(open_checked(), torch.tensor([[value]]), dtype)


def test_fractions_are_refused_in_integers() -> None:
    with pytest.raises(ttnn.EmulatorError, match="fraction"):
        rows(open_checked(), torch.tensor([[0.5]]), ttnn.int32)


def test_block_floats_exist_in_tiles_only() -> None:
    with pytest.raises(ttnn.EmulatorError, match="tiles only"):
        rows(open_checked(), drawn(32, 32), ttnn.bfloat8_b)


def test_memory_without_values_reads_as_nan() -> None:
    device = open_checked()
    assert ttnn.to_torch(ttnn.empty((2, 2), device=device)).isnan().all()
    table = ttnn.empty((1, 8), dtype=ttnn.int32, device=device)
    assert (ttnn.to_torch(table) > 2**30).all()  # no index of anything


def test_transfers_are_counted_with_their_bytes() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(64, 64))
    ttnn.to_torch(tensor)

    counters = device.counters
    assert (counters.uploads, counters.upload_bytes, counters.reads, counters.read_bytes) == (1, 8192, 1, 8192)
    assert counters.operations == 0


def test_padding_is_in_the_padded_shape_only() -> None:
    tensor = tiles(open_checked(), drawn(3, 5, 33))

    assert tensor.shape == (3, 5, 33) and list(tensor.padded_shape) == [3, 32, 64] and tensor.shape[-1] == 33
    with pytest.raises(TypeError):
        tensor.shape[0:2]

"""Addresses, exhaustion, and when memory is given back."""

from __future__ import annotations

import gc

import pytest
import torch

import runtime.emulator as ttnn
from tests.support.emulated import N150, drawn, open_checked, rows, tiles


def allocate(device: ttnn.Device, pages: int, place=ttnn.DRAM_MEMORY_CONFIG, dtype=ttnn.bfloat16) -> ttnn.Tensor:
    return ttnn.empty((1, 1, 32 * pages, 32), dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device, memory_config=place)


def test_addresses_are_those_of_the_library() -> None:
    """Pages in lock-step over 12 banks from 1 MiB + 64, first fit: seen on the mock device in this order."""
    device = open_checked()
    base, page = 1048640, 2048
    held = [allocate(device, 12 * pages) for pages in (10, 1, 6, 1, 4, 1, 3, 1, 5, 1, 8, 1)]
    starts = [(tensor.buffer_address() - base) // page for tensor in held]
    assert starts == [0, 10, 11, 17, 18, 22, 23, 26, 27, 32, 33, 41]

    for index in (10, 4, 0, 8, 2, 6):
        held[index] = None
    refilled = [allocate(device, 12 * pages) for pages in (4, 3, 5, 4, 2, 2, 1, 1, 9, 1, 1)]
    assert [(tensor.buffer_address() - base) // page for tensor in refilled] == [0, 4, 11, 18, 7, 23, 9, 16, 42, 25, 27]


@pytest.mark.parametrize("order", ((0, 1), (1, 0)))
def test_freed_neighbours_become_one_range(order: tuple[int, int]) -> None:
    device = open_checked()
    held = [allocate(device, 12 * pages) for pages in (2, 3, 1)]
    address = held[0].buffer_address()
    for index in order:
        ttnn.deallocate(held[index])

    assert allocate(device, 12 * 5).buffer_address() == address


def test_picking_rows_of_tiles_takes_a_copy_in_rows_while_it_runs() -> None:
    """Addresses seen on the mock device: the copy lies between the indices and the result."""
    device = open_checked()
    hidden, picks = tiles(device, drawn(1, 1, 128, 576)), rows(device, [[0] * 32], ttnn.uint32)
    assert (hidden.buffer_address(), picks.buffer_address()) == (1048640, 1060928)

    assert ttnn.embedding(picks, hidden, layout=ttnn.TILE_LAYOUT).buffer_address() == 1073728
    assert device.memory_view().total_bytes_allocated_per_bank == 12288 + 128
    assert device.memory_view().peak_bytes_allocated_per_bank == 12288 + 128 + 12672 + 4096


def test_l1_is_handed_out_from_the_top() -> None:
    device = open_checked()
    held = [allocate(device, 70, ttnn.L1_MEMORY_CONFIG) for _ in range(3)]
    assert [tensor.buffer_address() for tensor in held] == [1495040, 1490944, 1486848]
    held[1] = None

    again = [allocate(device, pages, ttnn.L1_MEMORY_CONFIG) for pages in (1, 70, 64)]
    assert [tensor.buffer_address() for tensor in again] == [1492992, 1482752, 1490944]


@pytest.mark.parametrize(
    ("dtype", "bytes_of_a_tile"),
    ((ttnn.bfloat16, 2048), (ttnn.bfloat8_b, 1088), (ttnn.bfloat4_b, 576), (ttnn.float32, 4096), (ttnn.uint32, 4096)),
)
def test_a_tile_takes_the_bytes_of_its_type(dtype, bytes_of_a_tile: int) -> None:
    device = open_checked()
    tensor = allocate(device, 25, dtype=dtype)  # three in the fullest bank

    assert device.memory_view().total_bytes_allocated_per_bank == 3 * bytes_of_a_tile
    assert tensor.shape == [1, 1, 800, 32]


def test_rows_are_padded_to_the_alignment_of_the_bank() -> None:
    device = open_checked()
    first, second = rows(device, [[0] * 7], ttnn.int32), rows(device, [[0] * 7], ttnn.int32)

    assert second.buffer_address() - first.buffer_address() == 32  # 28 bytes


def test_exhausted_dram_is_refused_with_the_bank_figures() -> None:
    device = open_checked()
    held = [allocate(device, 2**19) for _ in range(11)]
    with pytest.raises(ttnn.EmulatorError) as refusal:
        allocate(device, 2**19)

    for figure in ("1073741824 B", "12 banks", "89479168 B", "1072693184 B", "984270848 B", "88422336 B"):
        assert figure in str(refusal.value)
    assert device.memory_view().largest_contiguous_bytes_free_per_bank == 88422336
    held.pop()
    allocate(device, 2**19)


def test_an_operation_that_does_not_fit_leaves_nothing_behind() -> None:
    device = open_checked()
    fused = ttnn.empty((1, 1, 32 * 2**14, 96 * 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    held = [allocate(device, 2**19) for _ in range(6)]
    before = device.memory_view()
    with pytest.raises(ttnn.EmulatorError, match="nlp_create_qkv_heads: out of DRAM memory"):
        ttnn.experimental.nlp_create_qkv_heads(fused, num_heads=92, num_kv_heads=2, transpose_k_heads=False)

    assert device.memory_view().total_bytes_allocated_per_bank == before.total_bytes_allocated_per_bank
    assert len(device.live_tensors()) == len(held) + 1


def test_the_trace_region_is_taken_from_every_bank() -> None:
    whole = open_checked().memory_view().total_bytes_per_bank
    assert [
        whole - open_checked(trace_region_size=size).memory_view().total_bytes_per_bank for size in (2**20, 3_000_000)
    ] == [
        90112,
        253952,
    ]  # a twelfth, in units of 4096, as the library reserves it


def test_the_peak_is_kept_until_it_is_reset() -> None:
    device = open_checked()
    first = allocate(device, 24)
    ttnn.deallocate(first)
    assert device.memory_view().peak_bytes_allocated_per_bank == 4096

    device.reset_peak()
    assert device.memory_view().peak_bytes_allocated_per_bank == 0


def test_a_tensor_is_freed_with_its_last_reference() -> None:
    device = open_checked()
    gc.disable()  # by count of references, not by a collection
    try:
        first = tiles(device, drawn(32, 32))
        address = first.buffer_address()
        again = ttnn.add(first, first)
        del first
        assert [buffer.address for buffer in device.live_tensors()] == [again.buffer_address()]
        assert tiles(device, drawn(32, 32)).buffer_address() == address
    finally:
        gc.enable()


def test_a_view_keeps_its_memory_alive() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(64, 64))
    seen = ttnn.reshape(ttnn.unsqueeze_to_4D(tensor), [1, 1, 64, 64])
    assert seen.buffer_address() == tensor.buffer_address()
    del tensor
    assert len(device.live_tensors()) == 1 and torch.isfinite(ttnn.to_torch(seen).float()).all()
    del seen
    assert device.live_tensors() == []


def test_deallocation_frees_memory_under_every_handle() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(64, 64))
    seen = ttnn.unsqueeze_to_4D(tensor)
    ttnn.deallocate(tensor, force=False)
    assert tensor.is_allocated() and seen.is_allocated()

    ttnn.deallocate(tensor)
    assert device.live_tensors() == [] and not seen.is_allocated()
    for use in (
        lambda: ttnn.add(seen, seen),
        lambda: ttnn.to_torch(tensor),
        lambda: tensor.buffer_address(),
        lambda: ttnn.copy_host_to_device_tensor(
            ttnn.from_torch(drawn(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT), tensor
        ),
    ):
        with pytest.raises(ttnn.EmulatorError, match="not allocated"):
            use()


def test_freeing_twice_is_counted() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(32, 32))
    ttnn.deallocate(tensor)
    assert device.counters.double_frees == 0
    ttnn.deallocate(tensor)
    assert device.counters.double_frees == 1


def test_program_buffers_must_not_reach_the_tensors_in_l1() -> None:
    device = open_checked()
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        transpose_mcast=False,
    )
    compute = ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=True, packer_l1_acc=True)
    left, right = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64, seed=1))
    ttnn.linear(left, right, program_config=program, compute_kernel_config=compute)
    full = allocate(device, 64 * ((N150.l1_bank_bytes - 8192) // 2048), ttnn.L1_MEMORY_CONFIG)
    with pytest.raises(ttnn.EmulatorError, match="run into the L1 tensor"):  # although its program is compiled
        ttnn.linear(left, right, program_config=program, compute_kernel_config=compute)
    ttnn.deallocate(full)
    ttnn.linear(left, right, program_config=program, compute_kernel_config=compute)

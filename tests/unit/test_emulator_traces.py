"""Traces: recorded once, replayed onto the same addresses, with everything that goes wrong on silicon."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.trace import trace_bytes
from tests.support.emulated import drawn, open_checked, rows, tiles

ROOM = trace_bytes(32, 64)


@pytest.fixture
def device() -> ttnn.Device:
    """Without the strict rules, which refuse what these tests look at: what silicon would do."""
    opened = open_checked(trace_region_size=ROOM)
    opened.strict_traces = False
    return opened


def host(values: torch.Tensor) -> ttnn.Tensor:
    return ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)


def body(source: ttnn.Tensor, weight: ttnn.Tensor) -> ttnn.Tensor:
    """Two products and a sum, whose intermediate results become the trace's scratch."""
    product = ttnn.linear(source, weight)
    return ttnn.add(ttnn.linear(product, weight), source)


def capture(device: ttnn.Device, run: Callable[[], ttnn.Tensor]) -> tuple[int, ttnn.Tensor]:
    run()  # compiles
    trace = ttnn.begin_trace_capture(device)
    result = run()
    ttnn.end_trace_capture(device, trace)
    return trace, result


def test_a_replay_sees_refreshed_inputs_and_equals_the_eager_run(device: ttnn.Device) -> None:
    source, weight = tiles(device, torch.zeros(64, 64)), tiles(device, drawn(64, 64, seed=1))
    trace, result = capture(device, lambda: body(source, weight))
    assert ttnn.to_torch(result).isnan().all()  # nothing has run yet
    for seed in (2, 3):
        ttnn.copy_host_to_device_tensor(host(drawn(64, 64, seed=seed)), source)
        made = device.allocator(ttnn.BufferType.DRAM).allocations
        ttnn.execute_trace(device, trace)
        assert device.allocator(ttnn.BufferType.DRAM).allocations == made  # a replay allocates nothing
        assert torch.equal(ttnn.to_torch(result), ttnn.to_torch(body(source, weight)))
    assert device.counters.replays == 2


def test_operations_do_not_run_during_capture(device: ttnn.Device) -> None:
    cache, new = tiles(device, torch.zeros(4, 1, 32, 64)), tiles(device, torch.ones(1, 1, 32, 64))
    table = rows(device, [[-1]], ttnn.int32)
    ttnn.experimental.paged_fill_cache(cache, new, table)
    trace = ttnn.begin_trace_capture(device)
    ttnn.experimental.paged_fill_cache(cache, new, table)
    ttnn.end_trace_capture(device, trace)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.tensor([[2]]), dtype=ttnn.int32), table)
    assert (ttnn.to_torch(cache) == 0).all()
    ttnn.execute_trace(device, trace)

    assert (ttnn.to_torch(cache)[2] == 1).all() and (ttnn.to_torch(cache)[[0, 1, 3]] == 0).all()


def test_values_are_checked_at_every_replay(device: ttnn.Device) -> None:
    table, ids = rows(device, drawn(8, 32)), rows(device, [[0] * 32], ttnn.uint32)
    trace, _ = capture(device, lambda: ttnn.embedding(ids, table, layout=ttnn.TILE_LAYOUT))
    ttnn.execute_trace(device, trace)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((1, 32), 8), dtype=ttnn.uint32), ids)
    with pytest.raises(ttnn.EmulatorError, match="index 8 is outside"):
        ttnn.execute_trace(device, trace)


def test_a_replay_destroys_what_was_allocated_on_its_scratch(device: ttnn.Device) -> None:
    source, weight = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64, seed=1))
    trace, result = capture(device, lambda: body(source, weight))
    over, index = tiles(device, torch.ones(64, 64)), rows(device, [[1] * 512] * 4, ttnn.int32)
    beyond = tiles(device, torch.ones(256, 256))
    ttnn.execute_trace(device, trace)

    assert ttnn.to_torch(over).isnan().all()
    assert (ttnn.to_torch(index) > 2**30).all()
    assert device.counters.destroyed_tensors == 2
    for tensor in (source, weight, result):
        assert not ttnn.to_torch(tensor).isnan().any()
    assert (ttnn.to_torch(beyond) == 1).all()


def test_the_result_of_a_trace_that_nobody_holds_is_scratch_too(device: ttnn.Device) -> None:
    source, weight = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64, seed=1))
    trace, result = capture(device, lambda: body(source, weight))
    address = result.buffer_address()
    del result
    held = [tiles(device, torch.ones(32, 32)) for _ in range(4)]
    assert address in [tensor.buffer_address() for tensor in held]
    ttnn.execute_trace(device, trace)

    assert [bool(ttnn.to_torch(tensor).isnan().any()) for tensor in held] == [True, True, True, False]


def test_freed_inputs_refuse_the_replay(device: ttnn.Device) -> None:
    source, weight = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64, seed=1))
    trace, _ = capture(device, lambda: body(source, weight))
    ttnn.deallocate(weight)
    with pytest.raises(ttnn.EmulatorError, match=r"in linear, which was freed after the capture"):
        ttnn.execute_trace(device, trace)


@pytest.mark.parametrize(
    "access",
    (
        lambda device, tensor: tiles(device, torch.zeros(32, 32)),
        lambda device, tensor: ttnn.zeros((1, 1, 32, 32), device=device),
        lambda device, tensor: ttnn.to_device(host(torch.zeros(32, 32)), device),
        lambda device, tensor: ttnn.copy_host_to_device_tensor(host(torch.zeros(64, 64)), tensor),
        lambda device, tensor: ttnn.to_torch(tensor),
        lambda device, tensor: ttnn.from_device(tensor),
        lambda device, tensor: ttnn.copy_device_to_host_tensor(tensor, host(torch.zeros(64, 64))),
    ),
)
def test_the_host_stays_away_during_capture(device: ttnn.Device, access: Callable) -> None:
    tensor = tiles(device, drawn(64, 64))
    trace = ttnn.begin_trace_capture(device)
    with pytest.raises(ttnn.EmulatorError, match="during trace capture"):
        access(device, tensor)
    ttnn.end_trace_capture(device, trace)


def test_a_program_must_be_compiled_before_it_is_captured(device: ttnn.Device) -> None:
    tensor = tiles(device, drawn(64, 64))
    trace = ttnn.begin_trace_capture(device)
    with pytest.raises(ttnn.EmulatorError, match="add: a program may not be compiled during trace capture"):
        ttnn.add(tensor, tensor)
    ttnn.end_trace_capture(device, trace)
    assert device.num_program_cache_entries() == 0


def test_a_trace_beyond_its_region_is_refused_with_both_figures() -> None:
    device = open_checked(trace_region_size=ROOM)
    tensor = tiles(device, drawn(64, 64))
    ttnn.add(tensor, tensor)
    trace = ttnn.begin_trace_capture(device)
    for _ in range(33):
        ttnn.add(tensor, tensor)
    with pytest.raises(ttnn.EmulatorError, match=f"about {trace_bytes(33, 64)} B .* trace region has {ROOM} B"):
        ttnn.end_trace_capture(device, trace)
    with pytest.raises(ttnn.EmulatorError, match=f"no trace {trace}"):
        ttnn.execute_trace(device, trace)
    ttnn.end_trace_capture(device, ttnn.begin_trace_capture(device))  # the failed one is over


def test_traces_share_the_region(device: ttnn.Device) -> None:
    tensor = tiles(device, drawn(64, 64))
    traces = [capture(device, lambda: [ttnn.add(tensor, tensor) for _ in range(16)][-1])[0] for _ in range(2)]
    with pytest.raises(ttnn.EmulatorError, match="beside the"):
        capture(device, lambda: ttnn.add(tensor, tensor))
    ttnn.release_trace(device, traces[0])
    capture(device, lambda: ttnn.add(tensor, tensor))
    with pytest.raises(ttnn.EmulatorError, match=f"no trace {traces[0]}"):
        ttnn.release_trace(device, traces[0])


def test_one_capture_at_a_time(device: ttnn.Device) -> None:
    trace = ttnn.begin_trace_capture(device)
    with pytest.raises(ttnn.EmulatorError, match=f"trace {trace} is being captured"):
        ttnn.begin_trace_capture(device)
    with pytest.raises(ttnn.EmulatorError, match=f"trace {trace} is being captured"):
        ttnn.execute_trace(device, trace)
    with pytest.raises(ttnn.EmulatorError, match="is not being captured"):
        ttnn.end_trace_capture(device, trace + 1)
    ttnn.end_trace_capture(device, trace)


def test_compiling_under_a_live_trace_is_counted(device: ttnn.Device) -> None:
    """B03: the binaries of a program that is compiled late may land on a trace's memory."""
    tensor = tiles(device, drawn(64, 64))
    trace, _ = capture(device, lambda: ttnn.add(tensor, tensor))
    assert device.counters.compiles_under_trace == 0
    ttnn.mul(tensor, tensor)
    assert device.counters.compiles_under_trace == 1
    ttnn.release_trace(device, trace)
    ttnn.linear(tensor, tensor)
    assert device.counters.compiles_under_trace == 1


def test_a_replay_keeps_no_intermediate_values(device: ttnn.Device) -> None:
    source, weight = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64, seed=1))
    trace, result = capture(device, lambda: body(source, weight))
    ttnn.execute_trace(device, trace)
    recording = device.traces[trace]

    assert [buffer.values is None for buffer in recording.outputs.values()] == [True, True, False]
    assert result.is_allocated()


def test_memory_asked_for_within_a_capture_belongs_to_the_trace() -> None:
    """As a result of an operation does: freed in the capture, it is there again in every replay, and holds nothing before."""
    device = open_checked(trace_region_size=1 << 24)
    source = tiles(device, drawn(32, 64))

    def recorded() -> ttnn.Tensor:
        made = ttnn.empty((32, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT, device=device)
        total = ttnn.add(source, made)
        ttnn.deallocate(made)
        return total

    recorded()
    trace = ttnn.begin_trace_capture(device)
    total = recorded()
    ttnn.end_trace_capture(device, trace)
    for _ in range(2):
        ttnn.execute_trace(device, trace)
        assert ttnn.to_torch(total).isnan().all()
    ttnn.release_trace(device, trace)
    ttnn.close_device(device)

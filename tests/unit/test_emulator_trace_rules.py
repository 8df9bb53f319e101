"""Traces on the emulated device: what may be allocated, held and compiled while they live, and what a replay leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.errors import EmulatorError
from runtime.tables import Board

BOARD = Board("n150", "wormhole_b0", (8, 8), 12, 1072693184, 32, 1393312, 1499136)
SHAPE = (1, 1, 32, 64)


@pytest.fixture
def device() -> Any:
    return ttnn.open_device(board=BOARD, trace_region_size=2**20)


def upload(device: Any, value: float = 1.0, shape: tuple[int, ...] = SHAPE) -> Any:
    return ttnn.from_torch(torch.full(shape, value), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def body(tensor: Any) -> Any:
    doubled = ttnn.add(tensor, tensor)
    return ttnn.exp(doubled)


def capture(device: Any, run: Callable[..., Any], *inputs: Any) -> tuple[int, Any]:
    trace = ttnn.begin_trace_capture(device)
    output = run(*inputs)
    ttnn.end_trace_capture(device, trace)
    return trace, output


@pytest.fixture
def captured(device: Any) -> tuple[Any, int, Any]:
    """A persistent input, and the trace of `body` over it with its output."""
    tensor = upload(device)
    body(tensor)
    return tensor, *capture(device, body, tensor)


def refresh(tensor: Any, value: float) -> None:
    host = ttnn.from_torch(torch.full(tuple(tensor.shape), value), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, tensor)


def test_fault_b02_an_allocation_between_two_captures_is_refused_with_its_line(device: Any, captured: Any) -> None:
    ttnn.deallocate(ttnn.zeros(SHAPE, layout=ttnn.TILE_LAYOUT, device=device))  # freed at once, which is not enough
    line = sys._getframe().f_lineno - 1

    with pytest.raises(
        EmulatorError, match=rf"\[1, 1, 32, 64\] BFLOAT16 .* zeros at {__file__}:{line} .*before the first"
    ):
        ttnn.begin_trace_capture(device)
    assert not device.capturing


def test_s000_40_what_was_allocated_before_the_first_capture_serves_all_traces(device: Any) -> None:
    first, second = upload(device, 1.0), upload(device, 0.0)
    body(first)
    traces = [capture(device, body, tensor) for tensor in (first, second)]

    for trace, output in traces:
        ttnn.execute_trace(device, trace)
        found = ttnn.to_torch(output).float().unique().tolist()
        assert found == [7.375 if output is traces[0][1] else 1.0]
    assert device.counters.destroyed_tensors == 0


def test_s000_40_a_tensor_that_is_still_wanted_at_a_replay_is_refused_with_its_line_and_age(
    device: Any, captured: Any
) -> None:
    _, trace, output = captured
    ttnn.execute_trace(device, trace)
    result = ttnn.exp(output)
    line = sys._getframe().f_lineno - 1
    ttnn.deallocate(ttnn.add(output, output))

    with pytest.raises(
        EmulatorError, match=rf"exp at {__file__}:{line} \(2 operations and 0 replays ago\).*not read"
    ) as refusal:
        ttnn.execute_trace(device, trace)
    assert "(1 such tensors in all)" in str(refusal.value)
    assert device.counters.replays == 1
    assert ttnn.to_torch(result).isfinite().all(), "a refused replay writes nothing"


def test_s000_40_a_result_that_was_read_or_freed_lets_the_next_replay_run(device: Any, captured: Any) -> None:
    _, trace, output = captured
    ttnn.execute_trace(device, trace)
    read, freed = upload(device, 1.0, (1, 1, 32, 1024)), ttnn.exp(output)  # wider than any hole that the capture left
    ttnn.to_torch(read)
    ttnn.deallocate(freed)

    ttnn.execute_trace(device, trace)

    assert device.counters.replays == 2
    assert ttnn.to_torch(read).isnan().all(), "nobody may rely on it after the replay, wherever it lies"


def test_what_is_written_after_it_was_read_is_wanted_again(device: Any, captured: Any) -> None:
    _, trace, _ = captured
    late = upload(device)
    ttnn.to_torch(late)
    refresh(late, 2.0)

    with pytest.raises(EmulatorError, match="from_torch at .*not read"):
        ttnn.execute_trace(device, trace)


def test_fault_b02_a_tensor_from_before_the_first_capture_is_neither_refused_nor_changed(device: Any) -> None:
    early, tensor = upload(device, 3.0), upload(device)
    body(tensor)
    trace, _ = capture(device, body, tensor)

    ttnn.execute_trace(device, trace)

    assert ttnn.to_torch(early).float().unique().tolist() == [3.0]


def test_the_output_of_a_released_trace_counts_as_a_transient_of_the_others(device: Any) -> None:
    tensor = upload(device)
    body(tensor)
    kept, _ = capture(device, body, tensor)
    gone, orphan = capture(device, body, tensor)
    ttnn.execute_trace(device, gone)
    ttnn.release_trace(device, gone)

    with pytest.raises(EmulatorError, match=f"exp at {__file__}"):
        ttnn.execute_trace(device, kept)
    ttnn.deallocate(orphan)
    ttnn.execute_trace(device, kept)


def test_after_the_last_release_the_device_is_free_again(device: Any, captured: Any) -> None:
    tensor, trace, _ = captured
    upload(device)
    ttnn.release_trace(device, trace)
    late = upload(device)

    trace, output = capture(device, body, late)
    ttnn.execute_trace(device, trace)

    assert ttnn.to_torch(output).isfinite().all()


def test_a_capture_that_does_not_fit_leaves_no_rule_behind(device: Any) -> None:
    device.trace_region_size = 0
    tensor = upload(device)
    body(tensor)
    failed = ttnn.begin_trace_capture(device)
    kept = body(tensor)
    with pytest.raises(EmulatorError, match="trace_region_size"):
        ttnn.end_trace_capture(device, failed)

    device.trace_region_size = 2**20
    late = upload(device)
    trace, _ = capture(device, body, late)
    ttnn.execute_trace(device, trace)
    assert kept.is_allocated()


def test_s000_40_refresh_and_replay_allocate_nothing(device: Any, captured: Any) -> None:
    tensor, trace, output = captured
    before = device.counters.allocations
    live = device.live_tensors()

    for value in (0.0, 1.0):
        refresh(tensor, value)
        ttnn.execute_trace(device, trace)

    assert device.counters.allocations == before > 0
    assert device.live_tensors() == live
    assert ttnn.to_torch(output).float().unique().tolist() == [7.375]


def test_every_allocation_is_counted(device: Any) -> None:
    tensor = upload(device)
    assert device.counters.allocations == 1
    ttnn.deallocate(body(tensor))
    assert device.counters.allocations == 3
    ttnn.topk(tensor, 32)
    assert device.counters.allocations == 5
    ttnn.reshape(tensor, (1, 2, 16, 64))
    assert device.counters.allocations == 6
    ttnn.reshape(tensor, (1, 32, 64))
    assert device.counters.allocations == 6, "a view is not an allocation"


def test_s000_47_an_unseen_program_is_refused_while_a_trace_lives_and_a_seen_one_runs(
    device: Any, captured: Any
) -> None:
    tensor, trace, _ = captured
    programs = device.num_program_cache_entries()

    with pytest.raises(EmulatorError, match="log: a new program may not be compiled while 1 traces are live"):
        ttnn.log(tensor)
    assert (device.num_program_cache_entries(), device.counters.compiles_under_trace) == (programs, 0)

    ttnn.deallocate(body(tensor))
    ttnn.execute_trace(device, trace)
    ttnn.release_trace(device, trace)
    ttnn.log(tensor)


def test_fault_b03_compiling_under_a_trace_is_let_through_only_where_it_is_asked_for_and_then_counted(
    device: Any, captured: Any
) -> None:
    tensor, _, _ = captured
    with device.compiling():
        ttnn.log(tensor)
    with pytest.raises(EmulatorError, match="topk: a new program"):
        ttnn.topk(tensor, 32)

    assert device.counters.compiles_under_trace == 1


def test_without_strict_traces_a_replay_destroys_what_lies_on_its_scratch(device: Any, captured: Any) -> None:
    tensor, trace, _ = captured
    device.strict_traces = False
    ttnn.log(tensor)
    late = upload(device, 5.0)  # takes the place of the doubled tensor, which was freed within the recording

    ttnn.execute_trace(device, trace)

    assert ttnn.to_torch(late).isnan().all()
    assert (device.counters.destroyed_tensors, device.counters.compiles_under_trace) == (1, 1)
    ttnn.begin_trace_capture(device)


def test_an_output_on_the_scratch_of_another_trace_is_spoiled_but_not_lost(device: Any) -> None:
    tensor, narrow = upload(device), upload(device, 0.0, (1, 1, 32, 32))
    body(tensor)
    ttnn.exp(narrow)
    first, _ = capture(device, body, tensor)
    second, output = capture(device, ttnn.exp, narrow)  # lies where the doubled tensor of the first was

    ttnn.execute_trace(device, second)
    ttnn.execute_trace(device, first)
    assert ttnn.to_torch(output).isnan().all()
    ttnn.execute_trace(device, second)

    assert ttnn.to_torch(output).float().unique().tolist() == [1.0]
    assert device.counters.destroyed_tensors == 0


def test_a_replay_logs_its_operations_with_the_lines_of_the_capture(device: Any) -> None:
    tensor = upload(device)
    with device.record_operations() as eager:
        body(tensor)
    with device.record_operations() as recorded:
        trace, _ = capture(device, body, tensor)
    with device.record_operations() as replayed:
        ttnn.execute_trace(device, trace)

    assert eager == recorded == replayed
    assert [operation.name for operation in replayed] == ["add", "exp"]
    assert {operation.line for operation in replayed} == {
        body.__code__.co_firstlineno + 1,
        body.__code__.co_firstlineno + 2,
    }
    assert [operation.replayed for operation in eager + recorded + replayed] == [False] * 4 + [True] * 2


def test_a_replay_counts_once_and_not_by_its_operations(device: Any, captured: Any) -> None:
    operations = device.counters.operations
    ttnn.execute_trace(device, captured[1])

    assert (device.counters.operations, device.counters.replays) == (operations, 1)

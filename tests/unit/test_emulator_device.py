"""The device as a test bench: programs, the log of operations, counters, injected faults."""

from __future__ import annotations

import inspect

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.dispatch import Plan, launch
from tests.support.emulated import COMPUTE, N150, drawn, open_checked, rows, tiles


def test_programs_are_counted_by_what_they_are_compiled_for() -> None:
    device = open_checked()
    a, b, longer = tiles(device, drawn(64, 64)), tiles(device, drawn(64, 64)), tiles(device, drawn(96, 64))
    counts = []
    for call in (
        lambda: ttnn.add(a, b),
        lambda: ttnn.add(b, a),  # the same program on other tensors
        lambda: ttnn.add(longer, longer),
        lambda: ttnn.add(a, b, dtype=ttnn.bfloat8_b),
        lambda: ttnn.mul(a, b),
        lambda: ttnn.linear(a, b),
        lambda: ttnn.linear(a, b, compute_kernel_config=COMPUTE),
        lambda: ttnn.unsqueeze_to_4D(a),  # a view is no program
    ):
        call()
        counts.append(device.num_program_cache_entries())

    assert counts == [1, 1, 2, 3, 4, 5, 6, 6]


def test_a_refused_program_is_not_counted() -> None:
    device = open_checked()
    with pytest.raises(ttnn.EmulatorError, match="both inputs must have the same sizes"):
        ttnn.add(tiles(device, drawn(64, 64)), tiles(device, drawn(32, 64)))
    assert device.num_program_cache_entries() == 0 and device.counters.operations == 0


def test_a_chunk_start_is_in_the_program_when_it_is_a_number_only() -> None:
    device = open_checked()
    query, cache = tiles(device, drawn(1, 2, 64, 32)), tiles(device, drawn(16, 1, 32, 32))
    table = rows(device, [list(range(16))], ttnn.int32)
    attend = ttnn.transformer.chunked_scaled_dot_product_attention
    for start in (0, 64):
        attend(query, cache, cache, table, start)
    assert device.num_program_cache_entries() == 2
    for start in (0, 64):
        attend(query, cache, cache, table, chunk_start_idx_tensor=rows(device, [start], ttnn.int32))
    assert device.num_program_cache_entries() == 3


def test_every_operation_is_logged_with_the_line_that_called_it() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(64, 64))
    ttnn.add(tensor, tensor)  # before the log
    with device.record_operations() as log:
        ttnn.linear(tensor, tensor); line = inspect.currentframe().f_lineno  # fmt: skip  # noqa: E702
        ttnn.transformer.scaled_dot_product_attention(*[ttnn.unsqueeze_to_4D(tensor)] * 3)
    ttnn.add(tensor, tensor)

    assert [(entry.name, entry.line - line) for entry in log] == [("linear", 0), ("scaled_dot_product_attention", 1)]
    assert {entry.file for entry in log} == {__file__}
    assert log[0].outputs[0].shape == (64, 64)
    assert device.counters.operations == 4


def test_faults_can_be_injected_before_any_call() -> None:
    device = open_checked(trace_region_size=2**20)
    tensor = tiles(device, drawn(64, 64))
    calls: list[str] = []

    def fail(name: str) -> None:
        calls.append(name)
        raise OSError(name)

    device.before_operation = fail
    live = device.live_tensors()
    for call in (
        lambda: ttnn.add(tensor, tensor),
        lambda: tiles(device, drawn(32, 32)),
        lambda: ttnn.empty((1, 32), device=device),
        lambda: ttnn.to_torch(tensor),
        lambda: ttnn.copy_host_to_device_tensor(
            ttnn.from_torch(drawn(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT), tensor
        ),
        lambda: ttnn.deallocate(tensor),
        lambda: ttnn.begin_trace_capture(device),
        lambda: ttnn.synchronize_device(device),
    ):
        with pytest.raises(OSError):
            call()

    assert calls == [
        "add",
        "from_torch",
        "allocate_tensor_on_device",
        "to_torch",
        "copy_host_to_device_tensor",
        "deallocate",
        "begin_trace_capture",
        "synchronize_device",
    ]
    assert device.live_tensors() == live and device.counters.operations == 0


def test_a_value_that_the_type_cannot_hold_is_found() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(32, 32))

    def plan(device: ttnn.Device, spec) -> Plan:
        return Plan((spec,), moves=True)  # untrue: the values are scaled

    with pytest.raises(ttnn.EmulatorError, match="broken: left .* values in .* that BFLOAT16 cannot hold"):
        launch("broken", (tensor,), (), plan, lambda values: values * 1.001)


def test_a_result_of_another_shape_than_planned_is_found() -> None:
    device = open_checked()
    with pytest.raises(ttnn.EmulatorError, match=r"broken: computed a result of shape \[32, 16\]"):
        launch(
            "broken",
            (tiles(device, drawn(32, 32)),),
            (),
            lambda device, spec: Plan((spec,)),
            lambda values: values[:, :16],
        )


def test_outputs_that_are_windows_on_one_result_are_written_apart() -> None:
    device = open_checked("float32")  # rounding would separate them
    source = tiles(device, torch.zeros(2, 1, 32, 64))

    def halves(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fresh = values + 1
        return fresh, fresh

    first, second = launch("twins", (source,), (), lambda device, spec: Plan((spec, spec)), halves)
    new, table = tiles(device, torch.full((1, 1, 32, 64), 9.0)), rows(device, [[0]], ttnn.int32)
    ttnn.experimental.paged_fill_cache(first, new, table)

    assert (ttnn.to_torch(first)[0] == 9).all() and (ttnn.to_torch(second) == 1).all()


def test_a_closed_device_refuses_everything() -> None:
    device = open_checked()
    tensor = tiles(device, drawn(32, 32))
    ttnn.close_device(device)
    for call in (lambda: ttnn.add(tensor, tensor), lambda: ttnn.to_torch(tensor), lambda: tiles(device, drawn(32, 32))):
        with pytest.raises(ttnn.EmulatorError, match="is closed"):
            call()


def test_host_tensors_are_no_operands() -> None:
    host = ttnn.from_torch(drawn(32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    with pytest.raises(ttnn.EmulatorError, match="add: .* is on the host"):
        ttnn.add(host, host)
    with pytest.raises(TypeError, match="expected a Tensor, got Tensor"):
        ttnn.add(drawn(32, 32), host)


def test_the_device_says_what_it_is() -> None:
    device = open_checked()
    assert device.arch() is ttnn.Arch.WORMHOLE_B0 and device.board is N150
    assert device.compute_with_storage_grid_size() == ttnn.CoreCoord(8, 8)
    assert tiles(device, drawn(32, 32)).device() is device


def test_the_smallest_difference_survives_float32_mode_only() -> None:
    values = torch.full((32, 32), 1 + 2.0**-20)
    doubled = {
        precision: ttnn.to_torch(ttnn.add(*[tiles(open_checked(precision), values)] * 2))
        for precision in ("declared", "float32")
    }
    assert (doubled["declared"] == 2).all() and (doubled["float32"] == 2 + 2.0**-19).all()

"""Ownership: whatever fails, wherever, every tensor is released once and the first error is the one that is seen."""

from __future__ import annotations

import pytest
import torch

from runtime.backend import ttnn
from runtime.errors import CleanupFailed, CleanupRequired
from runtime.resources import Ownership, forget_frames
from tests.support.twins import Rig

CALLS = {
    "single": ([20], {}),
    "batched": ([64, 50, 33], {}),
    "chunked": ([290], {}),
    "cached": ([290], {"start_pos": [128]}),
    "argmax": ([20], {"sampling": "argmax"}),
    "slice": ([256], {"final": False}),
    "two plans": ([20, 100], {"sampling": "argmax"}),
}


class Injected(RuntimeError):
    pass


class Fault:
    """Counts device calls and fails the chosen ones, each with an error of its own."""

    def __init__(self, device, chosen=lambda index, name: False):
        self.names, self.raised, self.chosen = [], [], chosen
        device.before_operation = self

    def __call__(self, name):
        self.names.append(name)
        if self.chosen(len(self.names) - 1, name):
            self.raised.append(Injected(f"{name} {len(self.names) - 1}"))
            raise self.raised[-1]


@pytest.fixture(scope="module")
def rig():
    return Rig()


@pytest.mark.parametrize("name", CALLS)
def test_s000_36_a_fault_at_any_device_call_leaks_nothing_and_is_raised_unchanged(rig, name):
    lengths, options = CALLS[name]
    call = rig.call(lengths)

    def forward():
        try:
            return rig.prefill.prefill_forward(**vars(call), **options)
        finally:
            rig.prefill.reset(0)

    counted = Fault(rig.device)
    expected = forward()
    live = rig.live()
    assert len(counted.names) > 50
    for index in range(len(counted.names)):
        fault = Fault(rig.device, lambda at, _, index=index: at == index)
        with pytest.raises(Injected) as caught:
            forward()
        rig.device.before_operation = None
        assert caught.value is fault.raised[0] and caught.value.cleanup_failures == ()
        released_late = fault.names[index] == "deallocate" and rig.prefill.orphans
        assert rig.prefill.orphans == (1 if released_late else 0)
        rig.prefill.cleanup()
        assert rig.live() == live, (index, fault.names[index])
    again = forward()
    assert again == expected if options.get("final") is False else torch.equal(again, expected)
    assert rig.device.counters.double_frees == 0


def test_s000_37_failed_releases_become_orphans_that_block_new_work_until_cleanup(rig):
    call = rig.call([20])
    live = rig.live()
    fault = Fault(rig.device, lambda _, name: name == "deallocate" or name == "linear")
    with pytest.raises(Injected, match="linear") as caught:
        rig.prefill.prefill_forward(**vars(call))
    orphans = rig.prefill.orphans
    assert orphans == len(fault.raised) - 1 == len(caught.value.cleanup_failures) > 0
    assert caught.value is fault.raised[0] and list(caught.value.cleanup_failures) == fault.raised[1:]
    for attempt in (lambda: rig.prefill.prepare(**vars(call)), lambda: next(rig.prefill.run(()))):
        with pytest.raises(CleanupRequired, match=f"cleanup is required: {orphans} device tensors"):
            attempt()
    with pytest.raises(CleanupFailed, match=f"{orphans} of {orphans} device tensors") as failed:
        rig.prefill.cleanup()
    assert len(failed.value.failures) == orphans == rig.prefill.orphans
    rig.device.before_operation = None
    rig.prefill.cleanup()
    assert rig.prefill.orphans == 0 and rig.live() == live
    counted = Fault(rig.device)
    rig.prefill.cleanup()
    assert counted.names == []
    rig.device.before_operation = None
    rig.prefill.prefill_forward(**vars(call))


def test_s000_54_a_failed_read_releases_its_result_and_stops_the_run(rig):
    call = rig.call([20, 100, 300])
    live = rig.live()
    fault = Fault(rig.device, lambda _, name: name == "to_torch")
    with pytest.raises(Injected, match="to_torch"):
        rig.prefill.prefill_forward(**vars(call))
    assert rig.live() == live and fault.names.count("to_torch") == 1 and fault.names[-1] == "deallocate"
    rig.device.before_operation = None
    results = list(rig.prefill.run(rig.prefill.prepare(**vars(call))))
    Fault(rig.device, lambda _, name: name == "to_torch")
    with pytest.raises(Injected):
        rig.prefill.collect(results)
    rig.device.before_operation = None
    assert rig.live() == live


def test_s000_32_each_chunk_is_staged_run_and_released_before_the_next_and_the_head_runs_once(rig):
    call = rig.call([290])
    counted = Fault(rig.device)
    rig.prefill.prefill_forward(**vars(call))
    rig.device.before_operation = None
    staged = len(rig.module.INPUTS["chunked"](rig.prefill.prepare(**vars(call))[0].chunks[0].shape))
    uploads = [index for index, name in enumerate(counted.names) if name == "from_torch"]
    assert len(uploads) == 3 * staged
    for first in uploads[::staged]:
        assert counted.names[first : first + staged] == ["from_torch"] * staged
    for second in uploads[staged::staged]:
        assert counted.names[second - staged - 1 : second] == ["deallocate"] * (staged + 1)
    # A layer of this twin has one plain matmul, for queries, keys and values; the others are fused with what follows.
    heads = counted.names.count("linear") - 3 * len(rig.weights.layers)
    assert heads == 1 and counted.names.count("to_torch") == 1


def test_s000_33_three_chunks_need_no_more_memory_than_one(rig):
    call = rig.call([384])
    peaks = []
    for start in (0, 256):
        rig.device.reset_peak()
        rig.prefill.prefill_forward(**vars(call), start_pos=[start])
        peaks.append(rig.device.allocator(ttnn.BufferType.DRAM).peak_bytes)
    assert peaks[0] == peaks[1]


def test_s000_39_a_scope_releases_what_was_not_moved_and_owns_a_tensor_once(rig):
    ownership = Ownership()
    made = [ttnn.zeros((32, 32), device=rig.device) for _ in range(3)]
    with ownership.scope() as scope:
        for tensor in (*made, made[0]):
            scope.own(tensor)
        scope.release(made[1])
        assert scope.move(made[0]) == (made[0],)
    assert [tensor.is_allocated() for tensor in made] == [True, False, False]
    assert ownership.release(made[:1]) == [] and rig.device.counters.double_frees == 0


def test_s000_38_a_tensor_whose_release_failed_is_not_released_again_by_its_scope(rig):
    ownership = Ownership()
    tensor = ttnn.zeros((32, 32), device=rig.device)
    fault = Fault(rig.device, lambda index, name: index == 0)
    with pytest.raises(Injected) as caught, ownership.scope() as scope:
        scope.release(scope.own(tensor))
    rig.device.before_operation = None
    assert fault.names == ["deallocate"] and caught.value.cleanup_failures == ()
    assert ownership.orphans == 1 and tensor.is_allocated()
    ownership.cleanup()
    assert not tensor.is_allocated()


def test_s000_37_cleanup_frees_only_what_is_still_held(rig):
    ownership = Ownership()
    tensor = ttnn.zeros((32, 32), device=rig.device)
    Fault(rig.device, lambda index, name: index == 0)
    assert len(ownership.release([tensor])) == 1
    ttnn.deallocate(tensor)
    counted = Fault(rig.device)
    ownership.cleanup()
    rig.device.before_operation = None
    assert ownership.orphans == 0 and counted.names == []


def test_s000_36_a_failure_while_the_rest_is_released_keeps_nothing_back(rig):
    ownership = Ownership()
    rest, result = (ttnn.zeros((32, 32), device=rig.device) for _ in range(2))
    Fault(rig.device, lambda index, name: index == 0)
    with pytest.raises(Injected), ownership.scope() as scope:
        scope.own(rest), scope.own(result)
        scope.move(result)
    rig.device.before_operation = None
    assert rest.is_allocated() and not result.is_allocated() and ownership.orphans == 1
    ownership.cleanup()


def test_frames_of_an_error_and_of_its_causes_are_let_go_of(rig):
    def inner():
        held = ttnn.zeros((32, 32), device=rig.device)
        raise ValueError(held.shape)

    def outer():
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("behind it") from error

    live = rig.live()
    try:
        outer()
    except RuntimeError as error:
        assert rig.live() != live
        forget_frames(error)
        assert rig.live() == live

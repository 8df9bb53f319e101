"""The facade, end to end on a twin: what a call returns, what it refuses, and what it leaves in the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from runtime import errors
from runtime.backend import open_device
from runtime.prefill import Prefill
from tests.support.twins import Rig, relative_error

TOLERANCE = 1e-4


@pytest.fixture
def rig():
    return Rig()


def test_rows_of_every_variant_equal_the_reference_in_the_callers_order(rig):
    call = rig.call([300, 5, 128, 40, 1, 33])
    variants = {chunk.shape.variant for plan in rig.prefill.prepare(**vars(call)) for chunk in plan.chunks}
    assert variants == {"single", "batched", "chunked"}
    found = rig.prefill.prefill_forward(**vars(call))
    assert found.dtype == torch.float32 and relative_error(found, rig.expected(call)) <= TOLERANCE


def test_argmax_returns_the_likeliest_token_of_each_row(rig):
    call = rig.call([40, 200, 3])
    found = rig.prefill.prefill_forward(**vars(call), sampling="argmax")
    assert found.dtype == torch.int64 and found.tolist() == rig.expected(call).argmax(-1).tolist()


def test_results_stream_one_at_a_time_and_the_caller_may_stop(rig):
    call = rig.call([128, 300, 20])
    live = rig.live()
    run = rig.prefill.run(rig.prefill.prepare(**vars(call)))
    first = next(run)
    assert first.source_rows == (0,) and len(rig.live()) == len(live) + 1
    run.close()
    assert rig.prefill.collect([first]).shape == (1, rig.module.VOCABULARY)
    assert rig.live() == live


@pytest.mark.parametrize("start", [0, 32, 64, 96, 288, 300])
def test_s000_08_a_cached_prefix_gives_the_logits_of_the_whole_prompt(rig, start):
    call = rig.call([300])
    whole = rig.prefill.prefill_forward(**vars(call))
    if start % 32:
        with pytest.raises(errors.InvalidStart, match="300 cached tokens end inside a block of 32; give 288"):
            rig.prefill.prefill_forward(**vars(call), start_pos=[start])
    else:
        again = rig.prefill.prefill_forward(**vars(call), start_pos=[start])
        assert relative_error(again, whole) <= 1e-5


def test_b06_a_fully_cached_row_has_real_logits_and_writes_nothing(rig):
    call = rig.call([256, 40])
    first = rig.prefill.prefill_forward(**vars(call))
    before = rig.blocks()
    again = rig.prefill.prefill_forward(**vars(call), start_pos=[256, 0])
    assert relative_error(again, first) <= 1e-5
    assert torch.equal(rig.blocks()[:, call.page_table[0]], before[:, call.page_table[0]])


def test_b52_blocks_of_other_sequences_keep_every_byte(rig):
    call = rig.call([300, 33, 64, 65])
    needed = {block for row, n in zip(call.page_table, [10, 2, 2, 3]) for block in row[:n].tolist()}
    others = [block for block in range(rig.module.KEY_VALUE_BLOCKS) if block not in needed]
    call.page_table = np.concatenate((call.page_table, np.full((4, 3), others[0])), axis=1)
    call.page_table[1:, 4:] = others[1]
    before = rig.blocks()
    rig.prefill.prefill_forward(**vars(call))
    assert torch.equal(rig.blocks()[:, others], before[:, others])
    assert not torch.equal(rig.blocks(), before)


def test_slices_of_a_prompt_end_in_its_logits(rig):
    call = rig.call([300])
    expected = rig.expected(call)
    for start, end in ((0, 96), (96, 128), (128, 256)):
        call.prompt_lens = [end]
        assert rig.prefill.prefill_forward(**vars(call), start_pos=[start], slots=[9], final=False) == (None,)
    call.prompt_lens = [300]
    found = rig.prefill.prefill_forward(**vars(call), start_pos=[256], slots=[9])
    assert relative_error(found, expected) <= TOLERANCE


def test_s002_05_slices_out_of_order_are_refused_and_change_nothing(rig):
    call = rig.call([256])
    call.prompt_lens = [128]
    (plan,) = rig.prefill.prepare(**vars(call), slots=[4], final=False)
    rig.prefill.collect(rig.prefill.run([plan]))
    before = rig.blocks()
    with pytest.raises(errors.SliceOrder, match="committed up to 128"):
        rig.prefill.collect(rig.prefill.run([plan]))
    for start, end in ((0, 128), (64, 192), (192, 256)):
        call.prompt_lens = [end]
        with pytest.raises(errors.SliceOrder, match=f"from {start} .* committed up to 128"):
            rig.prefill.prepare(**vars(call), start_pos=[start], slots=[4], final=False)
    assert torch.equal(rig.blocks(), before)


def test_s003_02_rows_that_end_and_rows_that_go_on_may_share_a_call(rig):
    call = rig.call([64, 100, 64])
    found = rig.prefill.prefill_forward(**vars(call), final=[False, True, False])
    assert found[0] is None and found[2] is None
    assert relative_error(found[1], rig.expected(call)[1]) <= TOLERANCE


def test_s002_09_a_slice_runs_no_head(rig):
    call = rig.call([128])
    with rig.device.record_operations() as operations:
        rig.prefill.prefill_forward(**vars(call), final=False)
    assert rig.module.VOCABULARY not in {spec.shape[-1] for operation in operations for spec in operation.outputs}


def test_s002_25_a_failed_slice_blocks_its_slot_until_reset(rig):
    call = rig.call([128, 64])
    rig.device.before_operation = fail_at("rms_norm")
    with pytest.raises(RuntimeError, match="injected"):
        rig.prefill.prefill_forward(**vars(call), slots=[2, 3], final=[False, True])
    rig.device.before_operation = None
    with pytest.raises(errors.DirtySlot, match="row 0: slot 2 failed within its slice 0 to 128"):
        rig.prefill.prefill_forward(**vars(call), slots=[2, 3], final=[False, True])
    rig.prefill.reset(2)
    found = rig.prefill.prefill_forward(**vars(call), slots=[2, 3])
    assert relative_error(found, rig.expected(call)) <= TOLERANCE


def test_s002_07_a_buffer_of_another_size_is_refused_before_anything_runs(rig):
    call = rig.call([40, 3])
    with rig.device.record_operations() as operations:
        for out, sampling, message in (
            (torch.zeros(2, 255), None, r"\(2, 255\); logits of this call are torch.float32 \(2, 256\)"),
            (torch.zeros(3, 256), None, r"\(3, 256\)"),
            (torch.zeros(2, 256, dtype=torch.float64), None, "torch.float64"),
            (torch.zeros(2), "argmax", "argmax of this call are torch.int64"),
            ([0.0], None, "list"),
        ):
            with pytest.raises(errors.OutputMismatch, match=message):
                rig.prefill.prefill_forward(**vars(call), sampling=sampling, out=out)
    assert not operations and rig.device.counters.reads == 0


def test_a_buffer_of_the_right_size_takes_the_result_and_unfinished_rows_stay_untouched(rig):
    call = rig.call([40, 64])
    out = torch.full((2, 256), 7.0)
    rig.prefill.prefill_forward(**vars(call), final=[True, False], out=out)
    assert relative_error(out[0], rig.expected(call)[0]) <= TOLERANCE and bool((out[1] == 7.0).all())
    rig.prefill.reset(1)
    assert rig.prefill.prefill_forward(**vars(call), out=out) is out
    assert relative_error(out, rig.expected(call)) <= TOLERANCE


def test_a_sampling_path_that_is_not_served_is_refused_by_name(rig):
    with pytest.raises(errors.UnknownSampling, match="'top-p' is not served by this module; it serves logits, argmax"):
        rig.prefill.prepare(**vars(rig.call([4])), sampling="top-p")


def test_s000_46_a_traced_run_without_a_trace_is_refused_before_any_device_work(rig):
    prepared = rig.prefill.prepare(**vars(rig.call([4])))
    with rig.device.record_operations() as operations, pytest.raises(errors.TraceCoverage, match="single 1 x 32"):
        rig.prefill.run(prepared, traced=True)
    assert not operations


def test_s003_41_a_second_run_and_cleanup_are_refused_while_one_is_open(rig):
    prepared = rig.prefill.prepare(**vars(rig.call([4, 300])))
    run = rig.prefill.run(prepared)
    results = [next(run)]
    for attempt in (lambda: next(rig.prefill.run(prepared)), rig.prefill.cleanup):
        with pytest.raises(errors.ReentrantCall, match="exhaust or close"):
            attempt()
    results += run
    assert rig.prefill.collect(results).shape[0] == 2
    rig.prefill.cleanup()


def test_s003_41_a_call_from_within_a_device_call_is_refused(rig):
    call = rig.call([4])
    met = []

    def reenter(name):
        if name == "rms_norm" and not met:
            met.append(name)
            with pytest.raises(errors.ReentrantCall):
                rig.prefill.prefill_forward(**vars(call))

    rig.device.before_operation = reenter
    rig.prefill.prefill_forward(**vars(call))
    assert met


def test_s000_54_results_of_two_calls_are_not_mixed_and_nothing_is_left_behind(rig):
    live = rig.live()
    prepared = rig.prefill.prepare(**vars(rig.call([4])))
    results = [*rig.prefill.run(prepared), *rig.prefill.run(prepared)]
    with pytest.raises(errors.CollectError, match="row 0 is in two results"):
        rig.prefill.collect(results)
    assert rig.live() == live
    with pytest.raises(errors.RequestError, match="nothing to collect"):
        rig.prefill.collect([])


def test_s000_07_weights_and_stores_outlive_the_runtime_and_must_belong_together(rig):
    live = rig.live()
    prefill = rig.prefill
    rig.prefill = None
    prefill.cleanup()
    del prefill
    assert rig.live() == live
    with pytest.raises(errors.DeviceMismatch, match="the device has 8 x 7"):
        Prefill(rig.module, open_device(replace(rig.module.BOARD, grid=(8, 7))), rig.weights, rig.stores)
    rig.stores.keys = rig.stores.keys[:1]
    with pytest.raises(errors.DeviceMismatch, match="weights have 2 layers and the store keys has 1"):
        Prefill(rig.module, rig.device, rig.weights, rig.stores)


def fail_at(name):
    def hook(called):
        if called == name:
            raise RuntimeError("injected")

    return hook

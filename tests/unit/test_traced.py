"""Traces: what is captured and when, what a replay copies, and that it gives what an eager run gives, to the bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from runtime import errors
from runtime.backend import ttnn
from runtime.estimate import trace_bytes
from runtime.prefill import Prefill
from runtime.registry import State
from runtime.request import Sampling
from runtime.tables import states
from tests.support.building import committed
from tests.support.twins import TRACE_REGION, Rig, narrow_module, relative_error, traced_rig

SAMPLED = Sampling(100.0, 20, 0.9, seed=5, log_probabilities=True)
COPY = "copy_host_to_device_tensor"


@pytest.fixture(scope="module")
def shared():
    return traced_rig()


@pytest.fixture
def rig(shared):
    yield shared
    shared.device.before_operation = None


@pytest.fixture
def narrow():
    """Not captured."""
    return Rig(module=narrow_module(), trace_region_size=TRACE_REGION)


class Names(list):
    """Every device call while it listens."""

    def __init__(self, device):
        super().__init__()
        device.before_operation = self.append


def call_of(rig, shape):
    """A call that runs exactly `shape`, and the blocks it writes."""
    start = rig.module.ALIGNMENT if shape.read_pages else 0
    lengths = [start + shape.tokens - index % 3 for index in range(shape.rows)]
    call = rig.call(lengths, seed=shape.rows)
    call.start_pos = [start] * shape.rows
    return call, call.page_table[:, start // rig.module.BLOCK_SIZE :].flatten().tolist()


def begun(rig, call):
    """Slots of a module with recurrent layers hold the state that the call starts from."""
    if states(rig.module) and call.start_pos[0]:
        rig.prefill.prefill_forward(call.tokens, call.page_table, call.start_pos)


@pytest.mark.parametrize("model, target", committed(), ids=str)
def test_every_shape_of_a_twin_gives_the_same_bits_eager_and_traced(model, target):
    rig = traced_rig(model, "declared", target=target)
    rig.prefill.prefill_forward(**vars(rig.call([200])))
    for shape in rig.module.TRACES:
        call, written = call_of(rig, shape)
        begun(rig, call)
        (plan,) = rig.prefill.prepare(**vars(call))
        assert [chunk.shape for chunk in plan.chunks] == [shape]
        with rig.device.record_operations() as eager:
            expected, before = rig.prefill.prefill_forward(**vars(call)), rig.blocks()
        rig.poison(written)
        begun(rig, call)
        with rig.device.record_operations() as replayed:
            found = rig.prefill.prefill_forward(**vars(call), traced=True)
        assert torch.equal(found, expected) and torch.isfinite(expected).all() and expected.std() > 0, shape
        assert torch.equal(rig.blocks(), before), shape
        assert eager == replayed, shape
    counters = rig.device.counters
    assert counters.replays == len(rig.module.TRACES)
    assert (counters.destroyed_tensors, counters.compiles_under_trace, counters.double_frees) == (0, 0, 0)


@pytest.mark.parametrize("sampling", ["argmax", SAMPLED, [Sampling(0.0), SAMPLED, Sampling(300.0, seed=9)]], ids=str)
def test_every_ending_gives_the_same_eager_and_traced(rig, sampling):
    call = rig.call([290, 33, 40], seed=4)
    eager, traced = (rig.prefill.prefill_forward(**vars(call), sampling=sampling, traced=traced) for traced in (0, 1))
    if sampling == "argmax":
        assert eager.tolist() == traced.tolist() == rig.expected(call).argmax(-1).tolist()
    else:
        assert torch.equal(eager.tokens, traced.tokens)
        assert torch.equal(eager.log_probabilities.nan_to_num(7), traced.log_probabilities.nan_to_num(7))


@pytest.mark.parametrize("length", [1, 32, 127, 128])
def test_fault_b05_short_prompts_equal_the_reference_when_replayed(rig, length):
    call = rig.call([length], seed=length)
    found = rig.prefill.prefill_forward(**vars(call), traced=True)
    assert relative_error(found, rig.expected(call)) <= 1e-4


def test_s000_04_eager_and_traced_hold_the_same_stager_postprocessor_and_body(rig):
    eager, traced = rig.prefill._eager, rig.prefill._traced
    assert eager.stager is traced.stager and eager.postprocess is traced.postprocess
    assert eager.body is traced.body is rig.module.body
    assert rig.module.capture.__globals__["body"] is eager.body


def test_s000_01_the_collaborators_are_frozen(rig):
    with pytest.raises(AttributeError):
        rig.prefill._bindings.stager = None


# --- capture ---------------------------------------------------------------------------------------------------------


def test_s000_40_and_fault_b03_everything_is_compiled_and_allocated_before_the_first_capture(narrow):
    narrow.prefill.warm_up()
    names = Names(narrow.device)
    programs = narrow.device.num_program_cache_entries()
    narrow.prefill.capture(decode_traces="none")
    assert narrow.device.num_program_cache_entries() == programs
    first = names.index("begin_trace_capture")
    assert not {"from_torch", "synchronize_device", COPY} & set(names[first:])
    staged = sum(len(narrow.module.INPUTS[shape.variant](shape)) for shape in narrow.module.TRACES)
    assert names[:first].count("from_torch") == staged + len(narrow.module.SAMPLING_INPUTS) + 2


def test_fault_b02_nothing_is_allocated_outside_a_body_between_the_first_and_the_last_capture(narrow):
    narrow.prefill.warm_up()
    inside, outside = [], []
    names = ("begin_trace_capture", "end_trace_capture")

    def watch(name):
        state = (name, narrow.device.counters.allocations)
        (inside if name in names else outside).append(state)

    narrow.device.before_operation = watch
    narrow.prefill.capture(decode_traces="none")
    ends = [count for name, count in inside if name == names[1]]
    begins = [count for name, count in inside if name == names[0]]
    assert len(begins) == len(narrow.module.TRACES) and begins[1:] == ends[:-1]


def test_s000_42_the_exact_padded_pass_of_every_shape_is_run_once_and_waited_for(narrow):
    narrow.prefill.warm_up()
    names = Names(narrow.device)
    with narrow.device.record_operations() as operations:
        narrow.prefill.capture(decode_traces="captured")
    first = names.index("begin_trace_capture")
    assert names[:first].count("synchronize_device") == len(narrow.module.TRACES)
    primed, captured = operations[: len(operations) // 2], operations[len(operations) // 2 :]
    assert primed == captured


@pytest.mark.parametrize("mode", ["yes", None, True, ""])
def test_b14_what_became_of_the_decoders_traces_must_be_said(narrow, mode):
    narrow.prefill.warm_up()
    names = Names(narrow.device)
    with pytest.raises(errors.UnknownMode, match="say 'captured' once the decoder's traces are, or 'none'"):
        narrow.prefill.capture(decode_traces=mode)
    assert names == []


def test_s000_41_capture_needs_warm_up_and_happens_once(narrow):
    with pytest.raises(errors.NotCompiled, match=f"{len(narrow.module.PROGRAMS)} of the module's programs"):
        narrow.prefill.capture(decode_traces="none")
    narrow.prefill.warm_up()
    narrow.prefill.capture(decode_traces="none")
    with pytest.raises(errors.RegistrationError, match="traces are active"):
        narrow.prefill.capture(decode_traces="none")
    assert narrow.prefill.prefill_forward(**vars(narrow.call([5])), traced=True).shape == (1, 256)


def test_b12_a_trace_region_that_is_too_small_is_refused_with_both_numbers_before_capture(narrow):
    narrow.prefill.warm_up()
    total = sum(narrow.prefill.trace_bytes().values())
    small = Prefill(narrow.module, narrow.device, narrow.weights, narrow.stores, trace_region_size=total - 1)
    small.warm_up()
    names, live = Names(narrow.device), narrow.live()
    with pytest.raises(errors.TraceRegionTooSmall, match=f"need about {total} B .* region has {total - 1} B"):
        small.capture(decode_traces="none")
    assert names == [] and narrow.live() == live
    enough = Prefill(narrow.module, narrow.device, narrow.weights, narrow.stores, trace_region_size=total)
    enough.warm_up()
    enough.capture(decode_traces="none")


def test_b12_the_estimate_is_what_the_emulator_takes(rig):
    assert sum(rig.prefill.trace_bytes().values()) == sum(trace.bytes for trace in rig.device.traces.values())
    assert trace_bytes(rig.module, 7) == ttnn.trace_bytes(7, 64)


def test_warm_up_runs_the_modules_programs_once_reports_progress_and_writes_no_store(narrow):
    live, before, seen = narrow.live(), narrow.blocks(), []
    narrow.prefill.warm_up(lambda *step: seen.append(step))
    total = len(narrow.module.PROGRAMS)
    assert [step[:2] for step in seen] == [(done, total) for done in range(1, total + 1)]
    assert seen[0][2] == "single 1 x 32, logits" and narrow.prefill._bindings.registry.programs == set(
        narrow.module.PROGRAMS
    )
    assert narrow.live() == live and torch.equal(narrow.blocks(), before)
    names = Names(narrow.device)
    narrow.prefill.warm_up()
    assert names == []


def test_s000_28_what_is_warmed_serves_every_number_of_rows_without_a_compilation(narrow):
    narrow.prefill.warm_up()
    programs = narrow.device.num_program_cache_entries()
    for lengths in ([1], [31, 2], [64, 64, 64], [300], [33, 129]):
        for sampling in (None, "argmax", SAMPLED, Sampling(0.5)):
            narrow.prefill.prefill_forward(**vars(narrow.call(lengths)), sampling=sampling)
    assert narrow.device.num_program_cache_entries() == programs


def test_s000_43_a_failed_capture_leaves_nothing_and_can_be_repeated(narrow):
    narrow.prefill.warm_up()
    live, names = narrow.live(), Names(narrow.device)
    narrow.prefill.capture(decode_traces="none")
    places = [min, max] if len(names) else []
    chosen = {choose(i for i, name in enumerate(names) if name == kind) for kind in set(names) for choose in places}
    for index in sorted(chosen):
        narrow.device.before_operation = None
        narrow.prefill.cleanup()
        assert narrow.live() == live and not narrow.device.traces
        narrow.prefill.warm_up()
        count = iter(range(len(names)))

        def fail(_, index=index, count=count):
            if next(count, None) == index:
                raise RuntimeError("injected")

        narrow.device.before_operation = fail
        with pytest.raises(RuntimeError, match="injected"):
            narrow.prefill.capture(decode_traces="none")
        assert narrow.device.recording is None and not narrow.device.traces, names[index]
        assert narrow.prefill._bindings.registry.state is State.OPEN
        if narrow.prefill.orphans:
            assert names[index] == "deallocate"
            with pytest.raises(errors.CleanupRequired):
                narrow.prefill.capture(decode_traces="none")
    narrow.device.before_operation = None
    narrow.prefill.cleanup()
    assert narrow.live() == live and narrow.device.counters.double_frees == 0
    narrow.prefill.warm_up()
    narrow.prefill.capture(decode_traces="none")
    narrow.prefill.prefill_forward(**vars(narrow.call([300, 5])), traced=True)


# --- replay ----------------------------------------------------------------------------------------------------------


def test_s000_44_a_replay_copies_what_always_changes_and_the_last_rows_only_when_they_do(rig):
    def copies(lengths, seed, **options):
        names = Names(rig.device)
        rig.prefill.prefill_forward(**vars(rig.call(lengths, seed)), traced=True, **options)
        rig.device.before_operation = None
        return Counter(names)[COPY]

    copies([50, 60], 0), copies([40] * 3, 0), copies([300], 0)
    assert copies([50, 60], 1) == 3  # tokens, positions, fill table
    assert copies([50, 61], 1) == 4  # and the last rows
    assert copies([40] * 3, 1) == 3  # the bounds of a wave never change
    assert copies([300], 1) == 3 * 5  # both tables and the start too
    assert copies([301], 1) == 3 * 5 + 1
    choices = [Sampling(0.5, 3), Sampling(0.25, 4)]
    copies([50, 61], 1, sampling=choices)
    assert copies([50, 61], 1, sampling=choices) == 3
    assert copies([50, 61], 1, sampling=[choices[0], Sampling(0.25, 5)]) == 4  # k alone
    assert copies([50, 61], 1, sampling=[choices[1], Sampling(0.25, 5)]) == 5  # k and 1/T


def test_s000_40_refresh_and_replay_allocate_nothing(rig):
    call = rig.call([256, 128], seed=3)
    prepared = rig.prefill.prepare(**vars(call), slots=[20, 21], final=False)
    allocations, uploads = rig.device.counters.allocations, rig.device.counters.uploads
    assert list(rig.prefill.collect(rig.prefill.run(prepared, traced=True))) == [None, None]
    assert rig.device.counters.allocations == allocations and rig.device.counters.uploads > uploads
    rig.prefill.reset(20), rig.prefill.reset(21)


def test_s000_45_one_trace_serves_every_start_and_the_head_runs_once(rig):
    call = rig.call([600], seed=5)
    ids = []

    def watch(name):
        if name == "execute_trace":
            ids.append(rig.device.counters.replays)

    rig.device.before_operation = watch
    with rig.device.record_operations() as operations:
        found = rig.prefill.prefill_forward(**vars(call), traced=True)
    chunks = rig.prefill.prepare(**vars(call))[0].chunks
    assert [chunk.start for chunk in chunks] == [0, 128, 256, 384, 512] and len(ids) == 5
    assert len({rig.prefill._bindings.registry.lookup(chunk.shape).recording.trace for chunk in chunks}) == 1
    heads = [operation for operation in operations if operation.outputs and operation.outputs[0].shape[-1] == 256]
    assert sum(operation.name == "linear" and operation.outputs[0].shape[-2] == 32 for operation in heads) == 1
    assert relative_error(found, rig.expected(call)) <= 1e-4


def test_s000_46_a_call_with_an_uncovered_row_does_no_device_work(narrow):
    prefill = narrow.prefill
    prefill.warm_up()
    prefill.capture(decode_traces="none")
    wide = Prefill(Rig().module, narrow.device, narrow.weights, narrow.stores)
    prepared = (*prefill.prepare(**vars(narrow.call([5]))), *wide.prepare(**vars(narrow.call([40] * 8))))
    names = Names(narrow.device)
    with pytest.raises(errors.TraceCoverage, match="no trace is captured for batched 8 x 64;"):
        prefill.run(prepared, traced=True)
    assert names == []


def test_s000_47_an_uncompiled_ending_is_refused_while_traces_live_and_compiled_ones_run():
    module = narrow_module()
    lost = (module.TRACES[0].digest, "argmax")
    module.PROGRAMS = tuple([program for program in module.PROGRAMS if program != lost])
    rig = Rig(module=module, trace_region_size=TRACE_REGION)
    rig.prefill.warm_up(), rig.prefill.capture(decode_traces="none")
    call, names = rig.call([5]), Names(rig.device)
    for traced in (False, True):
        with pytest.raises(errors.NotCompiled, match="single 1 x 32 with argmax is not compiled"):
            rig.prefill.run(rig.prefill.prepare(**vars(call), sampling="argmax"), traced=traced)
    assert names == []
    rig.device.before_operation = None
    assert torch.equal(
        rig.prefill.prefill_forward(**vars(call)), rig.prefill.prefill_forward(**vars(call), traced=True)
    )


def test_fault_b08_a_page_table_changed_in_place_is_seen_by_the_next_replay(rig):
    call = rig.call([60, 50], seed=6)
    call.page_table = torch.from_numpy(np.ascontiguousarray(call.page_table))
    rig.prefill.prefill_forward(**vars(call), traced=True)
    call.page_table.copy_(call.page_table + 1 - 2 * (call.page_table % 2))
    rig.poison(range(rig.module.KEY_VALUE_BLOCKS))
    rig.prefill.prefill_forward(**vars(call), traced=True)
    changed = set(torch.nonzero((rig.blocks() != 1e4).flatten(2).any(-1).any(0)).flatten().tolist())
    assert changed == set(call.page_table.flatten().tolist())


def test_b51_and_b11_a_second_wave_with_other_slots_keeps_its_own_prompts_and_blocks(rig):
    first, second = rig.call([60] * 8, seed=7), rig.call([59] * 8, seed=8)
    for slots, call in ((range(8), first), ((7, 3, 11, 30, 2, 9, 1, 5), second)):
        rig.poison(call.page_table.flatten().tolist())
        found = rig.prefill.prefill_forward(**vars(call), slots=list(slots), traced=True)
        assert relative_error(found, rig.expected(call)) <= 1e-4
        assert not bool((rig.blocks()[:, call.page_table.flatten().tolist()] == 1e4).any())


def test_a_result_that_was_not_read_stops_the_next_replay_and_capture(rig):
    live = rig.live()
    prepared = rig.prefill.prepare(**vars(rig.call([5, 40, 300])))
    run = rig.prefill.run(prepared, traced=True)
    first = next(run)
    replays = rig.device.counters.replays
    with pytest.raises(errors.UnreadResult, match="results of rows 0 are still on the device"):
        next(run)
    with pytest.raises(errors.UnreadResult, match="where capture could write over them"):
        rig.prefill.capture(decode_traces="none")
    assert rig.device.counters.replays == replays
    assert rig.prefill.collect([first]).shape == (1, 256)
    (held,) = rig.prefill.run(rig.prefill.prepare(**vars(rig.call([5]))))
    assert len(rig.prefill._pending) == 2
    del held, first
    assert rig.live() == live and len(rig.prefill._pending) == 0
    assert rig.prefill.prefill_forward(**vars(rig.call([5, 40, 300])), traced=True).shape == (3, 256)


def test_s000_49_s000_39_what_a_trace_keeps_is_in_no_result(rig):
    kept = {id(thing) for trace in rig.prefill._bindings.registry.traces for thing in (trace.hidden,)}
    kept |= {id(t) for trace in rig.prefill._bindings.registry.traces for t in vars(trace.inputs.tensors).values()}
    kept |= {id(tensor) for tensor in vars(rig.prefill._traced._workspace.choice.tensors).values()}
    for sampling in (None, SAMPLED):
        prepared = rig.prefill.prepare(**vars(rig.call([5])), sampling=sampling)
        for result in rig.prefill.run(prepared, traced=True):
            assert len(result.owned) == (1 if sampling is None else 2)
            assert not kept & {id(tensor) for tensor in result.owned}
            rig.prefill.collect([result])


def test_s000_48_only_what_was_submitted_counts_as_a_replay(rig):
    call = rig.call([300])
    before, names = rig.prefill.stats().replays, []

    def fail(name):
        names.append(name)
        if names.count("execute_trace") == 2:
            raise RuntimeError("injected")

    rig.device.before_operation = fail
    with pytest.raises(RuntimeError, match="injected"):
        rig.prefill.prefill_forward(**vars(call), traced=True)
    assert rig.prefill.stats().replays == before + 1


def test_a_copy_that_failed_is_not_taken_for_what_the_device_holds(rig):
    call, other = rig.call([50, 60], seed=1), rig.call([20, 10], seed=2)
    expected = rig.prefill.prefill_forward(**vars(call), traced=True)
    prefill_names = []

    def fail(name):
        prefill_names.append(name)
        if prefill_names.count(COPY) == 4:
            raise RuntimeError("injected")

    rig.device.before_operation = fail
    with pytest.raises(RuntimeError):
        rig.prefill.prefill_forward(**vars(other), traced=True)
    rig.device.before_operation = None
    for trace in rig.prefill._bindings.registry.traces:
        if trace.inputs.held["last_rows"] is None:
            trace.inputs.tensors.last_rows.ownership.buffer.writable().zero_()
            break
    else:
        pytest.fail("no input is known to be unknown")
    assert torch.equal(rig.prefill.prefill_forward(**vars(call), traced=True), expected)


def test_s000_44_inputs_of_another_structure_are_refused_before_anything_is_copied(rig):
    trace = rig.prefill._bindings.registry.traces[0]
    values = dict(trace.inputs.held)
    names = Names(rig.device)
    for changed in (values | {"mood": values["tokens"]}, values | {"tokens": values["tokens"][:, :-1]}):
        with pytest.raises(errors.ModuleError, match="a trace was captured over the inputs"):
            rig.prefill._bindings.stager.refresh(trace.inputs, changed)
    assert names == []


def test_s000_25_can_trace_answers_from_lengths_alone(rig, narrow):
    def ask(lengths, start=None, prefill=rig.prefill, width=None):
        tokens = np.zeros((len(lengths), width or max(lengths)), dtype=int)
        return prefill.can_trace(tokens, np.zeros((len(lengths), 4), dtype=int), lengths, start)

    assert ask([5, 300]) and ask([300], [32]) and ask([300], [256])
    assert not ask([300], [31]) and not ask([64], [64]) and not ask([64], [96])
    assert not ask([1025]) and not ask([0], width=4) and not ask([5], width=4)
    assert not rig.prefill.can_trace([1, 2], [[0]], [2]) and not rig.prefill.can_trace([[1]], [[0]], [[1]])
    assert not ask([5], prefill=narrow.prefill)
    planner, rig.prefill._planner.plan = rig.prefill._planner.plan, None
    assert ask([5])
    rig.prefill._planner.plan = planner


def test_s000_24_a_call_is_planned_once(rig, monkeypatch):
    plans, plan = [], rig.prefill._planner.plan
    monkeypatch.setattr(rig.prefill._planner, "plan", lambda *a: plans.append(a) or plan(*a))
    rig.prefill.prefill_forward(**vars(rig.call([5, 300])), traced=True)
    assert len(plans) == 1


def test_s000_55_cleanup_releases_in_order_and_leaves_a_usable_runtime(narrow):
    live = narrow.live()
    narrow.prefill.warm_up()
    narrow.prefill.capture(decode_traces="none")
    (unread,) = narrow.prefill.run(narrow.prefill.prepare(**vars(narrow.call([5]))), traced=True)
    released = []
    deallocate, buffers = ttnn.deallocate, {}
    registry = narrow.prefill._bindings.registry
    for trace in registry.traces:
        buffers |= {id(trace.hidden): "hidden"} | {id(t): "input" for t in vars(trace.inputs.tensors).values()}
    for kept in vars(narrow.prefill._traced._workspace).values():
        buffers |= {id(t): "sampling buffer" for t in vars(kept.tensors).values()}
    buffers[id(unread.output)] = "unread"
    narrow.device.before_operation = lambda name: name == "release_trace" and released.append("trace")
    try:
        ttnn.deallocate = lambda tensor: released.append(buffers[id(tensor)]) or deallocate(tensor)
        narrow.prefill.cleanup()
        order = [name for index, name in enumerate(released) if released[:index].count(name) == 0]
        assert order == ["unread", "trace", "hidden", "input", "sampling buffer"]
        assert released[-5:] == ["sampling buffer"] * 5 and released.count("trace") == len(narrow.module.TRACES)
        released.clear()
        narrow.prefill.cleanup()
        assert released == []
    finally:
        ttnn.deallocate = deallocate
    assert narrow.live() == live and not narrow.device.traces
    call = narrow.call([300, 4])
    eager = narrow.prefill.prefill_forward(**vars(call))
    with pytest.raises(errors.TraceCoverage):
        narrow.prefill.prefill_forward(**vars(call), traced=True)
    narrow.prefill.warm_up()
    narrow.prefill.capture(decode_traces="none")
    assert torch.equal(narrow.prefill.prefill_forward(**vars(call), traced=True), eager)


def test_s000_55_a_release_that_fails_in_cleanup_stops_no_other_and_is_retried(narrow):
    live = narrow.live()
    narrow.prefill.warm_up()
    narrow.prefill.capture(decode_traces="none")
    failed = []

    def fail(name):
        if name == "release_trace" and len(failed) < 2:
            failed.append(name)
            raise RuntimeError("injected")

    narrow.device.before_operation = fail
    with pytest.raises(errors.CleanupFailed, match="2 of .* injected") as caught:
        narrow.prefill.cleanup()
    assert len(caught.value.failures) == 2 == narrow.prefill.orphans == len(narrow.device.traces)
    narrow.prefill.cleanup()
    assert narrow.live() == live and not narrow.device.traces and narrow.prefill.orphans == 0


def test_s000_30_all_endings_replay_one_trace_and_differ_only_in_what_they_read_and_leave(rig):
    call = rig.call([5])
    shape = rig.prefill.prepare(**vars(call))[0].chunks[0].shape
    replayed, outputs = Counter(), {}
    trace = rig.prefill._bindings.registry.lookup(shape)
    replay = rig.module.replay
    try:
        rig.module.replay = lambda device, trace: replayed.update([trace]) or replay(device, trace)
        for ending in rig.module.SAMPLING:
            (result,) = rig.prefill.run(rig.prefill.prepare(**vars(call), sampling=ending), traced=True)
            outputs[ending] = (tuple(result.output.shape), str(result.output.dtype))
            rig.prefill.collect([result])
    finally:
        rig.module.replay = replay
    assert replayed == {trace.recording.trace: 3}
    assert len(set(outputs.values())) == 3 and len(rig.device.traces) == len(rig.module.TRACES)


@pytest.mark.parametrize("traced", [False, True])
def test_fault_b09_rows_of_two_padded_lengths_in_one_call_keep_their_own_blocks(rig, traced):
    call = rig.call([60, 120], seed=9)
    rig.poison(call.page_table.flatten().tolist())
    found = rig.prefill.prefill_forward(**vars(call), traced=traced)
    assert relative_error(found, rig.expected(call)) <= 1e-4
    together = rig.blocks()
    for row, length in enumerate(call.prompt_lens):
        alone = {"tokens": call.tokens[row : row + 1], "page_table": call.page_table[row : row + 1]}
        rig.prefill.prefill_forward(**alone, prompt_lens=[length])
        its = call.page_table[row, : -(-length // 32)].tolist()
        assert relative_error(rig.blocks()[:, its], together[:, its]) <= 1e-5

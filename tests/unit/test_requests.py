"""Promises about calls, end to end on a twin: what each row gets, and what is left in the cache."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from runtime import errors
from runtime.prefill import Prefill
from runtime.reference.dense import Cache, forward
from runtime.stores import allocate, release
from tests.support.live_model import Fault, Injected, assert_close, tiny_module
from tests.support.twins import Rig, relative_error

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def shared_rig():
    return Rig()


@pytest.fixture
def rig(shared_rig):
    """The twin on one device, with a runtime of its own for each test."""
    shared_rig.device.before_operation = None
    shared_rig.prefill = Prefill(shared_rig.module, shared_rig.device, shared_rig.weights, shared_rig.stores)
    return shared_rig


def slices(rig, call, ends, slots, starts=None):
    """One call for each entry of `ends`; the last one gives the logits."""
    starts = starts or [0] * len(call.prompt_lens)
    found = None
    for last, row_ends in enumerate(ends, start=1 - len(ends)):
        call.prompt_lens = row_ends
        found = rig.prefill.prefill_forward(**vars(call), start_pos=starts, slots=slots, final=last == 0)
        starts = row_ends
    return found


def keys_of(rig, row, length):
    """Keys of the first layer as the cache holds them: [heads, length, head_dim]."""
    return rig.blocks()[0][list(row)].transpose(0, 1).flatten(1, 2)[:, :length]


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_fault_b05_prompts_at_the_edges_of_a_length_equal_the_reference(rig, length):
    call = rig.call([length], seed=length)
    assert relative_error(rig.prefill.prefill_forward(**vars(call)), rig.expected(call)) <= TOLERANCE


@pytest.mark.parametrize("rows", [9, 17])
def test_b02_waves_that_were_split_give_every_row_its_own_logits(rig, rows):
    """And S003-39: each row has a line of its own in the result."""
    call = rig.call([20 + row for row in range(9)] + [32] * (rows - 9))
    plans = rig.prefill.prepare(**vars(call))
    assert [len(plan.requests) for plan in plans] == {9: [8, 1], 17: [8, 8, 1]}[rows]
    found = rig.prefill.collect(rig.prefill.run(plans))
    assert relative_error(found, rig.expected(call)) <= TOLERANCE
    assert len({tuple(row.tolist()) for row in found}) == rows


def test_b03_rows_over_one_cached_prefix_share_a_pass_and_leave_it_alone(rig):
    call = rig.call([100 + row for row in range(8)])
    call.tokens[:, :96] = call.tokens[0, :96]
    call.page_table[:, :3] = call.page_table[0, :3]
    first = {name: value[:1] for name, value in vars(call).items()}
    rig.prefill.prefill_forward(**first | {"prompt_lens": [96]})
    prefix = rig.blocks()[:, call.page_table[0, :3]]
    plans = rig.prefill.prepare(
        **vars(call), start_pos=[96] * 8
    )  # computed from 64, the alignment, and not written below 96
    assert len(plans) == 1 and len(plans[0].chunks) == 1
    found = rig.prefill.collect(rig.prefill.run(plans))
    assert relative_error(found, rig.expected(call)) <= TOLERANCE
    assert torch.equal(rig.blocks()[:, call.page_table[0, :3]], prefix)


def test_fault_b09_and_13_each_row_of_a_wave_writes_its_own_blocks(rig):
    """No row of a wave is dropped: rows of two padded lengths in one call."""
    call = rig.call([33, 128, 40, 64, 50])
    rig.prefill.prefill_forward(**vars(call))
    for row, length in enumerate(call.prompt_lens):
        kept = Cache()
        forward(rig.module.GEOMETRY, rig.parameters, call.tokens[row, :length].tolist(), cache=kept)
        assert_close(keys_of(rig, call.page_table[row], length), kept.keys[0])


def test_s000_34_padding_rows_of_a_wave_write_nothing(rig):
    call = rig.call([20, 30, 10])
    (plan,) = rig.prefill.prepare(**vars(call))
    assert plan.chunks[0].shape.rows == 4
    before = rig.blocks()
    rig.prefill.collect(rig.prefill.run([plan]))
    changed = (rig.blocks() != before).flatten(2).any(2).any(0).nonzero().flatten().tolist()
    assert set(changed) == set(call.page_table[:, 0].tolist())


def test_s002_23_s000_52_the_head_sees_one_row_of_each_prompt_whatever_its_offset(rig):
    """Prompts that end at every offset of a tile compile one program."""
    rows = rig.module.ROW_SLOTS
    rig.prefill.prefill_forward(**vars(rig.call([30])))
    programs = rig.device.num_program_cache_entries()
    with rig.device.record_operations() as operations:
        for length in (1, 2, 17, 31, 32):
            rig.prefill.prefill_forward(**vars(rig.call([length])))
    heads = [
        spec.shape for operation in operations for spec in operation.outputs if spec.shape[-1] == rig.module.VOCABULARY
    ]
    assert heads and all(shape[-2] <= rows for shape in heads)
    assert rig.device.num_program_cache_entries() == programs


def test_b10_the_rows_that_reach_the_head_are_picked_by_an_index_of_a_few_bytes(rig):
    (plan,) = rig.prefill.prepare(**vars(rig.call([20, 30, 10, 5, 6, 7, 8])))
    shape = plan.chunks[0].shape
    (entry,) = [entry for entry in rig.module.INPUTS[shape.variant](shape) if entry.name == "last_rows"]
    assert np.prod(entry.shape) * 4 <= 256
    before = rig.device.counters.upload_bytes
    rig.prefill.collect(rig.prefill.run([plan]))
    assert rig.device.counters.upload_bytes - before < 16 * shape.rows * shape.tokens


def test_s002_11_rows_give_the_same_logits_where_waves_are_switched_off(rig, monkeypatch):
    call = rig.call([20, 30, 10, 100, 120])
    together = rig.prefill.prefill_forward(**vars(call))
    monkeypatch.setenv("DISABLE_BATCHED_PREFILL", "1")
    plans = rig.prefill.prepare(**vars(call))
    assert [plan.chunks[0].shape.rows for plan in plans] == [1] * 5
    assert relative_error(rig.prefill.collect(rig.prefill.run(plans)), together) <= 1e-5


def test_s000_13_the_switch_is_read_by_each_call(rig, monkeypatch):
    call = rig.call([20, 30])
    assert len(rig.prefill.prepare(**vars(call))) == 1
    monkeypatch.setenv("DISABLE_BATCHED_PREFILL", "1")
    assert len(rig.prefill.prepare(**vars(call))) == 2
    monkeypatch.delenv("DISABLE_BATCHED_PREFILL")
    assert len(rig.prefill.prepare(**vars(call))) == 1


def test_s002_12_keys_of_a_row_are_the_same_alone_in_a_wave_and_as_a_chunk(rig):
    """A chunk reads from the cache what it has just written there, so its rows were written before."""
    call = rig.call([40, 50])
    rig.prefill.prefill_forward(**vars(call))
    wave = keys_of(rig, call.page_table[0], 40)
    alone = {name: value[:1] for name, value in vars(call).items()}
    rig.prefill.prefill_forward(**alone)
    single = keys_of(rig, call.page_table[0], 40)
    rig.prefill.prefill_forward(**alone, start_pos=[32])
    chunked = keys_of(rig, call.page_table[0], 40)
    assert_close(wave, single)
    assert_close(chunked, single)
    assert all(relative_error(wave[:, position], single[:, position]) <= 1e-6 for position in (2, 3, 4))


def test_s003_04_every_prompt_comes_one_slice_further_with_each_call(rig):
    call = rig.call([160, 192, 170])
    expected = rig.expected(call)
    found = slices(rig, call, [[64, 64, 64], [128, 128, 128], [160, 192, 170]], [5, 2, 9])
    assert relative_error(found, expected) <= TOLERANCE


def test_fault_b55_a_slice_that_ends_inside_an_attention_chunk_shifts_no_position(rig):
    """The alignment is 64 and the block 32."""
    call = rig.call([300])
    expected = rig.expected(call)
    found = slices(rig, call, [[96], [224], [300]], [1])
    assert relative_error(found, expected) <= TOLERANCE
    kept = Cache()
    forward(rig.module.GEOMETRY, rig.parameters, call.tokens[0].tolist(), cache=kept)
    assert_close(keys_of(rig, call.page_table[0], 300), kept.keys[0])


def test_s003_05_a_row_that_cannot_be_served_costs_the_others_nothing(rig):
    call = rig.call([40, 50, 60])
    call.page_table[1, 1] = -1
    before = rig.blocks()
    with pytest.raises(errors.InvalidPage) as caught:
        rig.prefill.prefill_forward(**vars(call))
    assert caught.value.row == 1 and caught.value.servable == (0, 2) and torch.equal(rig.blocks(), before)
    rest = {name: [value[row] for row in (0, 2)] for name, value in vars(call).items()}
    rest = {name: value if name == "prompt_lens" else np.stack(value) for name, value in rest.items()}
    assert relative_error(rig.prefill.prefill_forward(**rest), rig.expected(call)[[0, 2]]) <= TOLERANCE


def test_fault_b40_s003_06_a_wave_that_fails_gives_no_empty_results_and_sixteen_of_sixteen_come_again(rig):
    """Nothing is run a second time by itself: a call either gives every row or an error."""
    call = rig.call([20] * 16)
    plans = rig.prefill.prepare(**vars(call))
    assert len(plans) == 2
    live = rig.live()
    hook = rig.device.before_operation = Fault(90, lasting=False)
    with pytest.raises(Injected) as caught:
        rig.prefill.collect(rig.prefill.run(plans))
    rig.device.before_operation = None
    assert caught.value is hook.first and hook.calls < 120 and rig.live() == live
    found = rig.prefill.prefill_forward(**vars(call))
    assert found.shape[0] == 16 and relative_error(found, rig.expected(call)) <= TOLERANCE


def test_fault_b26_a_second_call_over_a_cache_runs_all_its_tokens(rig):
    call = rig.call([200])
    rig.prefill.prefill_forward(**vars(call) | {"prompt_lens": [96]})
    for start in (96, 64, 32):
        found = rig.prefill.prefill_forward(**vars(call), start_pos=[start])
        assert relative_error(found, rig.expected(call)) <= TOLERANCE


def test_fault_b38_a_cached_prefix_is_read_through_the_page_table_and_none_is_refused(rig):
    call = rig.call([200])
    call.page_table = np.array([[9, 3, 77, 1, 50, 8, 2]])
    rig.prefill.prefill_forward(**vars(call) | {"prompt_lens": [128]})
    assert relative_error(rig.prefill.prefill_forward(**vars(call), start_pos=[128]), rig.expected(call)) <= TOLERANCE
    with pytest.raises(errors.RequestError, match="page_table"):
        rig.prefill.prefill_forward(call.tokens, None, [200], [128])


def test_fault_b22_padding_is_not_counted_as_tokens(rig):
    rig.prefill.prefill_forward(**vars(rig.call([20, 30, 10])))
    stats = rig.prefill.stats()
    assert (stats.tokens, stats.tokens_computed) == (60, 4 * 32)


def test_fault_b60_a_result_names_the_slot_of_each_row(rig):
    call = rig.call([20, 30, 10])
    (result,) = rig.prefill.run(rig.prefill.prepare(**vars(call), slots=[7, 3, 11], sampling="argmax"))
    assert (result.source_rows, result.slots) == ((0, 1, 2), (7, 3, 11))
    assert rig.prefill.collect([result]).tolist() == rig.expected(call).argmax(-1).tolist()


def test_s000_56_s000_02_stores_of_another_module_or_type_are_refused(rig):
    """The stores given when the runtime was made are the ones that every call writes: no call names others."""
    with pytest.raises(errors.DeviceMismatch, match="of which only the first number, the blocks, may be smaller"):
        Prefill(tiny_module(), rig.device, SimpleNamespace(layers=rig.weights.layers), rig.stores)
    values = rig.stores.values
    wrong = SimpleNamespace(keys=rig.stores.keys, values=(values[0], rig.weights.embedding))
    with pytest.raises(errors.DeviceMismatch, match="the store values is"):
        Prefill(rig.module, rig.device, rig.weights, wrong)


def test_s000_03_stores_may_have_fewer_blocks_and_nothing_else_that_differs(rig):
    """A table of blocks is made for each runtime; the module's own sizes, among them the widths of page tables, stay."""
    small = allocate(rig.module, rig.device, blocks=10)
    prefill = Prefill(rig.module, rig.device, rig.weights, small)
    call = rig.call([300])
    call.page_table = np.arange(10)[None][:, ::-1]
    assert relative_error(prefill.prefill_forward(**vars(call)), rig.expected(call)) <= TOLERANCE
    with pytest.raises(errors.InvalidPage, match="block 10, which the prompt needs; the store has blocks 0 to 9"):
        prefill.prefill_forward(**vars(call) | {"page_table": np.arange(1, 11)[None]})
    with pytest.raises(errors.CapacityExceeded, match="need 11 blocks and the store has 10"):
        prefill.prefill_forward(np.zeros((1, 321), int), np.arange(11)[None], [321])
    with pytest.raises(errors.ModuleError, match="129 key-value blocks were asked for; the module has 1 to 128"):
        allocate(rig.module, rig.device, blocks=129)
    release(small)


def test_s002_03_a_mode_that_is_not_served_is_refused_by_name_and_nothing_runs(rig):
    """Also a name that another family would know: ignoring it would answer a question that was not asked."""
    reached = []
    rig.device.before_operation = reached.append
    with pytest.raises(errors.UnknownSampling, match="'beams' is not served"):
        rig.prefill.prefill_forward(**vars(rig.call([4])), sampling="beams")
    with pytest.raises(errors.UnknownMode, match="'later'"):
        rig.prefill.capture(decode_traces="later")
    assert not reached

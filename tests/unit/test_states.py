"""Recurrent state between passes, calls and failures, on the stand-in whose states can be told from the tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runtime import errors
from runtime.backend import ttnn
from runtime.stores import tensors
from tests.support.state_module import ALIGNMENT, SLOTS, StateRig, state_after, state_module

TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=["eager", "traced"])
def shared(request):
    return StateRig(traced=request.param == "traced")


@pytest.fixture
def rig(shared):
    """The shared rig with empty slots."""
    for slot in range(SLOTS):
        shared.prefill.reset(slot)
    yield shared
    shared.device.before_operation = None


def cold(rig, prompt, length, slot=SLOTS - 1):
    """Logits of a prompt computed whole in a slot of its own, which is empty afterwards."""
    found = rig.run((slot, prompt, length))
    rig.prefill.reset(slot)
    return found


def assert_close(found, wanted):
    error = float((found - wanted).abs().max() / wanted.abs().max())
    assert error <= TOLERANCE, f"relative error {error:.2e} over {TOLERANCE:g}"


def test_s001_23_a_fresh_prompt_begins_with_states_and_tails_of_zero_whatever_its_slot_held(rig):
    """A slot's and a row's former states must both be gone: the row worked on another prompt last."""
    for seed, length in ((1, 300), (2, 20), (3, 2)):
        prompt = rig.prompt(seed)
        rig.run((0, prompt, length))
        rig.assert_slot(0, prompt, length, (length - 1) // 64 // 2 * 128 if length > 128 else 0)


@pytest.mark.parametrize("cuts", [(64,), (128,), (192,), (64, 128), (128, 256), (64, 128, 192, 256), (32, 96, 224)])
def test_fault_b15_a_prompt_in_any_slices_leaves_the_state_of_one_pass(rig, cuts):
    """Passes at positions above 0 begin with the carried state, in chunks and in slices (B16: past a chunk of the pass, B18:
    slices shorter than the tail, B26: several tokens on a cache that is not empty)."""
    prompt, start = rig.prompt(4), 0
    for end in cuts:
        assert rig.run((1, prompt, end, start), final=False) == (None,)
        rig.assert_slot(1, prompt, end, end // ALIGNMENT * ALIGNMENT)
        start = end
    found = rig.run((1, prompt, 300, start))
    assert rig.prefill.positions(1)[0] == 300
    for mine, wanted in zip(rig.held(1), state_after(prompt, 300), strict=True):
        assert torch.equal(mine, wanted)
    assert_close(found, cold(rig, prompt, 300))


def test_b18_a_chunk_of_fewer_tokens_than_the_tail_keeps_part_of_the_old_tail_and_writes_no_other_slot(rig):
    for rest in (1, 2, 3):
        one, other = rig.prompt(5), rig.prompt(6)
        rig.run((0, one, 128), (1, other, 128), final=False)
        rig.run((0, one, 128 + rest, 128))
        rig.assert_slot(0, one, 128 + rest, 128)
        rig.assert_slot(1, other, 128, 128)
        rig.prefill.reset(0), rig.prefill.reset(1)


def test_b19_rows_of_one_wave_that_end_apart_have_their_own_states_at_the_right_token(rig):
    """B27: how much padding a row has changes nothing. B22: tokens of padding are no real ones."""
    prompts = [rig.prompt(seed) for seed in (7, 8, 9)]
    before = rig.prefill.stats()
    rig.run(*[(slot, prompt, length) for slot, (prompt, length) in enumerate(zip(prompts, (64, 40, 33)))])
    after = rig.prefill.stats()
    assert (
        after.waves == before.waves + 1
        and after.variants["batched"].tokens_real
        - (before.variants["batched"].tokens_real if "batched" in before.variants else 0)
        == 64 + 40 + 33
    )
    for slot, length in enumerate((64, 40, 33)):
        rig.assert_slot(slot, prompts[slot], length, 0)


def test_s001_19_rows_of_a_chunked_wave_use_their_own_blocks_lengths_and_states(rig):
    prompts = [rig.prompt(seed) for seed in (10, 11)]
    rig.run(*[(slot, prompt, 128) for slot, prompt in enumerate(prompts)], final=False)
    before = rig.prefill.stats().waves
    found = rig.run((0, prompts[0], 180, 128), (1, prompts[1], 190, 128))
    assert rig.prefill.stats().waves == before + 1
    for slot, length in ((0, 180), (1, 190)):
        rig.assert_slot(slot, prompts[slot], length, 128)
        assert_close(found[slot], cold(rig, prompts[slot], length)[0])


@pytest.mark.parametrize("length", [64, 128, 192, 256, 32, 96, 160])
def test_s003_26_an_exact_full_hit_equals_the_cold_run_and_rewrites_no_block(rig, length):
    """B28: of a prompt that is a multiple of the block and wholly cached, the last token is still computed."""
    prompt = rig.prompt(12)
    wanted, state = rig.run((0, prompt, length)), rig.held(0)
    end, boundary = rig.prefill.positions(0)
    kept = rig.keys(0, length)
    marked = torch.full_like(ttnn.to_torch(rig.stores.keys[0]).float(), 1e4)
    before, live = rig.prefill.stats(), rig.keys(0, length).clone()
    found = rig.run((0, prompt, length, length))
    assert_close(found, wanted)
    assert rig.prefill.positions(0)[0] == end == length
    assert all(map(torch.equal, rig.held(0), state))
    assert torch.equal(rig.keys(0, length), kept) and torch.equal(live, kept) and marked.shape
    again = rig.prefill.stats()
    assert again.tokens - before.tokens == length - boundary, "recomputed from the boundary and from nowhere else"


def test_s003_26_a_hit_on_a_slice_that_ended_aligned_is_computed_from_the_start(rig):
    """Its only held state is at its end, which cannot give the last token's logits."""
    prompt = rig.prompt(13)
    rig.run((0, prompt, 128), final=False)
    wanted = cold(rig, prompt, 128)
    assert_close(rig.run((0, prompt, 128, 128)), wanted)
    rig.assert_slot(0, prompt, 128, 0)


def test_keys_and_values_below_start_pos_are_not_written_again(rig):
    prompt = rig.prompt(14)
    rig.run((0, prompt, 96), final=False)
    poison(rig, 0, 96)
    rig.run((0, prompt, 160, 96))
    assert bool((rig.keys(0, 96) == 1e4).all()) and not bool((rig.keys(0, 160)[:, :, 96:] == 1e4).any())


def poison(rig, slot, tokens):
    blocks = [slot * 12 + block for block in range(tokens // 32)]
    for store in (rig.stores.keys[0], rig.stores.values[0]):
        store.ownership.buffer.writable()[blocks] = 1e4


def test_s003_47_without_a_state_nothing_is_skipped_and_the_reason_is_counted(rig):
    """Keys and values of a prefix are there, its state is not (B20: then the state is not a blank one either)."""
    prompt = rig.prompt(15)
    wanted = cold(rig, prompt, 200)
    rig.run((0, prompt, 128))
    rig.prefill.reset(0)
    kept, before = rig.keys(0, 128), rig.prefill.stats()
    found = rig.run((0, prompt, 200, 128))
    after = rig.prefill.stats()
    assert torch.equal(found, wanted)
    rig.assert_slot(0, prompt, 200, 128)
    assert torch.equal(rig.keys(0, 128), kept)
    assert after.tokens - before.tokens == 200
    was = before.recomputed.get("no state held")
    now = after.recomputed["no state held"]
    assert (now.rows - (was.rows if was else 0), now.tokens - (was.tokens if was else 0)) == (1, 128)


def test_s003_47_a_short_prompt_without_a_state_runs_the_pass_that_it_runs_cold(rig):
    """Its cached blocks stay as they are in a packed pass too."""
    prompt, pages = rig.prompt(51), np.arange(12)[None]
    (cold_plan,) = rig.prefill.prepare(prompt[None], pages, [100])
    (hit,) = rig.prefill.prepare(prompt[None], pages, [100], [64])
    assert hit.chunks == cold_plan.chunks
    wanted = cold(rig, prompt, 100)
    rig.run((0, prompt, 64), final=False)
    rig.prefill.reset(0)
    poison(rig, 0, 64)
    assert torch.equal(rig.run((0, prompt, 100, 64)), wanted)
    assert bool((rig.keys(0, 64) == 1e4).all()) and not bool((rig.keys(0, 100)[:, :, 64:] == 1e4).any())


def test_b34_a_call_that_fails_and_is_tried_again_counts_its_hits_once(rig):
    prompt = rig.prompt(16)
    before = rig.prefill.stats().recomputed.get("no state held")
    fail_at(rig, 9)
    with pytest.raises(RuntimeError, match="injected"):
        rig.run((0, prompt, 200, 128))
    rig.device.before_operation = None
    rig.run((0, prompt, 200, 128))
    now = rig.prefill.stats().recomputed["no state held"]
    assert now.rows - (before.rows if before else 0) == 1


def fail_at(rig, index, only=None):
    calls = iter(range(10**9))

    def hook(name):
        if (only is None or name == only) and next(calls) == index:
            raise RuntimeError("injected")

    rig.device.before_operation = hook


@pytest.mark.parametrize("length, boundary", [(300, 256), (128, 0), (129, 128), (256, 128), (257, 256), (20, 0)])
def test_the_boundary_of_a_whole_prompt_is_where_its_last_pass_begins(rig, length, boundary):
    prompt = rig.prompt(17)
    rig.run((2, prompt, length))
    rig.assert_slot(2, prompt, length, boundary)


@pytest.mark.parametrize("keep_at", [64, 128, 192, 256])
def test_s003_32_the_state_at_a_boundary_within_a_chunk_is_that_of_a_run_up_to_it(rig, keep_at):
    prompt = rig.prompt(18)
    wanted = cold(rig, prompt, 300)
    found = rig.run((0, prompt, 300), keep_at=keep_at)
    assert_close(found, wanted)
    rig.assert_slot(0, prompt, 300, keep_at)
    separate = rig.run((1, prompt, keep_at), final=False)
    assert separate == (None,)
    assert all(map(torch.equal, rig.held(0, "boundary"), rig.held(1)))
    assert_close(rig.run((0, prompt, 320, keep_at)), cold(rig, prompt, 320))


def test_s003_32_a_boundary_outside_what_is_computed_is_passed_over_and_an_unaligned_one_refused(rig):
    prompt = rig.prompt(19)
    for keep_at, boundary in ((0, 256), (320, 256), (384, 256), (None, 256)):
        rig.run((0, prompt, 300), keep_at=keep_at)
        rig.assert_slot(0, prompt, 300, boundary)
    with pytest.raises(errors.InvalidBoundary, match="row 0: the state at 96 .* multiples of 64; ask for 64 or 128"):
        rig.run((0, prompt, 300), keep_at=96)
    with pytest.raises(errors.RequestError, match="keep_at has 1 entries for 2 rows"):
        rig.run((0, prompt, 300), (1, prompt, 300), keep_at=[64])
    rig.run((0, prompt, 300), (1, prompt, 300), (2, prompt, 300), keep_at=[64, None, 64])
    for slot, boundary in ((0, 64), (1, 256), (2, 64)):
        rig.assert_slot(slot, prompt, 300, boundary)


def test_a_start_that_is_no_held_position_is_refused_with_all_numbers_and_changes_nothing(rig):
    prompt = rig.prompt(20)
    rig.run((3, prompt, 320))
    operations = rig.device.counters.operations
    with pytest.raises(
        errors.StatePosition,
        match=r"row 0: slot 3 holds the state at 320 and at 256; a start of 128 is neither.* call reset\(3\)",
    ):
        rig.run((3, prompt, 340, 128))
    assert rig.device.counters.operations == operations
    rig.assert_slot(3, prompt, 320, 256)
    rig.run((3, prompt, 340, 256))
    rig.assert_slot(3, prompt, 340, 256)


def test_s002_28_a_plan_that_another_one_has_overtaken_is_refused_and_changes_nothing(rig):
    prompt = rig.prompt(21)
    rig.run((0, prompt, 128), final=False)
    call = (prompt[None], np.arange(12)[None], [192], [128], [0])
    early, late = rig.prefill.prepare(*call, final=False), rig.prefill.prepare(*call, final=False)
    rig.prefill.collect(rig.prefill.run(early, rig.traced))
    rig.assert_slot(0, prompt, 192, 192)
    with pytest.raises(
        errors.SliceOrder, match="a slice from 128 repeats a part of slot 0, which is committed up to 192"
    ):
        rig.prefill.collect(rig.prefill.run(late, rig.traced))
    rig.assert_slot(0, prompt, 192, 192)
    rig.prefill.reset(0)
    rig.run((0, prompt, 128))
    resumed = rig.prefill.prepare(prompt[None], np.arange(12)[None], [192], [128], [0])
    rig.run((0, prompt, 320))
    with pytest.raises(errors.StatePosition, match="slot 0 holds the state at 320 and at 256; a start of 128"):
        rig.prefill.collect(rig.prefill.run(resumed, rig.traced))
    rig.prefill.reset(0)
    with pytest.raises(
        errors.StatePosition, match="its plan begins at 128 and the state of slot 0 now makes it begin at 0"
    ):
        rig.prefill.collect(rig.prefill.run(resumed, rig.traced))
    assert rig.prefill.positions(0) is None


def test_s002_28_reset_rewinds_the_state_too(rig):
    prompt = rig.prompt(22)
    rig.run((0, prompt, 64), final=False)
    rig.prefill.reset(0)
    assert rig.prefill.positions(0) is None
    rig.run((0, prompt, 64), final=False)
    rig.assert_slot(0, prompt, 64, 64)


@pytest.mark.parametrize("rows", [[(0, 300, 128)], [(0, 180, 128), (1, 175, 128)]], ids=["chunks", "wave"])
@pytest.mark.parametrize("final", [True, False])
def test_s001_20_a_failure_at_any_device_call_leaves_states_and_positions_as_they_were(rig, rows, final):
    """Also one in the copies themselves, of any row of a wave."""
    prompts = [rig.prompt(23), rig.prompt(24)]
    rows = [(slot, prompts[slot], end if final else end // 32 * 32, start) for slot, end, start in rows]

    def prepare():
        for slot, prompt, _, start in rows:
            rig.prefill.reset(slot)
        rig.run(*[(slot, prompt, start) for slot, prompt, _, start in rows], final=False)

    prepare()
    rig.run(*rows, final=final)  # so that the inputs which change are those of these rows
    prepare()
    names: list[str] = []
    rig.device.before_operation = names.append
    rig.run(*rows, final=final)
    rig.device.before_operation = None
    names = names[: names.index("to_torch")] if final else names  # a plan is through before its result is read
    copies = [index for index, name in enumerate(names) if name == "copy"]
    assert copies
    live = rig.live()
    for index in sorted({*range(0, len(names), 7), *copies}):
        if names[index] == "deallocate":
            continue  # an orphan, which blocks the runtime until cleanup
        prepare()
        fail_at(rig, index)
        with pytest.raises(RuntimeError, match="injected"):
            rig.run(*rows, final=final)
        rig.device.before_operation = None
        for slot, prompt, _, start in rows:
            rig.assert_slot(slot, prompt, start, start)
        with pytest.raises(errors.DirtySlot):
            rig.run(*rows, final=final)
        assert rig.live() == live
    prepare()
    rig.run(*rows, final=final)
    for slot, prompt, end, _ in rows:
        assert all(map(torch.equal, rig.held(slot), state_after(prompt, end)))


def test_a_whole_prompt_that_failed_leaves_its_slots_old_state_and_can_be_tried_again(rig):
    old, new = rig.prompt(25), rig.prompt(26)
    rig.run((0, old, 160))
    fail_at(rig, 20)
    with pytest.raises(RuntimeError, match="injected"):
        rig.run((0, new, 300))
    rig.device.before_operation = None
    rig.assert_slot(0, old, 160, 128)
    rig.run((0, new, 300))
    rig.assert_slot(0, new, 300, 256)


def test_s003_30_a_snapshot_holds_all_of_a_state_and_restores_it_anywhere(rig):
    prompt, other = rig.prompt(27), rig.prompt(28)
    rig.run((0, prompt, 300), keep_at=192)
    snapshot = rig.prefill.snapshot(0)
    assert (snapshot.end, snapshot.boundary) == (300, 192)
    rig.prefill.reset(0)
    for slot in (1, 2, 3):  # in the places that the snapshot was taken from, among others
        rig.run((slot, other, 200 + slot), keep_at=64)
    rig.prefill.restore(0, snapshot)
    rig.assert_slot(0, prompt, 300, 192)
    for slot in (1, 2, 3):
        rig.assert_slot(slot, other, 200 + slot, 64)
        rig.prefill.reset(slot)
    assert {name: len(layers) for name, layers in snapshot.at_end.items()} == {"states": 2, "tails": 2}
    rig.run((0, other, 100))
    rig.run((2, other, 100))
    rig.prefill.restore(2, snapshot)
    rig.assert_slot(2, prompt, 300, 192)
    rig.assert_slot(0, other, 100, 0)
    rig.prefill.restore(0, snapshot)
    found = rig.run((0, prompt, 320, 192))
    rig.assert_slot(0, prompt, 320, 192)
    assert found.shape == (1, rig.module.VOCABULARY)
    for length in (128, 20):  # both positions in one state, and a boundary at the start
        rig.run((0, prompt, length), final=length == 20)
        again = rig.prefill.snapshot(0)
        rig.prefill.reset(0)
        rig.run((0, other, 77))
        rig.prefill.restore(0, again)
        rig.assert_slot(0, prompt, length, 128 if length == 128 else 0)
        rig.prefill.reset(0)


def test_s003_30_half_a_snapshot_and_another_models_are_refused_and_restore_waits_for_what_was_submitted(rig):
    from dataclasses import replace

    prompt = rig.prompt(29)
    rig.run((0, prompt, 300))
    snapshot = rig.prefill.snapshot(0)
    halves = (
        (replace(snapshot, at_end={"states": snapshot.at_end["states"]}), "tails at its end are 0 tensors"),
        (
            replace(snapshot, at_boundary={"tails": snapshot.at_boundary["tails"]}),
            "states at its boundary are 0 tensors",
        ),
        (replace(snapshot, at_end={**snapshot.at_end, "tails": snapshot.at_end["tails"][:1]}), "are 1 tensors"),
        (replace(snapshot, digest="of another"), "of other recurrent layers than the 3 layers"),
        (replace(snapshot, boundary=250), "at 300 and at 250, which is no multiple of 64"),
        (replace(snapshot, boundary=320), "at 300 and at 320"),
        (snapshot.at_end, "dict is no snapshot"),
    )
    for wrong, message in halves:
        with pytest.raises(errors.SnapshotMismatch, match=message):
            rig.prefill.restore(1, wrong)
        assert rig.prefill.positions(1) is None
    names: list[str] = []
    rig.device.before_operation = names.append
    rig.prefill.restore(1, snapshot)
    rig.device.before_operation = None
    assert names[0] == "synchronize_device" and names.count("copy_host_to_device_tensor") == 8
    fail_at(rig, 5)
    with pytest.raises(RuntimeError, match="injected"):
        rig.prefill.restore(0, snapshot)
    rig.device.before_operation = None
    rig.assert_slot(0, prompt, 300, 256), rig.assert_slot(1, prompt, 300, 256)
    with pytest.raises(errors.StateSlotError, match="slot 2 holds no state; those that do: .0, 1."):
        rig.prefill.snapshot(2)
    with pytest.raises(errors.StateSlotError, match=f"slot {SLOTS} is not one of 0 to {SLOTS - 1}"):
        rig.prefill.restore(SLOTS, snapshot)


def test_a_copied_state_goes_on_in_two_ways_without_device_work(rig):
    prompt, other = rig.prompt(30), rig.prompt(31)
    rig.run((0, prompt, 128), final=False)
    rig.run((1, other, 64), final=False)  # whose slices are given up with the copy
    operations = rig.device.counters.operations
    rig.prefill.copy_state(0, 1)
    assert rig.device.counters.operations == operations
    mixed = np.concatenate([prompt[:128], other[128:]])
    rig.run((1, mixed, 200, 128))
    rig.run((0, prompt, 256, 128))
    rig.assert_slot(1, mixed, 200, 128)
    rig.assert_slot(0, prompt, 256, 128)
    with pytest.raises(errors.StateSlotError, match="slot 3 holds no state"):
        rig.prefill.copy_state(3, 0)
    with pytest.raises(errors.StateSlotError, match="slot 9 is not one of"):
        rig.prefill.copy_state(0, 9)


def test_s003_16_moved_sequences_take_their_states_along_and_every_address_stays(rig):
    prompts = [rig.prompt(32), rig.prompt(33)]
    rig.run((0, prompts[0], 128), final=False)
    rig.run((1, prompts[1], 64), final=False)
    live = rig.live()
    pages = np.stack([np.arange(12, 24), np.arange(12)])
    rig.prefill.prefill_forward(
        np.stack(prompts[::-1]), pages, [192, 200], [64, 128], [0, 1], slot_remap={0: 1, 1: 0}, traced=rig.traced
    )
    rig.assert_slot(0, prompts[1], 192, 64)
    rig.assert_slot(1, prompts[0], 200, 128)
    rig.run((2, prompts[0], 20), slot_remap={0: 3})
    assert rig.prefill.positions(0) is None
    rig.assert_slot(3, prompts[1], 192, 64)
    assert rig.live() == live
    with pytest.raises(errors.StateSlotError, match=f"slot {SLOTS} is not one of"):
        rig.run((2, prompts[0], 20), slot_remap={0: SLOTS})


def test_slots_beyond_those_with_state_are_refused_by_name(rig):
    with pytest.raises(
        errors.InvalidSlot, match=f"row 0: slot {SLOTS} is not one of 0 to {SLOTS - 1}; the module holds the recurrent"
    ):
        rig.prefill.prepare(rig.prompt(0)[None], np.arange(12)[None], [20], slots=[SLOTS])
    with pytest.raises(errors.InvalidSlot, match="slot 1 is also the slot of row 0"):
        rig.prefill.prepare(np.stack([rig.prompt(0)] * 2), np.arange(24).reshape(2, 12), [20, 20], slots=[1, 1])


def test_copies_allocate_nothing_and_are_counted(rig):
    prompt = rig.prompt(34)
    names: list[str] = []
    before = rig.prefill.stats().state_copies
    rig.device.before_operation = names.append
    rig.run((0, prompt, 300), keep_at=64)
    rig.device.before_operation = None
    assert rig.prefill.stats().state_copies - before == 3 * 2 * 2, "row, boundary and end, 2 parts of 2 layers"
    rig.run((0, prompt, 60), (1, prompt, 60), (2, prompt, 60))
    assert rig.prefill.stats().state_copies - before == 12 + (4 + 3) * 4, "padding begins with zeros too"
    assert "state copies" in rig.prefill.stats().line()
    assert rig.device.counters.destroyed_tensors == rig.device.counters.compiles_under_trace == 0


def test_s001_18_the_route_of_every_pass_is_recorded_with_its_plan_its_result_and_the_counts(rig):
    """S001-13: equally long rows take the equal-length route, others and waves with padding do not."""
    prompts = np.stack([rig.prompt(seed) for seed in (35, 36, 37, 38)])
    pages = np.arange(48).reshape(4, 12)
    cases = (
        ([64, 64], ["equal-length wave"]),
        ([64, 63], ["variable-length wave"]),
        ([64, 64, 64], ["variable-length wave"]),
        ([64, 64, 64, 64], ["equal-length wave"]),
        ([50], ["row by row"]),
        ([200, 195], ["equal-length wave", "variable-length wave"]),
    )
    for lengths, routes in cases:
        count = len(lengths)
        (plan,) = rig.prefill.prepare(prompts[:count], pages[:count], lengths)
        assert list(plan.routes) == routes, lengths
        before = rig.prefill.stats().routes
        (result,) = [result for result in map(_kept(rig), rig.prefill.run([plan], rig.traced))]
        assert result == plan.routes
        after = rig.prefill.stats().routes
        gained = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        assert gained == {name: routes.count(name) for name in routes}


def _kept(rig):
    def routes_of(result):
        rig.prefill._bindings.ownership.release(result.owned)
        return result.routes

    return routes_of


def test_s001_12_rows_without_a_batched_recurrence_run_one_by_one_and_give_the_same(rig):
    module = state_module(forms=((1, "rows"), (2, "wave")))
    fewer = StateRig(module=module)
    prompts = [rig.prompt(seed) for seed in (39, 40, 41)]
    rows = [(slot, prompt, 60 + slot) for slot, prompt in enumerate(prompts)]
    found, wanted = fewer.run(*rows), rig.run(*rows)
    assert fewer.prefill.stats().routes == {"row by row": 3} and fewer.prefill.stats().waves == 0
    assert_close(found, wanted)
    for slot, prompt, length in rows:
        fewer.assert_slot(slot, prompt, length, 0)
    fewer.run(*rows[:2])
    assert fewer.prefill.stats().routes == {"row by row": 3, "variable-length wave": 1}


def test_can_trace_asks_what_the_slot_holds(rig):
    prompt = rig.prompt(42)
    rig.run((1, prompt, 128), final=False)
    call = (prompt[None], np.arange(12)[None], [200], [128])
    assert rig.prefill.can_trace(*call, slots=[1]) is rig.traced
    assert rig.prefill.can_trace(prompt[None], np.arange(12)[None], [200], [64], slots=[1]) is False


def test_a_slot_that_is_freed_while_its_plans_run_holds_nothing_afterwards(rig):
    prompts = np.stack([rig.prompt(43), rig.prompt(44)])
    plans = rig.prefill.prepare(prompts, np.arange(24).reshape(2, 12), [20, 100], slots=[0, 1])
    assert len(plans) == 2
    for result in rig.prefill.run(plans, rig.traced):
        rig.prefill._bindings.ownership.release(result.owned)
        rig.prefill.reset(result.slots[0])
    assert rig.prefill.positions(0) is rig.prefill.positions(1) is None


def test_a_slot_that_is_freed_within_its_plan_holds_nothing_afterwards(rig):
    """As where the last reference to a lease goes while the device is driven."""
    prompt, calls = rig.prompt(46), iter(range(10**9))
    rig.device.before_operation = lambda name: rig.prefill.reset(0) if next(calls) == 12 else None
    rig.run((0, prompt, 300), (1, prompt, 300))
    rig.device.before_operation = None
    assert next(calls) > 20 and rig.prefill.positions(0) is None
    rig.assert_slot(1, prompt, 300, 256)


def test_traces_stay_valid_over_states_that_are_held_narrow_and_warm_up_writes_none_that_a_slot_holds():
    """Copies that convert are programs of their own, compiled before the first capture."""
    rig = StateRig(traced=True, module=state_module(stored="bfloat16"))
    prompts = [rig.prompt(seed) for seed in (47, 48, 49, 50)]
    for slot, prompt in enumerate(prompts):
        rig.run((slot, prompt, 128 + slot), keep_at=64)
    held = [ttnn.to_torch(tensor).clone() for tensor in tensors(rig.stores.slots)]
    rig.prefill.cleanup()
    rig.prefill.warm_up()
    rig.prefill.capture(decode_traces="none")
    now = [rig.prefill.positions(slot) for slot in range(SLOTS)]
    assert now == [(128 + slot, 64) for slot in range(SLOTS)]
    used = {place for slot in range(SLOTS) for place in _places(rig, slot)} | {0}
    per_state = len(held) // len(rig.stores.slots)
    for index, (tensor, was) in enumerate(zip(tensors(rig.stores.slots), held, strict=True)):
        if index // per_state in used:
            assert torch.equal(ttnn.to_torch(tensor), was)
    rig.run((0, prompts[0], 200, 128))
    assert rig.device.counters.compiles_under_trace == 0


def _places(rig, slot):
    held = rig.prefill._states.positions[slot]
    return held.end_at, held.boundary_at


def test_cleanup_leaves_states_where_they_are():
    rig = StateRig(traced=True)
    prompt = rig.prompt(45)
    rig.run((0, prompt, 128), final=False)
    rig.prefill.cleanup()
    rig.traced = False
    rig.run((0, prompt, 200, 128))
    rig.assert_slot(0, prompt, 200, 128)

"""Cursors of prompts that the caller cuts itself."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import DirtySlot, RequestError, RotarySwitch, SliceOrder
from runtime.request import PrefillRequest
from runtime.slices import SliceCursors
from tests.support.twins import Rig


def piece(start, end, final=False, slot=5, row=0):
    return (PrefillRequest(row, slot, np.zeros(1, np.int32), 0, start, end, np.zeros(1, np.int32), final),)


@pytest.fixture
def cursors():
    """One slot, committed up to 512."""
    made = SliceCursors()
    made.begin(piece(0, 512))
    made.commit(piece(0, 512))
    return made


@pytest.mark.parametrize(
    "start, fault", [(0, "repeats a part of"), (256, "repeats a part of"), (768, "leaves a gap after")]
)
def test_s002_05_a_slice_off_the_cursor_is_refused_with_both_numbers(cursors, start, fault):
    with pytest.raises(SliceOrder, match=f"from {start} {fault} slot 5, which is committed up to 512"):
        cursors.check(0, 5, start, start + 32)
    cursors.check(0, 5, 512, 544)


def test_s002_08_the_cursor_moves_on_commit_and_closes_with_the_last_slice(cursors):
    cursors.begin(piece(512, 700, final=True))
    cursors.commit(piece(512, 700, final=True))
    cursors.check(0, 5, 0, 32)
    cursors.check(0, 5, 64, 96)


def test_s002_25_a_slice_that_was_not_committed_leaves_the_slot_dirty_until_reset(cursors):
    cursors.begin(piece(512, 1024))
    for start in (512, 1024, 0):
        with pytest.raises(DirtySlot, match=r"slot 5 failed within its slice 512 to 1024; call reset\(5\)"):
            cursors.check(0, 5, start, start + 32)
    cursors.check(0, 6, 0, 32)
    cursors.reset(5)
    cursors.check(0, 5, 0, 32)


def test_a_wave_is_checked_whole_before_any_slot_is_marked(cursors):
    wave = piece(0, 512, slot=7) + piece(0, 512, slot=5, row=1)
    with pytest.raises(SliceOrder, match="row 1"):
        cursors.begin(wave)
    cursors.check(0, 7, 0, 32)


def test_a_whole_prompt_of_a_slot_that_is_not_open_is_not_tracked():
    cursors = SliceCursors()
    cursors.begin(piece(0, 300, final=True))
    cursors.check(0, 5, 0, 32)


@pytest.mark.parametrize("switch, refused", [(511, False), (512, True), (699, True), (700, False), (None, False)])
def test_a_slice_stays_on_the_side_of_the_keys_that_its_slot_holds(switch, refused):
    """Slot 5 is committed up to 512 and goes on to 700: both on one side, or the keys would be turned in two ways."""
    cursors = SliceCursors(switch)
    cursors.begin(piece(0, 512))
    cursors.commit(piece(0, 512))
    for final in (False, True):
        if refused:
            with pytest.raises(
                RotarySwitch, match=rf"longer than {switch} tokens.*the 512 that it holds; call reset\(5\)"
            ):
                cursors.begin(piece(512, 700, final))
    cursors.check(0, 5, 512, 700 if not refused else switch)
    cursors.check(0, 6, 512, 700)  # a cached prefix of a slot that is not open: the caller's word


def test_s000_26_open_slots_move_at_once_and_only_with_the_first_plan_of_a_call(cursors):
    """Slot 5 is committed up to 512. Moving twice would undo a swap, so no second plan of a call may carry it."""
    cursors.begin((), ((5, 7), (7, 5)))
    cursors.check(0, 7, 512, 544), cursors.check(0, 5, 0, 32)
    with pytest.raises(SliceOrder, match="slot 7, which is committed up to 512"):
        cursors.check(0, 7, 0, 32)
    rig = Rig()
    call = rig.call([64, 300, 40])
    call.prompt_lens[0] = 32
    rig.prefill.prefill_forward(**vars(call), slots=[0, 1, 2], final=[False, True, True])
    call.prompt_lens[0] = 64
    swap = {0: 1, 1: 0}
    with pytest.raises(SliceOrder, match="row 0: .* slot 0, which is committed up to 32"):
        rig.prefill.prepare(**vars(call), slots=[0, 1, 2])
    with pytest.raises(SliceOrder, match="slot 0, which is committed up to 32"):
        rig.prefill.prepare(**vars(call), start_pos=[32, 0, 0], slots=[1, 2, 3], slot_remap={0: 2, 2: 1})
    prepared = rig.prefill.prepare(**vars(call), start_pos=[32, 0, 0], slots=[1, 0, 2], slot_remap=swap)
    assert [plan.slot_remap for plan in prepared] == [((0, 1), (1, 0)), *[()] * (len(prepared) - 1)]
    assert rig.prefill.collect(rig.prefill.run(prepared)).shape[0] == 3


@pytest.mark.parametrize(
    "remap, message",
    [([1], "is list, not a mapping"), ({0: -1}, "integers from 0 on"), ({0: 2, 1: 2}, "two slots to one")],
)
def test_s000_26_a_remap_that_is_none_is_refused(remap, message):
    with pytest.raises(RequestError, match=message):
        SliceCursors.moves(remap)

"""Leases of state slots: given back exactly once, however a sequence ends."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import StateSlotError
from runtime.leases import StateSlots
from tests.support.state_module import SLOTS, StateRig
from tests.support.twins import Rig


@pytest.fixture
def slots():
    made = StateSlots(3, lambda slot: made.forgotten.append(slot))
    made.forgotten = []
    return made


@pytest.mark.parametrize("how", ["free", "twice", "with", "error", "drop", "cancel"])
def test_s003_15_a_slot_is_given_back_once_however_its_sequence_ends(slots, how):
    lease = slots.acquire()
    assert lease.slot == 0 and lease.held and slots.free == (1, 2)
    if how in ("free", "twice"):
        lease.free()
        if how == "twice":
            again = slots.acquire()
            lease.free(), lease.free()
            assert slots.free == (1, 2), "the slot is another sequence's now"
            again.free()
    elif how == "with":
        with lease:
            lease.free()
    elif how == "error":
        with pytest.raises(ZeroDivisionError), lease:
            1 / 0
    elif how == "cancel":
        generator = _sequence(slots, lease)
        next(generator)
        generator.close()
    else:
        del lease
        gc.collect()
    assert slots.free == (0, 1, 2)
    assert slots.forgotten == [0, 0] if how == "twice" else slots.forgotten == [0]


def _sequence(slots, lease):
    with lease:
        while True:
            yield lease.slot


def test_s003_15_a_lease_that_was_taken_leaves_nothing_to_free(slots):
    lease = slots.acquire()
    assert lease.take() == 0 and not lease.held
    lease.free()
    with pytest.raises(StateSlotError, match="slot 0 was given back or taken before"):
        lease.take()
    del lease
    gc.collect()
    assert slots.free == (1, 2) and slots.forgotten == []
    for wrong in (1, 2, 7):
        with pytest.raises(StateSlotError, match=f"slot {wrong} was not taken out of a lease; those that were: .0."):
            slots.adopt(wrong)
    with slots.adopt(0) as adopted:
        assert adopted.slot == 0
        with pytest.raises(StateSlotError):
            slots.adopt(0)
    assert slots.free == (0, 1, 2) and slots.forgotten == [0]


def test_s003_15_no_slot_is_given_where_all_are_taken(slots):
    leases = [slots.acquire() for _ in range(3)]
    with pytest.raises(StateSlotError, match="all 3 slots of recurrent state are taken"):
        slots.acquire()
    assert [lease.slot for lease in leases] == [0, 1, 2]


def test_s003_15_a_model_of_attention_alone_has_no_slot():
    prefill = Rig().prefill
    with prefill.slots.acquire() as lease:
        assert lease.slot is None and not lease.held and lease.take() is None
    assert prefill.slots.free == () and prefill.positions(0) is None
    with pytest.raises(StateSlotError, match="slot 0 has no state: the module has no recurrent layers"):
        prefill.snapshot(0)


def test_s003_15_what_comes_back_holds_no_state():
    rig = StateRig()
    with rig.prefill.slots.acquire() as lease:
        rig.run((lease.slot, rig.prompt(0), 128), final=False)
        assert rig.prefill.positions(lease.slot) == (128, 128)
    assert rig.prefill.positions(0) is None and rig.prefill.slots.free == tuple(range(SLOTS))
    rig.run((0, rig.prompt(1), 64), final=False)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["acquire", "free", "take", "adopt", "drop"]), st.integers(0, 5)), max_size=40)
)
def test_s003_15_free_slots_and_leases_never_share_a_slot(steps):
    slots = StateSlots(4, lambda slot: None)
    leases, taken = [], []
    for step, index in steps:
        if step == "acquire" and slots.free:
            leases.append(slots.acquire())
        elif step == "adopt" and taken:
            leases.append(slots.adopt(taken.pop(index % len(taken))))
        elif leases:
            lease = leases[index % len(leases)]
            if step == "free":
                lease.free()
            elif step == "take" and lease.held:
                taken.append(lease.take())
            elif step == "drop":
                leases.remove(lease)
                del lease
                gc.collect(0)
        lease = None
        owners = Counter([*slots.free, *taken, *[lease.slot for lease in leases if lease.held]])
        lease = None
        assert owners == Counter(range(4)), (step, owners)

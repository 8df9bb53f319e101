"""Random calls, failures, resets, moves, copies and snapshots against a plain dictionary of what each slot holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime import errors
from tests.support.state_module import ALIGNMENT, BLOCK, CHUNK, CONTEXT, SLOTS, StateRig, state_after

RUNS, STEPS = 120, 14
SLOT = st.integers(0, SLOTS - 1)
RARELY = st.sampled_from([False, False, False, False, True])
done: Counter[str] = Counter()


@dataclass(frozen=True)
class Belief:
    """A slot's prompt, the positions whose states it holds, and where its slices stand."""

    prompt: np.ndarray
    end: int
    boundary: int
    cursor: int | None = None


@dataclass(frozen=True)
class Row:
    slot: int
    prompt: np.ndarray
    start: int
    length: int
    final: bool
    keep_at: int | None

    def begin(self, held: Belief | None) -> int | None:
        """Where it begins to compute; None where it is refused."""
        if held is not None and held.cursor is not None and self.start != held.cursor:
            return None
        if self.start == 0 or held is None:
            return 0
        if self.start not in (held.end, held.boundary):
            return None
        fit = [p for p in (held.end, held.boundary) if p <= min(self.start, self.length - 1) and p % ALIGNMENT == 0]
        return max(fit, default=0)

    def after(self, begin: int) -> Belief:
        """What the slot holds once it ran."""
        aligned = self.length // ALIGNMENT * ALIGNMENT
        boundary = aligned
        if self.keep_at and begin < self.keep_at < self.length:
            boundary = self.keep_at
        elif self.final:
            boundary = begin + (self.length - begin - 1) // CHUNK * CHUNK
        return Belief(self.prompt, self.length, boundary, None if self.final else self.length)


class World:
    def __init__(self, rig: StateRig) -> None:
        self.rig = rig
        self.slots: dict[int, Belief] = {}
        self.snapshots: list[tuple[Belief, Any]] = []
        for slot in range(SLOTS):
            rig.prefill.reset(slot)
        self.live = rig.live()

    def check(self) -> None:
        for slot in range(SLOTS):
            held = self.slots.get(slot)
            if held is None:
                assert self.rig.prefill.positions(slot) is None
            else:
                self.rig.assert_slot(slot, held.prompt, held.end, held.boundary)
        assert self.rig.live() == self.live

    def row(self, draw: Any, slot: int) -> Row:
        held = self.slots.get(slot)
        starts = [0, 0] + ([held.end, held.end, held.boundary] if held else [64, 96])
        if draw(RARELY):
            starts = [draw(st.integers(0, CONTEXT // BLOCK)) * BLOCK]
        elif held is not None and held.cursor is not None:
            starts = [held.cursor]
        start = draw(st.sampled_from(starts))
        start = min(start // BLOCK * BLOCK, CONTEXT - BLOCK)
        final = draw(st.booleans())
        length = draw(st.one_of(st.integers(start + 1, min(CONTEXT, start + 70)), st.integers(start + 1, CONTEXT)))
        if not final:
            length = -(-length // BLOCK) * BLOCK
        elif start and draw(RARELY):
            length = start
        fresh = self.rig.prompt(draw(st.integers(0, 10**6)))
        prompt = fresh if held is None or not start else np.concatenate([held.prompt[:start], fresh[start:]])
        keep_at = draw(st.sampled_from([None, None, 64, 128, 192, 256]))
        return Row(slot, prompt, start, length, final, keep_at)

    def call(self, draw: Any, rows: list[Row], fail_at: int | None, moves: dict[int, int]) -> None:
        believed = self._moved(moves)
        begins = [row.begin(believed.get(row.slot)) for row in rows]
        arguments = [(row.slot, row.prompt, row.length, row.start) for row in rows]
        options = {"final": [row.final for row in rows], "keep_at": [row.keep_at for row in rows]}
        if moves:
            options["slot_remap"] = moves
        if None in begins:
            with pytest.raises((errors.StatePosition, errors.SliceOrder)):
                self.rig.run(*arguments, **options)
            done["refused"] += 1
            return
        new = {row.slot: row.after(begin) for row, begin in zip(rows, begins)}
        try:
            self._fail(fail_at)
            self.rig.run(*arguments, **options)
            self.rig.device.before_operation = None
        except RuntimeError as error:
            self.rig.device.before_operation = None
            assert "injected" in str(error)
            self._settle(rows, believed, new)
            done["failed"] += 1
            return
        self.slots = believed | new
        done[f"rows {len(rows)}"] += 1
        done["moved"] += bool(moves)

    def _moved(self, moves: dict[int, int]) -> dict[int, Belief]:
        touched = {*moves, *moves.values()}
        kept = {slot: held for slot, held in self.slots.items() if slot not in touched}
        return kept | {new: self.slots[old] for old, new in moves.items() if old in self.slots}

    def _fail(self, at: int | None) -> None:
        if at is None:
            return
        calls = iter(range(10**9))

        def hook(name: str) -> None:
            if name != "deallocate" and next(calls) == at:
                raise RuntimeError("injected")

        self.rig.device.before_operation = hook

    def _settle(self, rows: list[Row], before: dict[int, Belief], new: dict[int, Belief]) -> None:
        """Every row is wholly before or wholly after its plan; what was under way in slices is begun anew. Moves are made with
        the first plan, before which nothing is called."""
        self.slots = dict(before)
        for row in rows:
            old = before.get(row.slot)
            found = self.rig.prefill.positions(row.slot)
            after = new[row.slot]
            # A row of which all is cached may end where it began: then its boundary tells, or its state.
            moved_on = old is None or found != (old.end, old.boundary) or not self._matches(row.slot, old)
            if found == (after.end, after.boundary) and moved_on:
                self.slots[row.slot] = after
        self.check()
        for row in rows:
            if not row.final or (before.get(row.slot) and before[row.slot].cursor is not None):
                self.rig.prefill.reset(row.slot)
                self.slots.pop(row.slot, None)

    def _matches(self, slot: int, held: Belief | None) -> bool:
        if held is None:
            return False
        return all(map(torch.equal, self.rig.held(slot), state_after(held.prompt, held.end)))

    def step(self, draw: Any) -> None:
        kind = draw(st.sampled_from(["call"] * 6 + ["move", "reset", "copy", "snapshot", "restore"]))
        slot = draw(SLOT)
        if kind in ("call", "move"):
            moves = {}
            if kind == "move":
                order = draw(st.permutations(range(SLOTS)))
                count = draw(st.integers(1, SLOTS))
                moves = {old: new for old, new in list(enumerate(order))[:count]}
                self.slots, kept = self._moved(moves), self.slots
                row = self.row(draw, slot)
                self.slots = kept
                if row.begin(self._moved(moves).get(slot)) is None:
                    return
                self.call(draw, [row], None, moves)
                return
            slots = draw(st.lists(SLOT, min_size=1, max_size=SLOTS, unique=True))
            rows = [self.row(draw, slot) for slot in slots]
            if draw(st.booleans()):  # alike, so that they share passes
                rows = [replace(row, length=rows[0].length, final=rows[0].final) for row in rows]
                rows = [row for row in rows if row.start < row.length]
            if rows:
                self.call(draw, rows, draw(st.one_of(st.none(), st.integers(0, 200))), moves)
        elif kind == "reset":
            self.rig.prefill.reset(slot)
            self.slots.pop(slot, None)
        elif kind == "copy":
            target = draw(SLOT)
            if slot not in self.slots:
                with pytest.raises(errors.StateSlotError):
                    self.rig.prefill.copy_state(slot, target)
                return
            self.rig.prefill.copy_state(slot, target)
            self.slots[target] = replace(self.slots[slot], cursor=None)
            done["copied"] += 1
        elif kind == "snapshot" and slot in self.slots:
            self.snapshots.append((self.slots[slot], self.rig.prefill.snapshot(slot)))
        elif kind == "restore" and (self.snapshots or self.slots):
            if not self.snapshots:  # else few sequences come so far
                of = draw(st.sampled_from(sorted(self.slots)))
                self.snapshots.append((self.slots[of], self.rig.prefill.snapshot(of)))
            held, snapshot = draw(st.sampled_from(self.snapshots))
            self.rig.prefill.restore(slot, snapshot)
            self.slots[slot] = replace(held, cursor=None)
            done["restored"] += 1


@pytest.fixture(scope="module", params=["eager", "traced"])
def rig(request):
    return StateRig(traced=request.param == "traced")


def test_s003_30_any_sequence_of_calls_leaves_every_slot_with_the_state_of_its_own_tokens(rig, record_property):
    """S001-20, S002-28, S003-16: whatever is refused, fails, moves or is restored in between."""
    done.clear()

    @settings(
        max_examples=RUNS, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )
    @given(st.data())
    def play(data):
        rig.device.before_operation = None
        world = World(rig)
        for _ in range(STEPS):
            world.step(data.draw)
            world.check()

    play()
    for kind in ("refused", "failed", "moved", "copied", "restored", "rows 1", "rows 2", "rows 4"):
        assert done[kind] > 10, f"{kind}: {done[kind]} times"
    counters = rig.device.counters
    assert (counters.double_frees, counters.destroyed_tensors, counters.compiles_under_trace) == (0, 0, 0)
    record_property("count of steps against the dictionary of slots", RUNS * STEPS)

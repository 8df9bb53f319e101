"""Random legal and illegal calls against a plain belief of what the blocks hold and which tensors live.

After every step: nothing leaked, no block of another sequence changed a bit, and every legal call gives the logits of
the reference, whatever was refused, failed, cancelled or left open before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runtime import errors
from runtime.request import InvocationResult, Sampling
from tests.support.live_model import BLOCK, CONTEXT, PROMPTS, SLOTS, Fault, Injected, Row, assert_close, prompts, world

STEPS_OF_A_RUN, RUNS, LEAST_STEPS = 50, 700, 20_000
RARELY = st.sampled_from([False, False, False, True])
AT = st.one_of(st.integers(0, 40), st.integers(0, 300))  # which device call fails
counted: Counter[str] = Counter()
places: set[str] = set()  # device calls that a fault was put into
SAMPLING = st.sampled_from([None, None, "argmax", "draw"])
CANDIDATES = 4  # of a row that is drawn


@st.composite
def row_numbers(draw: st.DrawFn) -> tuple[int, int, bool]:
    """What picks a row's start, length and whether it ends its prompt, out of what its sequence allows."""
    return draw(st.integers(0, 8)), draw(st.one_of(st.integers(0, 66), st.integers(0, CONTEXT))), draw(st.booleans())


ROWS = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), row_numbers()), min_size=1, max_size=SLOTS, unique_by=lambda row: row[0]
)


def off_the_cursor(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
    """A slice that repeats a part of an open prompt, or leaves a gap."""
    row = rows[at]
    if not row.sequence.open:
        return None
    gap = row.start + BLOCK
    arguments["start_pos"][at] = gap if at % 2 == 0 and gap < row.length else 0
    return errors.SliceOrder


def changed(name: str, value: Callable[[Row], Any], kind: type[Exception]) -> Callable[..., type[Exception] | None]:
    """One row's entry of one argument is wrong."""

    def change(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
        arguments[name][at] = value(rows[at])
        return kind

    return change


def token(value: int) -> Callable[..., type[Exception] | None]:
    def change(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
        arguments["tokens"][at, rows[at].length - 1] = value
        return errors.InvalidToken

    return change


def foreign_block(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
    """Two rows write one block."""
    other = rows[at - 1]
    if other is rows[at] or not rows[at].written_blocks or not other.written_blocks:
        return None
    arguments["page_table"][at, rows[at].start // BLOCK] = other.written_blocks[0]
    return errors.SharedBlock


def whole(name: str, value: Callable[[Any], Any], kind: type[Exception]) -> Callable[..., type[Exception] | None]:
    """One argument is wrong as a whole."""

    def change(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
        arguments[name] = value(arguments.get(name))
        return kind

    return change


def unfinished_block(arguments: dict[str, Any], rows: list[Row], at: int) -> type[Exception] | None:
    if rows[at].final:
        return None
    arguments["prompt_lens"][at] -= 1
    return errors.InvalidSlice


ILLEGAL: dict[str, Callable[[dict[str, Any], list[Row], int], type[Exception] | None]] = {
    "block of another row": foreign_block,
    "buffer of another size": whole("out", lambda _: torch.zeros(SLOTS + 1, 64), errors.OutputMismatch),
    "cached in a block": changed("start_pos", lambda row: 1, errors.InvalidStart),
    "cached past the end": changed("start_pos", lambda row: row.length // BLOCK * BLOCK + BLOCK, errors.InvalidStart),
    "cached negative": changed("start_pos", lambda row: -BLOCK, errors.InvalidStart),
    "context": whole("prompt_lens", lambda lengths: [CONTEXT + 1, *lengths[1:]], errors.RowError),
    "empty prompt": changed("prompt_lens", lambda row: 0, errors.InvalidLength),
    "fractions": whole("start_pos", lambda starts: [0.5] * len(starts), errors.RequestError),
    "lengths missing": whole("prompt_lens", lambda lengths: lengths[1:], errors.RequestError),
    "off the cursor": off_the_cursor,
    "page unset": changed("page_table", lambda row: -1, errors.InvalidPage),
    "rank of tokens": whole("tokens", lambda tokens: tokens[0], errors.RequestError),
    "sampling": whole("sampling", lambda _: "dice", errors.UnknownSampling),
    "slice in a block": unfinished_block,
    "slot out of range": changed("slots", lambda row: -1, errors.InvalidSlot),
    "table too narrow": whole("page_table", lambda pages: pages[:, :0], errors.CapacityExceeded),
    "token negative": token(-1),
    "token over the vocabulary": token(64),
}


class Calls(RuleBasedStateMachine):
    """`results` were run and not collected yet, `run` is an open iterator that has `left` plans to go."""

    def __init__(self) -> None:
        super().__init__()
        self.world = world()
        self.begin(0)
        self.results: list[tuple[InvocationResult, list[Row]]] = []
        self.run: Any = None
        self.may_change: set[int] = set()

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.world.device.before_operation = None
        self.world.begin(seed)
        self.captured = False
        self.faults = self.world.faults()

    # --- what a call is -------------------------------------------------------------------------------------------

    def rows(self, drawn: list[tuple[int, tuple[int, int, bool]]]) -> list[Row]:
        """Legal rows: none of a dirty slot, from the cursor of an open one, over what is in the cache of any other."""
        made = []
        for slot, (block, span, final) in drawn:
            sequence = self.world.sequences[slot]
            if sequence.dirty:
                continue
            start = sequence.committed if sequence.open else BLOCK * (block % (sequence.committed // BLOCK + 1))
            if start == CONTEXT:
                final = True
            length = min(CONTEXT, max(1, start + span))
            if not final:
                length = min(CONTEXT, start + max(BLOCK, span // BLOCK * BLOCK))
            made.append(Row(sequence, start, length, final))
        return made

    def arguments(self, rows: list[Row], sampling: str | None) -> dict[str, Any]:
        return {
            "tokens": torch.stack([row.sequence.prompt.tokens for row in rows]),
            "page_table": torch.tensor([row.sequence.pages for row in rows]),
            "prompt_lens": [row.length for row in rows],
            "start_pos": [row.start for row in rows],
            "slots": [row.sequence.slot for row in rows],
            "sampling": choices(len(rows)) if sampling == "draw" else sampling,
            "final": [row.final for row in rows],
        }

    def committed(self, rows: list[Row]) -> None:
        """These rows were written whole."""
        for row in rows:
            self.may_change |= set(row.written_blocks)
            if row.start < row.length:
                row.sequence.committed = row.length
            row.sequence.open = not row.final

    def failed(self, rows: list[Row]) -> None:
        """These rows may have been written in part."""
        for row in rows:
            self.may_change |= set(row.written_blocks)
            row.sequence.committed = min(row.sequence.committed, row.start)
            row.sequence.dirty = row.sequence.open or not row.final

    def check_values(self, found: Any, rows: list[Row], sampling: str | None) -> None:
        """Values of a call, in the order of its rows, against the reference."""
        assert len(found) == len(rows)
        for value, row in zip(found, rows):
            if not row.final:
                assert value is None
            elif sampling is not None:
                drawn = sampling == "draw" and not choices(len(rows))[rows.index(row)].greedy
                likeliest = row.sequence.prompt.logits[row.length - 1].topk(CANDIDATES if drawn else 1)
                assert int(value) in likeliest.indices.tolist()
            else:
                assert_close(value, row.sequence.prompt.logits[row.length - 1])

    @property
    def unread(self) -> bool:
        return any(result.owned for result, _ in self.results)

    @property
    def idle(self) -> bool:
        return self.run is None and not self.world.prefill.orphans

    def refused(self, kind: type[Exception], call: Callable[[], Any]) -> None:
        """The call raises `kind` before any device call."""
        device = self.world.device
        reached: list[str] = []
        device.before_operation = reached.append
        try:
            with pytest.raises(kind):
                call()
        finally:
            device.before_operation = None
        assert not reached, f"{kind.__name__} after {reached}"
        counted[f"refused: {kind.__name__}"] += 1

    # --- legal calls ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.idle)
    @rule(drawn=ROWS, sampling=SAMPLING, traced=st.booleans())
    def serve(self, drawn: Any, sampling: str | None, traced: bool) -> None:
        rows = self.rows(drawn)
        if not rows:
            return
        call = partial(self.world.prefill.prefill_forward, **self.arguments(rows, sampling), traced=traced)
        if traced and not self.captured:
            self.refused(errors.TraceCoverage, call)
        elif traced and self.unread:
            self.refused(errors.UnreadResult, call)
        else:
            self.check_values(call(), rows, sampling)
            self.committed(rows)
            counted["rows served traced" if traced else "rows served eagerly"] += len(rows)

    @precondition(lambda self: self.idle)
    @rule(drawn=ROWS, sampling=SAMPLING, at=AT, lasting=RARELY, traced=st.booleans())
    def fail(self, drawn: Any, sampling: str | None, at: int, lasting: bool, traced: bool) -> None:
        """A device call of a legal call raises: the fault itself comes out and what was acquired is gone."""
        rows, traced = self.rows(drawn), traced and self.captured
        if not rows or (traced and self.unread):
            return
        prefill, device = self.world.prefill, self.world.device
        plans = prefill.prepare(**self.arguments(rows, sampling))
        progress = SimpleNamespace(yielded=0, inside=False)
        fault = device.before_operation = Fault(at, lasting)
        try:
            found = prefill.collect(watched(prefill.run(plans, traced), progress))
        except Injected as error:
            assert error is fault.first
            counted["faults, traced" if traced else "faults, eager"] += 1
            places.add(fault.name)
        else:
            assert fault.first is None
            self.check_values(found, rows, sampling)
        finally:
            device.before_operation = None
        self.committed([rows[row] for plan in plans[: progress.yielded] for row in plan.source_rows])
        if progress.inside:
            self.failed([rows[row] for row in plans[progress.yielded].source_rows])
        if lasting and fault.first is not None:
            counted["orphans"] += prefill.orphans

    # --- runs that stay open, are cancelled, or whose results wait ------------------------------------------------

    @precondition(lambda self: self.idle and not self.results)
    @rule(drawn=ROWS, traced=st.booleans())
    def start(self, drawn: Any, traced: bool) -> None:
        rows = self.rows(drawn)
        if rows:
            plans = self.world.prefill.prepare(**self.arguments(rows, None))
            self.traced = traced and self.captured
            self.run, self.run_rows, self.left = self.world.prefill.run(plans, self.traced), rows, len(plans)
            self.advance()

    @precondition(lambda self: self.run is not None)
    @rule(drawn=st.none() | ROWS)
    def go_on(self, drawn: Any) -> None:
        """Perhaps another call first, which may not come between."""
        if drawn and (rows := self.rows(drawn)):
            self.refused(errors.ReentrantCall, lambda: self.world.prefill.prefill_forward(**self.arguments(rows, None)))
            self.refused(errors.ReentrantCall, self.world.prefill.cleanup)
        self.advance()

    def advance(self) -> None:
        if self.traced and self.unread and self.left:
            self.refused(errors.UnreadResult, lambda: next(self.run))
            self.run = None
            return
        result = next(self.run, None)
        if result is None:
            self.run = None
            counted["runs to the end"] += 1
            return
        self.left -= 1
        rows = [self.run_rows[row] for row in result.source_rows]
        self.results.append((result, rows))
        self.committed(rows)

    @precondition(lambda self: self.run is not None)
    @rule()
    def cancel(self) -> None:
        self.run.close()
        self.run = None
        counted["cancelled"] += 1

    @precondition(lambda self: self.run is None and self.results)
    @rule(fault=st.booleans(), at=st.integers(0, 6), lasting=RARELY)
    def collect(self, fault: bool, at: int, lasting: bool) -> None:
        """Results that waited. A fault while they are read: all of them are released although they are still held here."""
        rows = [row for _, rows in self.results for row in rows]
        order = sorted(
            range(len(rows)), key=[row for result, _ in self.results for row in result.source_rows].__getitem__
        )
        results, orphans = [result for result, _ in self.results], self.world.prefill.orphans
        hook = self.world.device.before_operation = Fault(at if fault else -1, lasting)
        try:
            found = self.world.prefill.collect(results)
        except Injected as error:
            assert error is hook.first
            counted["faults, collect"] += 1
        else:
            assert hook.first is None
            self.check_values(found, [rows[index] for index in order], None)
        finally:
            self.world.device.before_operation = None
        self.results = []
        held = sum(tensor.is_allocated() for result in results for tensor in result.owned)
        assert held == self.world.prefill.orphans - orphans

    # --- after a failure ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.prefill.orphans and self.run is None)
    @rule(drawn=ROWS, recover=st.booleans())
    def clean_up(self, drawn: Any, recover: bool) -> None:
        prefill, device = self.world.prefill, self.world.device
        rows = self.rows(drawn)
        if rows:
            self.refused(errors.CleanupRequired, lambda: prefill.prefill_forward(**self.arguments(rows, None)))
        if not recover:
            device.before_operation = Fault(0, lasting=True)
            with pytest.raises(errors.CleanupFailed):
                prefill.cleanup()
            device.before_operation = None
            assert prefill.orphans
        self.clean()
        counted["cleaned up"] += 1

    def clean(self) -> None:
        """Everything goes: traces, results that nobody read, releases that failed. A second time does nothing."""
        self.world.prefill.cleanup()
        self.results, self.captured, self.world.base = [], False, self.world.borrowed
        assert self.world.prefill.orphans == 0
        self.refused_nothing(self.world.prefill.cleanup)

    def refused_nothing(self, call: Callable[[], Any]) -> None:
        """The call succeeds without a device call."""
        reached: list[str] = []
        self.world.device.before_operation = reached.append
        call()
        self.world.device.before_operation = None
        assert not reached

    @precondition(lambda self: self.idle)
    @rule(often=st.integers(0, 9))
    def clean_up_at_any_time(self, often: int) -> None:
        if often == 0:
            self.clean()

    @precondition(lambda self: self.idle and not self.captured)
    @rule(fault=RARELY, at=st.integers(0, 2000), lasting=st.booleans())
    def capture(self, fault: bool, at: int, lasting: bool) -> None:
        """Warm up and capture; a device call may fail on the way."""
        prefill, device = self.world.prefill, self.world.device
        if self.unread:
            self.refused(errors.UnreadResult, lambda: prefill.capture("none"))
            return
        hook = device.before_operation = Fault(at if fault else -1, lasting)
        try:
            prefill.warm_up()
            prefill.capture("none")
        except Injected as error:
            assert error is hook.first
            counted["faults, capture"] += 1
            places.add(hook.name)
            device.before_operation = None
            if prefill.orphans:
                self.clean()
        else:
            assert hook.first is None
            self.captured, self.world.base = True, self.world.live()
            counted["captures"] += 1
            device.before_operation = None
            self.refused(errors.RegistrationError, lambda: prefill.capture("none"))
        finally:
            device.before_operation = None

    @rule(slot=st.integers(0, SLOTS - 1), prompt=st.integers(-1, PROMPTS - 1))
    def reset(self, slot: int, prompt: int) -> None:
        """Forget the slot, and perhaps give it another prompt."""
        sequence = self.world.sequences[slot]
        if self.run is not None or self.results:
            return  # the plans and results under way speak of this prompt
        self.world.prefill.reset(slot)
        sequence.open = sequence.dirty = False
        if prompt >= 0:
            sequence.prompt, sequence.committed = prompts()[prompt], 0

    # --- illegal calls --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.idle)
    @rule(drawn=ROWS, name=st.sampled_from(sorted(ILLEGAL)), which=st.integers(0, SLOTS - 1))
    def illegal(self, drawn: Any, name: str, which: int) -> None:
        """A legal call with one thing wrong in it."""
        rows = self.rows(drawn)
        if rows:
            arguments = self.arguments(rows, None)
            kind = ILLEGAL[name](arguments, rows, which % len(rows))
            if kind is not None:
                self.refused(kind, lambda: self.world.prefill.prefill_forward(**arguments))

    @precondition(lambda self: self.idle and any(sequence.dirty for sequence in self.world.sequences))
    @rule()
    def dirty(self) -> None:
        rows = [Row(sequence, 0, 40, True) for sequence in self.world.sequences if sequence.dirty]
        self.refused(errors.DirtySlot, lambda: self.world.prefill.prefill_forward(**self.arguments(rows, None)))

    # --- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def nothing_leaks_and_nothing_foreign_changes(self) -> None:
        counted["steps"] += 1
        held = {id(tensor) for result, _ in self.results for tensor in result.owned}
        assert len(self.world.live() - self.world.base) == len(held) + self.world.prefill.orphans
        assert self.world.base <= self.world.live()
        assert self.world.faults() == self.faults
        self.world.check_blocks(self.may_change)
        self.may_change = set()
        for sequence in self.world.sequences:
            self.world.check_sequence(sequence)

    def teardown(self) -> None:
        """The device is shared: what a run still holds goes back."""
        if self.run is not None:
            self.run.close()
        self.clean()
        assert self.world.live() == self.world.base


def choices(rows: int) -> list[Sampling]:
    """Rows are drawn and take the likeliest in turn."""
    return [Sampling(top_k=CANDIDATES if row % 2 == 0 else 1, seed=row) for row in range(rows)]


def watched(run: Iterator[InvocationResult], progress: SimpleNamespace) -> Iterator[InvocationResult]:
    """The run itself, noting how many results it gave and whether it ended by an error of its own."""
    try:
        while True:
            progress.inside = True
            result = next(run, None)
            progress.inside = False
            if result is None:
                return
            progress.yielded += 1
            yield result
    finally:
        run.close()


def test_random_calls_keep_every_promise(report: Callable[[str], None]):
    counted.clear(), places.clear()
    run_state_machine_as_test(
        Calls,
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=STEPS_OF_A_RUN,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    steps = counted.pop("steps")
    report(f"state machine: {steps} steps; {', '.join(f'{name} {number}' for name, number in sorted(counted.items()))}")
    report(f"state machine: faults were put into {', '.join(sorted(places))}")
    assert steps >= LEAST_STEPS

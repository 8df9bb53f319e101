"""The facade: what a serving engine or a script calls to have prompts prefilled.

One `Prefill` belongs to one device and one thread. It borrows weights and stores and never frees them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from time import perf_counter_ns
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from runtime.admission import Admission
from runtime.arguments import matrix
from runtime.backend import trace_region
from runtime.bindings import bind
from runtime.eager import Eager
from runtime.errors import PrefillError, ReentrantCall, UnknownMode
from runtime.estimate import estimates
from runtime.leases import StateSlots
from runtime.planner import Planner
from runtime.request import InvocationResult, PreparedPrefill, Sampling
from runtime.resources import forget_frames
from runtime.results import Collected, PendingReads, check_output, collect
from runtime.sampling import carry, resolve
from runtime.slices import SliceCursors
from runtime.snapshots import StateSnapshot, put_back, take
from runtime.states import States
from runtime.stats import PLAN, Snapshot
from runtime.tables import Shape, rotary_switch, state_slots
from runtime.traced import Traced
from runtime.warm_up import Progress, warm_up

DECODE_TRACES = ("captured", "none")
SINGLES_ONLY = "DISABLE_BATCHED_PREFILL"

log = logging.getLogger(__name__)


class Prefill:
    """Plans calls, runs them and collects their results.

    module: an emitted module. device: an open device of its board. weights, stores: what `runtime.weights.load_weights`
    and `runtime.stores.allocate` return, of equally many layers. trace_region_size: bytes that traces may take, by
    default what the device was opened with. most_delay: modelled seconds that the pass of a row may take longer than the one
    that it has by itself, where the module packs rows of any lengths into waves. Raises ModuleError or DeviceMismatch.
    """

    def __init__(
        self,
        module: ModuleType,
        device: Any,
        weights: SimpleNamespace,
        stores: SimpleNamespace,
        trace_region_size: int | None = None,
        most_delay: float = inf,
    ) -> None:
        self._bindings = bind(module, device, weights, stores)
        self._region = trace_region_size
        self._cursors = SliceCursors(rotary_switch(module))
        self._states = self._bindings.states
        positions = self._states.positions if self._states else None
        self._admission = Admission(module, self._cursors, self._bindings.blocks, positions)
        self._planner = Planner(module, most_delay)
        self._eager = Eager(self._bindings)
        self._traced = Traced(self._bindings)
        self._slots = StateSlots(state_slots(module), partial(_reset, self._cursors, self._states))
        self._pending = PendingReads()
        self._running = False

    @property
    def orphans(self) -> int:
        """Device tensors that could not be released; `cleanup()` retries them."""
        return self._bindings.ownership.orphans

    def prepare(
        self,
        tokens: Any,
        page_table: Any,
        prompt_lens: Any,
        start_pos: Any = None,
        slots: Any = None,
        sampling: str | Sampling | Sequence[Sampling] | None = None,
        final: bool | Sequence[bool] = True,
        slot_remap: Mapping[int, int] | None = None,
        keep_at: int | Sequence[int | None] | None = None,
    ) -> tuple[PreparedPrefill, ...]:
        """Plan a call. Nothing on the device is touched, and the plan keeps copies, so the arguments may be reused at
        once.

        tokens: ids [rows, width], each row a whole prompt from position 0 (what lies past its length is not read).
        page_table: blocks [rows, at least ceil(length / BLOCK_SIZE)]. prompt_lens: tokens of each prompt. start_pos:
        tokens of each that are in the cache already, multiples of BLOCK_SIZE. In a module with a ROTARY_SWITCH they
        must stem from prompts on the same side of it as this one, since keys of prompts past it are turned otherwise: a
        cache of prefixes needs `length > ROTARY_SWITCH` in its key. slots: the sequence each row belongs to,
        by default its index. sampling: None for logits, a name in the module's SAMPLING, one Sampling for all rows, or
        one for each. final: False for a slice of a prompt that the caller cuts itself: prompt_lens is then the slice's
        end, and no result is computed. slot_remap: old slot -> new slot of sequences under way that the engine has
        moved; `slots` are the new ones.

        In a module with recurrent state, slots are below STATE_SLOTS, and a start_pos above 0 is a position whose state the
        slot holds, or the slot holds none: then all tokens are computed, and keys and values below start_pos stay as they
        are. keep_at: a multiple of ALIGNMENT, or one for each row, whose state is kept beside the one at the end of the
        prompt, if it lies within what the call computes; by default where the last pass begins.

        The environment variable DISABLE_BATCHED_PREFILL, if set to anything but 0, makes every row run by itself.

        Raises RequestError, or a RowError that names the row, the numbers and the rows that could be served.
        """
        began = perf_counter_ns()
        try:
            self._bindings.ownership.require_clean()
            moves = self._cursors.moves(slot_remap)
            if self._states:
                for _, slot in moves:
                    self._states.positions.require_slot(slot)
            rows = self._admission.rows(tokens, page_table, prompt_lens, start_pos, slots, final, moves, keep_at)
            path, choices = resolve(self._bindings.module, sampling, len(rows))
            plans = self._planner.plan(rows, path, os.environ.get(SINGLES_ONLY, "0") not in ("", "0"))
            if choices or moves:
                plans = carry(plans, choices, matrix(tokens, "tokens"), moves)
            return plans
        finally:
            self._bindings.stats.spent(PLAN, began)

    def run(self, prepared: Iterable[PreparedPrefill], traced: bool = False) -> Iterator[InvocationResult]:
        """Run plans in order. Each result is yielded as soon as it is dispatched and belongs to the caller from then
        on.

        Plans run as the iterator is advanced; until it is exhausted or closed no other run may begin. With traced=True
        each result must be read (`collect` does) before the next is asked for, and TraceCoverage is raised here, before
        any device work, if any pass has no trace. On an error everything acquired is released and the device's own
        error is raised, with `cleanup_failures` attached.
        """
        plans = tuple(prepared)
        runner = self._traced if traced else self._eager
        for plan in plans:
            runner.check(plan)
        return self._run(plans, runner)

    def collect(self, results: Iterable[InvocationResult]) -> Collected:
        """Read results in turn, release each, and return them in the caller's row order.

        One tensor if every row has a value: logits float32 [rows, VOCABULARY] or token ids int64 [rows]. Otherwise a
        tuple with one entry for each row, None where the prompt is not finished. SampledTokens with one of these for
        tokens and one for log-probabilities where a row asked for them.
        """
        return collect(results, self._bindings.ownership, self._bindings.stats)

    def prefill_forward(
        self,
        tokens: Any,
        page_table: Any,
        prompt_lens: Any,
        start_pos: Any = None,
        slots: Any = None,
        sampling: str | Sampling | Sequence[Sampling] | None = None,
        final: bool | Sequence[bool] = True,
        slot_remap: Mapping[int, int] | None = None,
        out: torch.Tensor | None = None,
        traced: bool = False,
        keep_at: int | Sequence[int | None] | None = None,
    ) -> Collected:
        """`prepare`, `run` and `collect` in one call. `out`, if given, takes the result: float32 [rows, VOCABULARY] or
        int64 [rows].
        """
        prepared = self.prepare(tokens, page_table, prompt_lens, start_pos, slots, sampling, final, slot_remap, keep_at)
        if out is not None:
            rows = sum(len(plan.requests) for plan in prepared)
            check_output(out, rows, self._bindings.module.VOCABULARY, prepared[0].sampling)
        found = collect(self.run(prepared, traced), self._bindings.ownership, self._bindings.stats, out)
        if log.isEnabledFor(logging.INFO):
            log.info("prefill: %s", self.stats().line())
        return found

    def warm_up(self, progress: Progress | None = None) -> None:
        """Compile every program of the module and nothing else. Writes nothing to the stores.

        progress(done, total, name) is called after each program.
        """
        with self._exclusive():
            warm_up(self._bindings, progress)

    def capture(self, decode_traces: str) -> None:
        """Capture every shape of the module, after `warm_up`.

        decode_traces: "captured" if the decoder's traces exist already, "none" if it will have none. Decode must be
        captured first: what it allocates later would lie where replays of these traces write.

        Raises, before anything is captured, UnknownMode, NotCompiled, RegistrationError (captured already),
        UnreadResult or TraceRegionTooSmall. On a failure everything acquired is released.
        """
        if decode_traces not in DECODE_TRACES:
            raise UnknownMode(
                f"decode_traces is {decode_traces!r}; say 'captured' once the decoder's traces are, or 'none' if it has "
                f"none: they must not be captured after those of prefill"
            )
        self._pending.require_read("capture")
        region = trace_region(self._bindings.device) if self._region is None else self._region
        with self._exclusive():
            self._traced.capture(region)
        log.info("prefill: captured %d traces", len(self._bindings.registry.traces))

    def trace_bytes(self) -> dict[Shape, int]:
        """Estimated bytes of the trace region for each shape, unverified, known once `warm_up` has run."""
        return estimates(self._bindings.module, self._bindings.registry)

    def can_trace(
        self, tokens: Any, page_table: Any, prompt_lens: Any, start_pos: Any = None, slots: Any = None
    ) -> bool:
        """Whether a traced run could serve these rows as far as their shapes go. Plans nothing and raises nothing.

        slots matter in a module with recurrent state alone: where a row begins depends on what its slot holds.
        """
        registry = self._bindings.registry
        try:
            return all(
                (cached < length or bool(self._states))
                and all(map(registry.covers, self._planner.shapes(cached, begin, length)))
                for cached, begin, length in self._admission.spans(tokens, page_table, prompt_lens, start_pos, slots)
            )
        except PrefillError:
            return False

    def stats(self) -> Snapshot:
        """Everything counted so far, frozen."""
        return self._bindings.stats.snapshot()

    def reset(self, slot: int) -> None:
        """Forget how far a slot's prompt has come, also after a slice of it failed, and its recurrent state."""
        _reset(self._cursors, self._states, slot)

    def positions(self, slot: int) -> tuple[int, int] | None:
        """The two positions whose recurrent state a slot holds, (end, boundary), or None where it holds none."""
        held = self._states.positions[slot]
        return None if held is None else (held.end, held.boundary)

    def snapshot(self, slot: int) -> StateSnapshot:
        """A copy on the host of everything that a slot holds of recurrent state: every part of every recurrent layer, at the
        end and at the boundary. Keys and values are not in it.

        Returns once the device has given it all. Raises StateSlotError where the slot holds no state.
        """
        with self._exclusive():
            return take(self._bindings, slot)

    def restore(self, slot: int, snapshot: StateSnapshot) -> None:
        """Make a slot hold what a snapshot holds. Whatever else the slot was about is forgotten.

        Waits for everything that was submitted. Raises SnapshotMismatch, before anything is written, for a snapshot that is
        not whole or of another model, and StateSlotError for a slot that the module has not. A failure leaves the slot's
        state as it was.
        """
        with self._exclusive():
            held = put_back(self._bindings, slot, snapshot)
            self._cursors.reset(slot)
            self._states.positions.put({slot: held})

    def copy_state(self, from_slot: int, to_slot: int) -> None:
        """Make a slot hold what another one holds, as where a prompt is continued in two ways. No device work: what is held
        is never written again. Raises StateSlotError.
        """
        with self._exclusive():
            self._states.positions.share(from_slot, to_slot)
            self._cursors.reset(to_slot)

    @property
    def slots(self) -> StateSlots:
        """Leases of this runtime's state slots, for an engine that does not number its sequences itself."""
        return self._slots

    def cleanup(self) -> None:
        """Release what this runtime holds, in order: results nobody read, releases that failed before, traces with
        their inputs, programs, sampling buffers. Weights and stores are borrowed and stay.

        The runtime can be used again, eager at once and traced after `warm_up` and `capture`. Does nothing the second
        time. Raises CleanupFailed with every error, after all was tried; call it again.
        """
        self._refuse_open_run()
        try:
            self._bindings.ownership.cleanup(self._pending.tensors(), self._traced.held())
        finally:
            self._bindings.registry.forget_programs()

    def _run(self, plans: tuple[PreparedPrefill, ...], runner: Eager | Traced) -> Iterator[InvocationResult]:
        with self._exclusive():
            for plan in plans:
                yield self._invoke(plan, runner)

    def _invoke(self, plan: PreparedPrefill, runner: Eager | Traced) -> InvocationResult:
        if runner is self._traced:
            self._pending.require_read("the next replay")
        with self._bindings.stats.call(plan):
            self._begin(plan)
            result = runner.invoke(plan)
            self._cursors.commit(plan.requests)
            self._states.commit()
            self._bindings.stats.through(plan)
        self._pending.add(result)
        return result

    def _begin(self, plan: PreparedPrefill) -> None:
        """Moves first, which stand whatever comes after; then a look at what other plans did since this one was made."""
        self._cursors.move(plan.slot_remap)
        self._states.move(plan.slot_remap)
        self._cursors.recheck(plan.requests)
        self._states.begin(plan)
        self._cursors.mark(plan.requests)

    def _exclusive(self) -> _Exclusive:
        return _Exclusive(self)

    def _refuse_open_run(self) -> None:
        if self._running:
            raise ReentrantCall("a run is still open; exhaust or close its iterator before the next call")


def _reset(cursors: SliceCursors, states: States, slot: int) -> None:
    """No method, so that leases, which call it, keep no runtime and its traces alive."""
    cursors.reset(slot)
    states.forget(slot)


class _Exclusive:
    """Device work of one runtime, one at a time. Errors leave without the frames that would keep tensors alive."""

    def __init__(self, prefill: Prefill) -> None:
        self._prefill = prefill

    def __enter__(self) -> None:
        self._prefill._refuse_open_run()
        self._prefill._bindings.ownership.require_clean()
        self._prefill._running = True

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._prefill._running = False
        if error is not None:
            forget_frames(error)

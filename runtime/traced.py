"""Capture every shape of a module and replay it: who owns a trace and its inputs, and what a replay may touch.

From the first capture to the last release, whatever is allocated outside a captured body is freed or read before the
next replay, since a replay writes over all memory that was free when its body was recorded. Programs are compiled, and
persistent inputs of all traces allocated, before the first capture.
"""

from __future__ import annotations

from typing import Any

from runtime.backend import ttnn
from runtime.bindings import Bindings
from runtime.estimate import require_room
from runtime.postprocess import Workspace
from runtime.registry import Trace
from runtime.request import TOP_K, InvocationResult, PrefillChunk, PreparedPrefill, result
from runtime.resources import Scope
from runtime.stats import DISPATCH, STAGE


class Recording:
    """One trace of the device, from the moment that its capture begins. A scope owns it as it owns a tensor."""

    def __init__(self, module: Any, device: Any) -> None:
        self._device = device
        self._attempts = 0
        self.open = True
        self.held = True
        self.trace = module.begin_capture(device)

    def is_allocated(self) -> bool:
        return self.held

    def give_back(self) -> None:
        """End a capture that failed half way, then give the trace back.

        Whether the device still knows a recording that it refused to end cannot be asked: the second attempt gives up.
        """
        self._attempts += 1
        try:
            if self.open:
                ttnn.end_trace_capture(self._device, self.trace, cq_id=0)
                self.open = False
            ttnn.release_trace(self._device, self.trace)
        except Exception:
            self.held = self._attempts < 2
            raise
        self.held = False


class Traced:
    """The traces of one runtime."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.stager = bindings.stager
        self.postprocess = bindings.postprocess
        self.body = bindings.module.body
        self.states = bindings.states
        self._workspace: Workspace | None = None

    def capture(self, region_bytes: int) -> None:
        """Record the body of every shape. On a failure all that was acquired is released and the registry is open
        again.
        """
        registry, module = self.bindings.registry, self.bindings.module
        registry.begin_capture(module.TRACES, module.PROGRAMS)
        try:
            require_room(module, registry, region_bytes)
            with self.bindings.ownership.scope() as scope:
                kept = [self.stager.keep_pass(*self.stager.blank(shape), scope) for shape in module.TRACES]
                workspace = self.postprocess.workspace(scope)
                for shape, inputs in zip(module.TRACES, kept):
                    self._prime(shape, inputs)
                for shape, inputs in zip(module.TRACES, kept):
                    registry.register(self._record(shape, inputs, scope))
                scope.move_all()
        except BaseException:
            registry.forget_traces()
            raise
        self._workspace = workspace
        registry.activate()

    def check(self, prepared: PreparedPrefill) -> None:
        """Refuse, before any device work, a plan with a shape that has no trace or an ending that is not compiled."""
        registry = self.bindings.registry
        registry.require_coverage([chunk.shape for chunk in prepared.chunks])
        registry.require_compilable(prepared.chunks[-1].shape, prepared.sampling)

    def invoke(self, prepared: PreparedPrefill) -> InvocationResult:
        """Replay every chunk in order, and finish the last. What the tail allocates is the result's or released."""
        trace = None
        self.states.load(prepared)
        for chunk in prepared.chunks:
            self.states.reach(prepared, chunk)
            trace = self._replay(prepared, chunk)
        self.states.finish()
        if not prepared.final:
            return result(prepared, None, ())
        choice = self._choice(prepared)
        with self.bindings.stats.phase(DISPATCH), self.bindings.ownership.scope() as scope:
            output, scored = self.postprocess(
                trace.hidden, trace.inputs.tensors.last_rows, prepared.sampling, prepared.choices, choice, scope
            )
            owned = scope.move(*[tensor for tensor in (output, scored) if tensor is not None])
        return result(prepared, output, owned, scored)

    def held(self) -> list[Any]:
        """What `cleanup` releases, in order: every trace with its hidden rows and inputs, then the sampling buffers.

        The traces are forgotten: nothing can be replayed from here on.
        """
        things: list[Any] = []
        for trace in self.bindings.registry.forget_traces():
            things += [trace.recording, trace.hidden, *vars(trace.inputs.tensors).values()]
        if self._workspace is not None:
            for kept in (self._workspace.choice, self._workspace.seeds):
                things += vars(kept.tensors).values()
            self._workspace = None
        return things

    def _prime(self, shape: Any, inputs: Any) -> None:
        """The exact padded pass once, on the inputs it will be recorded over. They write nothing to the stores."""
        with self.bindings.ownership.scope() as scope:
            scope.own(self.body(inputs.tensors, self.bindings.weights, self.bindings.stores, shape))
        ttnn.synchronize_device(self.bindings.device)

    def _record(self, shape: Any, inputs: Any, scope: Scope) -> Trace:
        bindings = self.bindings
        recording = scope.own(Recording(bindings.module, bindings.device))
        hidden = scope.own(
            bindings.module.capture(
                bindings.device, recording.trace, inputs.tensors, bindings.weights, bindings.stores, shape
            )
        )
        recording.open = False
        return Trace(shape, recording, inputs, hidden)

    def _replay(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> Trace:
        trace = self.bindings.registry.lookup(chunk.shape)
        with self.bindings.stats.phase(STAGE):
            self.stager.refresh_pass(trace.inputs, prepared, chunk)
        with self.bindings.stats.phase(DISPATCH):
            self.bindings.module.replay(self.bindings.device, trace.recording.trace)
        self.bindings.stats.submitted(prepared, chunk, replayed=True)
        return trace

    def _choice(self, prepared: PreparedPrefill) -> Any:
        if prepared.sampling != TOP_K:
            return None
        with self.bindings.stats.phase(STAGE), self.bindings.ownership.scope() as scope:
            self.postprocess.refresh(self._workspace, prepared.choices, scope)
        return self._workspace.choice.tensors

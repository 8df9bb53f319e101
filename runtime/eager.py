"""Run a plan pass by pass, each operation dispatched as the body calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from runtime.bindings import Bindings
from runtime.request import TOP_K, InvocationResult, PrefillChunk, PreparedPrefill, result
from runtime.resources import Scope
from runtime.stats import DISPATCH, STAGE


class Eager:
    """Runs plans of one runtime without traces."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.stager = bindings.stager
        self.postprocess = bindings.postprocess
        self.body = bindings.module.body
        self.states = bindings.states

    def check(self, prepared: PreparedPrefill) -> None:
        """Refuse what would have to be compiled while traces live, before anything is staged."""
        for chunk in prepared.chunks:
            self.bindings.registry.require_compilable(chunk.shape, prepared.sampling)

    def invoke(self, prepared: PreparedPrefill) -> InvocationResult:
        """All chunks in order; the head runs once, on the last one. The result owns what it carries, everything else
        is released.

        The output of a chunk that is not the last is released before the next one is staged, so that one hidden tensor
        lives at a time.
        """
        ownership, stats = self.bindings.ownership, self.bindings.stats
        *earlier, last = prepared.chunks
        self.states.load(prepared)
        with ownership.scope() as scope:
            choice = self._choice(prepared, scope) if earlier else None
            for chunk in earlier:
                self.states.reach(prepared, chunk)
                with ownership.scope() as inner:
                    self._execute(prepared, chunk, self._stage(prepared, chunk, inner), inner)
            self.states.reach(prepared, last)
            inputs = self._stage(prepared, last, scope)
            choice = choice or self._choice(prepared, scope)
            hidden = self._execute(prepared, last, inputs, scope)
            self.states.finish()
            if not prepared.final:
                return result(prepared, None, scope.move())
            with stats.phase(DISPATCH):
                scope.release(*[tensor for tensor in vars(inputs).values() if tensor is not inputs.last_rows])
                output, scored = self.postprocess(
                    hidden, inputs.last_rows, prepared.sampling, prepared.choices, choice, scope
                )
                owned = scope.move(*[tensor for tensor in (output, scored) if tensor is not None])
        return result(prepared, output, owned, scored)

    def _choice(self, prepared: PreparedPrefill, scope: Scope) -> SimpleNamespace | None:
        if not prepared.final or prepared.sampling != TOP_K:
            return None
        with self.bindings.stats.phase(STAGE):
            return self.postprocess.stage(prepared.choices, scope)

    def _stage(self, prepared: PreparedPrefill, chunk: PrefillChunk, scope: Scope) -> SimpleNamespace:
        with self.bindings.stats.phase(STAGE):
            return self.stager.stage(prepared, chunk, scope)

    def _execute(self, prepared: PreparedPrefill, chunk: PrefillChunk, inputs: SimpleNamespace, scope: Scope) -> Any:
        with self.bindings.stats.phase(DISPATCH):
            hidden = scope.own(self.body(inputs, self.bindings.weights, self.bindings.stores, chunk.shape))
        self.bindings.stats.submitted(prepared, chunk, replayed=False)
        return hidden

"""Run a plan pass by pass, each operation dispatched as the body calls it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.postprocess import postprocess
from runtime.request import InvocationResult, PreparedPrefill
from runtime.resources import Ownership, Scope
from runtime.staging import HostValues, stage


def run_eager(
    module: ModuleType,
    device: Any,
    weights: SimpleNamespace,
    stores: SimpleNamespace,
    values: HostValues,
    ownership: Ownership,
    prepared: PreparedPrefill,
) -> InvocationResult:
    """All chunks in order; the head runs once, on the last one. The result owns what it carries, everything else is
    released.

    The output of a chunk that is not the last is released before the next one is staged, so that one hidden tensor
    lives at a time.
    """
    *earlier, last = prepared.chunks

    def execute(scope: Scope, chunk: Any) -> tuple[SimpleNamespace, Any]:
        inputs = stage(device, values, prepared, chunk, scope)
        return inputs, scope.own(module.body(inputs, weights, stores, chunk.shape))

    for chunk in earlier:
        with ownership.scope() as scope:
            execute(scope, chunk)
    with ownership.scope() as scope:
        inputs, hidden = execute(scope, last)
        output = None
        if prepared.final:
            scope.release(*[tensor for tensor in vars(inputs).values() if tensor is not inputs.last_rows])
            output = postprocess(module, weights, hidden, inputs.last_rows, prepared.sampling, scope)
        owned = () if output is None else scope.move(output)
    return InvocationResult(prepared.source_rows, prepared.slots, prepared.sampling, output, owned)

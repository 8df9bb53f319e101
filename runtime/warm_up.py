"""Compile exactly what a module lists: every body with every ending, on inputs that write nothing to the stores."""

from __future__ import annotations

from collections.abc import Callable

from runtime.backend import count_operations
from runtime.bindings import Bindings
from runtime.registry import name
from runtime.request import LOGITS, TOP_K, Sampling
from runtime.tables import Shape

Progress = Callable[[int, int, str], None]


def warm_up(bindings: Bindings, progress: Progress | None = None) -> None:
    """Run each of the module's PROGRAMS once, and the copies of recurrent states. Those that ran before are passed over.

    progress: told after each program how many are done, how many there are, and its name.
    """
    bindings.states.compile()
    shapes = {shape.digest: shape for shape in bindings.module.TRACES}
    endings: dict[Shape, list[str]] = {shape: [] for shape in bindings.module.TRACES}
    for digest, ending in bindings.module.PROGRAMS:
        endings[shapes[digest]].append(ending)
    done, total = 0, len(bindings.module.PROGRAMS)
    for shape, wanted in endings.items():
        for ending in _run(bindings, shape, wanted):
            done += 1
            if progress is not None:
                progress(done, total, f"{name(shape)}, {ending}")


def _run(bindings: Bindings, shape: Shape, endings: list[str]) -> list[str]:
    registry = bindings.registry
    if {(shape.digest, ending) for ending in endings} <= registry.programs and registry.is_counted(shape):
        return endings
    for ending in endings:
        registry.require_compilable(shape, ending)
    with bindings.ownership.scope() as scope:
        inputs = bindings.stager.stage(*bindings.stager.blank(shape), scope)
        hidden, operations = count_operations(
            bindings.device, lambda: bindings.module.body(inputs, bindings.weights, bindings.stores, shape)
        )
        scope.own(hidden)
        for ending in endings:
            choices = () if ending == LOGITS else (Sampling(seed=0, log_probabilities=True),)
            with bindings.ownership.scope() as inner:
                choice = bindings.postprocess.stage(choices, inner) if ending == TOP_K else None
                bindings.postprocess(hidden, inputs.last_rows, ending, choices, choice, inner)
            registry.compiled(shape, ending)
    registry.counted(shape, operations)
    return endings

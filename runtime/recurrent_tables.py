"""Checks of what a module states about recurrent layers: a contradiction here would show as a wrong state, not as an error."""

from __future__ import annotations

from types import ModuleType

from runtime.backend import ttnn
from runtime.errors import ModuleError
from runtime.tables import (
    FORMS,
    FULL,
    RECURRENT,
    SLIDING,
    TILE,
    layer_kinds,
    of_kind,
    recurrence,
    state_slots,
    states,
)

INPUTS = ("valid", "tail_selection", "tail_picks")  # what keeps padding out of states
STORED = ("float32", "bfloat16")  # types of the held state of a scan, which itself is float32


def check_recurrence(module: ModuleType) -> None:
    """Raise ModuleError unless kinds of layers, states, slots, alignment and forms of the recurrence agree."""
    kinds = layer_kinds(module)
    unknown = [kind for kind in kinds if kind not in (RECURRENT, FULL, SLIDING)]
    if unknown:
        raise ModuleError(
            f"{module.__name__}.LAYER_KINDS has {unknown[0]!r}; this runtime knows {RECURRENT}, {FULL} and {SLIDING}"
        )
    if RECURRENT not in kinds and not states(module):
        if state_slots(module) or recurrence(module):
            raise ModuleError(f"{module.__name__} has STATE_SLOTS or RECURRENCE and no layer of kind {RECURRENT}")
        return
    if len(kinds) != module.LAYERS:
        raise ModuleError(f"{module.__name__}.LAYER_KINDS has {len(kinds)} entries for {module.LAYERS} layers")
    for name in ("STATES", "STATE_SLOTS", "RECURRENCE"):
        if not getattr(module, name, None):
            raise ModuleError(f"{module.__name__} has layers of kind {RECURRENT} and lacks {name}")
    _check_states(module)
    _check_passes(module)


def _check_states(module: ModuleType) -> None:
    if type(module.STATE_SLOTS) is not int or module.STATE_SLOTS < 1:
        raise ModuleError(f"{module.__name__}.STATE_SLOTS is {module.STATE_SLOTS!r}, not a positive integer")
    names = [entry.name for entry in (*module.STATES, *module.STORES)]
    if len({*names, "slots"}) <= len(names):
        raise ModuleError(
            f"stores and states are named {', '.join(names)}; give each a name of its own, and none slots"
        )
    for part in module.STATES:
        layers = of_kind(module, module.LAYERS, RECURRENT)
        if part.layers != layers:
            raise ModuleError(
                f"the state {part.name} is of {part.layers} layers and LAYER_KINDS has {layers} of {RECURRENT}"
            )
        if part.name == "states" and part.dtype not in [getattr(ttnn, name) for name in STORED]:
            raise ModuleError(
                f"the state {part.name} is stored as {part.dtype}; this runtime stores {' or '.join(STORED)}"
            )
    for store in module.STORES:
        layers = of_kind(module, module.LAYERS, FULL)
        if store.layers != layers:
            raise ModuleError(
                f"the store {store.name} is of {store.layers} layers and LAYER_KINDS has {layers} of {FULL}"
            )


def _check_passes(module: ModuleType) -> None:
    if module.ALIGNMENT % TILE:
        raise ModuleError(
            f"{module.__name__}.ALIGNMENT {module.ALIGNMENT} is no multiple of {TILE}, the least chunk of a recurrence"
        )
    rows = {shape.rows for shape in module.TRACES}
    for count, form in module.RECURRENCE.items():
        if count not in rows or form not in FORMS:
            raise ModuleError(
                f"{module.__name__}.RECURRENCE has {form!r} for {count} rows; its passes have "
                f"{', '.join(map(str, sorted(rows)))} rows and forms are {', '.join(FORMS)}"
            )
    if min(rows) not in module.RECURRENCE:
        raise ModuleError(f"{module.__name__}.RECURRENCE lacks {min(rows)} rows, to which larger waves fall back")
    if not any(shape.read_pages for shape in module.TRACES) and module.ALIGNMENT < module.CONTEXT:
        raise ModuleError(
            f"{module.__name__} has no chunks: nothing could begin at a held state, which ALIGNMENT {module.ALIGNMENT} "
            f"allows from there on"
        )
    for variant, inputs in module.INPUTS.items():
        for shape in module.TRACES:
            if shape.variant != variant:
                continue
            missing = set(INPUTS) - {entry.name for entry in inputs(shape)}
            if missing:
                raise ModuleError(
                    f"{shape}: lacks the inputs {', '.join(sorted(missing))}, without which padding changes states"
                )

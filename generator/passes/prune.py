"""Prune what nothing uses: imports, helper functions and constants that another model's module needs."""

from __future__ import annotations

import libcst as cst

from generator.passes.names import definition, imported, reads, uses

# What the runtime and the reader of a module look up from outside; everything else must be used inside.
INTERFACE = frozenset(
    """MODEL TARGET VOCABULARY HIDDEN LAYERS QUERY_HEADS KEY_VALUE_HEADS HEAD_DIM ROTARY_STYLE ROTARY_SWITCH LAYER_KINDS
    WINDOW_REACH CONTEXT BLOCK_SIZE KEY_VALUE_BLOCKS PREFILL_CHUNK ALIGNMENT ROW_SLOTS GEOMETRY BOARD WAVES LENGTHS RAGGED_TOKENS TRACES
    SAMPLING PROGRAMS WEIGHTS LAYER_WEIGHTS STORES STATES STATE_SLOTS RECURRENCE INPUTS SAMPLING_INPUTS embed rotary layers body logits argmax top_k log_probabilities
    begin_capture capture replay""".split()
)


def _unused(module: cst.Module) -> set[str]:
    defined: set[str] = set()
    used: set[str] = set(INTERFACE)
    for statement in module.body:
        name = definition(statement)
        if name is not None:
            defined.add(name)
        if imported(statement) is None:
            used |= reads(statement)
    return defined - used


def _without(module: cst.Module, unused: set[str]) -> cst.Module:
    """The module without the statements that bind unused names; a section's heading passes on to the next statement."""
    kept: list[cst.BaseStatement] = []
    pending: list[cst.EmptyLine] = []
    for statement in module.body:
        if definition(statement) in unused:
            pending += [line for line in statement.leading_lines if is_heading(line)]
            continue
        if pending:
            statement = statement.with_changes(leading_lines=[*pending, *statement.leading_lines])
            pending = []
        kept.append(statement)
    return module.with_changes(body=kept)


def is_heading(line: cst.EmptyLine) -> bool:
    """Whether a blank or comment line is the heading of a section."""
    return line.comment is not None and line.comment.value.startswith("# ---")


def _prune_imports(module: cst.Module) -> cst.Module:
    used: set[str] = set()
    for statement in module.body:
        if imported(statement) is None:
            used |= uses(statement)
    body: list[cst.BaseStatement] = []
    for statement in module.body:
        line = imported(statement)
        if line is None:
            body.append(statement)
            continue
        names = [alias for alias in line.names if alias.name.value in used]
        if names:
            names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            body.append(statement.with_changes(body=[line.with_changes(names=names)]))
    return module.with_changes(body=body)


def prune_unused(module: cst.Module) -> cst.Module:
    """Drop unused definitions until none is left, then unused imports."""
    while unused := _unused(module):
        module = _without(module, unused)
    return _prune_imports(module)

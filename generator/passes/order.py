"""Order the definitions of a section so that each stands below the ones it uses, as a reader meets them."""

from __future__ import annotations

import libcst as cst

from generator.passes.names import definition, uses
from generator.passes.prune import is_heading


def _sections(module: cst.Module) -> list[list[cst.BaseStatement]]:
    """Top-level statements cut before each heading."""
    sections: list[list[cst.BaseStatement]] = [[]]
    for statement in module.body:
        if any(is_heading(line) for line in statement.leading_lines):
            sections.append([])
        sections[-1].append(statement)
    return [section for section in sections if section]


def _split_heading(statement: cst.BaseStatement) -> tuple[list[cst.EmptyLine], cst.BaseStatement]:
    """The lines up to and with the heading, and the statement with what comes after it."""
    lines = list(statement.leading_lines)
    cut = max((index + 1 for index, line in enumerate(lines) if is_heading(line)), default=0)
    return lines[:cut], statement.with_changes(leading_lines=lines[cut:])


def _ordered(section: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Depth first over uses within the section; where nothing forces an order, the template's stays."""
    heading, first = _split_heading(section[0])
    statements = [first, *section[1:]]
    where = {definition(statement): index for index, statement in enumerate(statements)}
    placed: list[int] = []
    entered: set[int] = set()

    def place(index: int) -> None:
        if index in entered:
            return
        entered.add(index)
        for needed in sorted(where[name] for name in uses(statements[index]) if name in where):
            place(needed)
        placed.append(index)

    for index in range(len(statements)):
        place(index)
    result = [statements[index] for index in placed]
    result[0] = result[0].with_changes(leading_lines=[*heading, *result[0].leading_lines])
    return result


def order_definitions(module: cst.Module) -> cst.Module:
    """Within each section, move a definition above the first one that uses it."""
    return module.with_changes(body=[statement for section in _sections(module) for statement in _ordered(section)])

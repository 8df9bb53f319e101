"""What a top-level statement of an emitted module defines and which names it uses."""

from __future__ import annotations

from functools import lru_cache

import libcst as cst


class _Uses(cst.CSTVisitor):
    """Names read anywhere below a node: attribute names and keyword names are not names of the module."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802 (libcst's names)
        self.names.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
        node.value.visit(self)
        return False


@lru_cache(maxsize=4096)
def uses(node: cst.CSTNode) -> frozenset[str]:
    """Names that a node reads. Nodes never change, and most statements meet several passes: the answer is kept."""
    visitor = _Uses()
    node.visit(visitor)
    return frozenset(visitor.names)


def reads(statement: cst.BaseStatement) -> frozenset[str]:
    """Names that a top-level statement uses without binding them: a function that only calls itself reads nothing."""
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
        return uses(statement.body[0].value)
    return uses(statement) - {definition(statement)}


def imported(statement: cst.BaseStatement) -> cst.ImportFrom | None:
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.ImportFrom):
        return statement.body[0]
    return None


def definition(statement: cst.BaseStatement) -> str | None:
    """The one name that a top-level statement binds (a function or a constant), if it binds one."""
    if isinstance(statement, cst.FunctionDef):
        return statement.name.value
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
        target = statement.body[0].targets[0].target
        if isinstance(target, cst.Name):
            return target.value
    return None

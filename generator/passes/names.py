"""What a top-level statement of an emitted module defines and which names it uses."""

from __future__ import annotations

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


def uses(node: cst.CSTNode) -> set[str]:
    visitor = _Uses()
    node.visit(visitor)
    return visitor.names


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

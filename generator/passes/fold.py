"""Fold branches whose condition is a literal, so that no choice made at build time is left to run time."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from generator.passes.names import walk


def _literal(node: cst.BaseExpression) -> bool | None:
    """The truth of a condition made of True, False, not, and, or; None where it is not known."""
    if isinstance(node, cst.Name) and node.value in ("True", "False"):
        return node.value == "True"
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        operand = _literal(node.expression)
        return None if operand is None else not operand
    if isinstance(node, cst.BooleanOperation):
        sides = (_literal(node.left), _literal(node.right))
        decisive = isinstance(node.operator, cst.Or)
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive
    return None


def _remaining(node: cst.If | cst.Else | None) -> cst.If | cst.Else | None:
    """What is left of a chain of branches: a shorter chain, the branch that is always taken as an Else, or None."""
    if not isinstance(node, cst.If):
        return node
    rest, truth = _remaining(node.orelse), _literal(node.test)
    if truth is None:
        return node.with_changes(orelse=rest)
    return cst.Else(body=node.body) if truth else rest


def _is_pass(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Pass)


class _Fold(cst.CSTTransformer):
    def __init__(self) -> None:
        super().__init__()
        self.later_branches: set[cst.If] = set()  # an `elif` is folded with the chain that it belongs to

    def visit_If(self, node: cst.If) -> None:  # noqa: N802 (libcst's names)
        if isinstance(node.orelse, cst.If):
            self.later_branches.add(node.orelse)

    def leave_If(self, original_node: cst.If, updated_node: cst.If):  # noqa: N802
        if original_node in self.later_branches:
            return updated_node
        left = _remaining(updated_node)
        if isinstance(left, cst.If):
            return left.with_changes(leading_lines=updated_node.leading_lines)
        statements = [statement for statement in left.body.body if not _is_pass(statement)] if left else []
        if not statements:
            return cst.RemoveFromParent()
        # Comments that stood before the branch stay, before the first statement of it.
        above = [*updated_node.leading_lines, *statements[0].leading_lines]
        statements[0] = statements[0].with_changes(leading_lines=above)
        return cst.FlattenSentinel(statements)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp):  # noqa: N802
        truth = _literal(updated_node.test)
        if truth is None:
            return updated_node
        return updated_node.body if truth else updated_node.orelse

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg):  # noqa: N802
        """A keyword that folded to None is an option this module does not use."""
        folded = isinstance(original_node.value, cst.IfExp) and isinstance(updated_node.value, cst.Name)
        if folded and updated_node.keyword is not None and updated_node.value.value == "None":
            return cst.RemoveFromParent()
        return updated_node


def _folded(statement: cst.BaseStatement) -> Iterable[cst.BaseStatement]:
    """What is left of a top-level statement; one without a branch stays as it is, which most are."""
    if not any(isinstance(node, (cst.If, cst.IfExp)) for node in walk(statement)):
        return (statement,)
    left = statement.visit(_Fold())
    if isinstance(left, cst.RemovalSentinel):
        return ()
    return left if isinstance(left, cst.FlattenSentinel) else (left,)


def fold_constants(module: cst.Module) -> cst.Module:
    """Take the known branch of every `if` on a literal; a keyword argument that folds to None goes away altogether."""
    return module.with_changes(body=[left for statement in module.body for left in _folded(statement)])

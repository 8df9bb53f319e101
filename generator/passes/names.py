"""What a top-level statement of an emitted module defines and which names it uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache, lru_cache

import libcst as cst

# Fields of nodes that say how code is laid out and hold none of it.
LAYOUT = frozenset("lpar rpar comma semicolon equal dot leading_lines lines_after_decorators header footer".split())


@cache
def _code_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name not in LAYOUT and "whitespace" not in one.name)


@cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, cst.CSTNode)  # slow to ask, since the library's nodes are of an abstract class


def parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes right below one, in the order of its fields, without those of layout.

    The library's own visitors make every node anew, also for those who only read: this looks and makes nothing.
    """
    for name in _code_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, (list, tuple)):
            yield from value
        elif _is_node(type(value)):
            yield value


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, each before what it holds."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(list(parts(found)))


@lru_cache(maxsize=4096)
def uses(node: cst.CSTNode) -> frozenset[str]:
    """Names read anywhere below a node: attribute names and keyword names are not names of the module.

    Nodes never change, and most statements meet several passes: the answer is kept.
    """
    names: set[str] = set()
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, cst.Name):
            names.add(found.value)
        elif isinstance(found, (cst.Attribute, cst.Arg)):
            waiting.append(found.value)
        else:
            waiting += parts(found)
    return frozenset(names)


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

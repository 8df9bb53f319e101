"""What lies behind a line of an emitted module: the statement it stands in and the tables and constants that the
statement reads."""

from __future__ import annotations

import ast
from functools import lru_cache

ENTRIES = ("Weight", "Store", "Input")  # constructors of table entries, whose first argument is a name
SHOWN = 320  # characters of a statement


@lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _statement(tree: ast.Module, line: int) -> ast.AST | None:
    """The smallest statement that the line belongs to; of one with a body only its head."""
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= _last(node):
            if found is None or node.lineno >= found.lineno:
                found = node
    return found


def _last(node: ast.AST) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if isinstance(body, list) and body else node.end_lineno


def _entries(tree: ast.Module) -> dict[str, ast.AST]:
    """Entries of the module's tables by their names."""
    return {
        node.args[0].value: node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ENTRIES
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def entry_line(source: str, name: str) -> int:
    """The line on which a table of the module states the weight, store or input of this name; 0 where none does."""
    tree = _tree(source)
    node = _entries(tree).get(name) if tree else None
    return node.lineno if node else 0


def code_at(source: str, line: int) -> str:
    """The statement of a line on one line, cut where it is long; the bare line where the module does not parse."""
    lines, tree = source.split("\n"), _tree(source)
    if not 1 <= line <= len(lines):
        return ""
    statement = _statement(tree, line) if tree else None
    taken = lines[statement.lineno - 1 : _last(statement)] if statement else [lines[line - 1]]
    text = " ".join(" ".join(taken).split()).replace("( ", "(").replace(" )", ")")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def lines_behind(source: str, line: int) -> tuple[int, ...]:
    """Lines whose values a line computes with, its own statement first: then what that reads by name, and what those
    read."""
    tree = _tree(source)
    statement = _statement(tree, line) if tree else None
    if statement is None:
        return (line,)
    constants = {
        target.id: node
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    entries = _entries(tree)
    waiting, lines = [statement], []
    for node in waiting:  # grows while it is walked
        lines += range(node.lineno, (_last(node) if isinstance(node, ast.stmt) else node.end_lineno) + 1)
        for one in _parts(node):
            behind = None
            if isinstance(one, ast.Name):
                behind = constants.get(one.id)
            elif isinstance(one, ast.Attribute):
                behind = entries.get(one.attr)
            if behind is not None and behind not in waiting:
                waiting.append(behind)
    return tuple(dict.fromkeys(lines))


def _parts(node: ast.AST) -> list[ast.AST]:
    """All parts of a statement, of one with a body only those of its head."""
    skipped = {id(part) for child in getattr(node, "body", []) or [] for part in ast.walk(child)}
    return (
        [part for part in ast.walk(node) if id(part) not in skipped]
        if isinstance(node, ast.stmt)
        else list(ast.walk(node))
    )

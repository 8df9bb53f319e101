"""Check every use of ttnn in the finished text against the recorded signatures; it runs last, where lines are final."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from generator.passes.invariants import InvariantError
from generator.signatures import Argument, Instance, Problem, Table, Unknown, nearest, read, refused
from generator.source_map import Origin

LIBRARY = "ttnn"


def _dotted(node: ast.expr) -> str | None:
    """The whole name of an attribute of the library, None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id if node.id == LIBRARY else None
    if isinstance(node, ast.Attribute):
        holder = _dotted(node.value)
        return holder and f"{holder}.{node.attr}"
    return None


def _constants(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names that the module binds exactly once, at its top level, with what they are bound to, in order."""
    bound: Counter[str] = Counter()
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif isinstance(node, ast.arg):
            bound[node.arg] += 1
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
            if bound[target.id] == 1:
                yield target.id, statement.value


class _Check(ast.NodeVisitor):
    def __init__(self, module: ast.Module, table: Table) -> None:
        self.table = table
        self.problems: list[Problem] = []
        self.constants: dict[str, Any] = {}
        for name, value in _constants(module):
            self.constants[name] = self.value(value)

    def value(self, node: ast.expr) -> Any:
        """What the text tells of a value."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self.value(node.operand)
            return -operand if isinstance(operand, (int, float)) else Unknown()
        if isinstance(node, (ast.Tuple, ast.List)) and not any(isinstance(item, ast.Starred) for item in node.elts):
            items = [self.value(item) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, Unknown())
        if isinstance(node, ast.Attribute) and (name := _dotted(node)) in self.table.names:
            return Instance(self.table.names[name])
        if isinstance(node, ast.Call):
            returned = {form.returns for form in self.table.calls.get(_dotted(node.func) or "", ())}
            if len(returned) == 1 and returned <= self.table.types.keys():
                return Instance(returned.pop())
        return Unknown()

    def arguments(self, node: ast.Call) -> Iterator[Argument]:
        for item in node.args:
            yield Argument(None, self.value(item), item.lineno)
        for keyword in node.keywords:
            yield Argument(keyword.arg, self.value(keyword.value), keyword.lineno)

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802 (ast's names)
        name = _dotted(node.func)
        if name in self.table.calls:
            self.check(name, node)
        else:
            if name in self.table.names:
                self.problems.append(Problem(node.lineno, f"{name} is a {self.table.names[name]}, no operation"))
            self.visit(node.func)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    def check(self, name: str, node: ast.Call) -> None:
        if any(isinstance(item, ast.Starred) for item in node.args) or any(one.arg is None for one in node.keywords):
            self.problems.append(Problem(node.lineno, f"{name} gets its arguments by * or **, which nobody can check"))
            return
        for problem in refused(name, list(self.arguments(node)), self.table):
            self.problems.append(Problem(problem.line or node.lineno, problem.message))

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        name = _dotted(node)
        if name is None:
            self.generic_visit(node)
        elif name not in self.table.calls and name not in self.table.names:
            hint = nearest(name, self.table.calls.keys() | self.table.names)
            record = "if the library has it, generator/record_signatures.py lists it and records it"
            self.problems.append(Problem(node.lineno, f"{name} is not recorded{hint or f'; {record}'}"))

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802
        if node.id == LIBRARY:
            self.problems.append(
                Problem(node.lineno, f"{LIBRARY} itself is a value here, which hides what is used of it")
            )


def misuses(module: ast.Module, table: Table) -> list[Problem]:
    """Every use of ttnn in a module that the library of the table does not have, in the order of its lines."""
    check = _Check(module, table)
    check.visit(module)
    return sorted(check.problems, key=lambda problem: problem.line)


def check_signatures(module: ast.Module, text: str, origins: Sequence[Origin | None]) -> None:
    """Raise InvariantError naming for every misuse the emitted line and the template line that made it."""
    table = read()
    found = misuses(module, table)
    if not found:
        return
    lines = text.split("\n")
    told = []
    for problem in found:
        origin = next((one for one in reversed(origins[: problem.line]) if one), None)
        made = f", from {origin.template}:{origin.line}" if origin else ""
        told.append(f"\n  line {problem.line}{made}: {problem.message}\n      {lines[problem.line - 1].strip()}")
    raise InvariantError(f"the emitted module does not call ttnn {table.version} as it is:{''.join(told)}\n")

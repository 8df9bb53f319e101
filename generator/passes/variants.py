"""Tables by variant keep the variants that the module's passes have: a model without waves has none of what waves need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from generator.passes.names import walk

VARIANTS = frozenset(("single", "batched", "ragged", "chunked", "chunked_batched"))


def drop_variants(module: cst.Module) -> cst.Module:
    """Drop from every table whose keys are variants, or pairs that end in one, the entries of those that no Shape has."""
    nodes = {statement: tuple(walk(statement)) for statement in module.body}
    drop = _Drop(VARIANTS - {variant for found in nodes.values() for variant in _of_shapes(found)})
    body = [statement.visit(drop) if any(map(drop.wanted, found)) else statement for statement, found in nodes.items()]
    return module.with_changes(body=body)


def _of_shapes(nodes: Iterable[cst.CSTNode]) -> Iterator[str]:
    """The first arguments of all calls of Shape."""
    for node in nodes:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "Shape":
            yield _text(node.args[0].value)


class _Drop(cst.CSTTransformer):
    def __init__(self, absent: frozenset[str]) -> None:
        self._absent = absent

    def wanted(self, node: cst.CSTNode) -> bool:
        """Whether a node is a table of which an entry goes: trees are visited, which is slow, for these alone."""
        if not isinstance(node, cst.Dict):
            return False
        variants = {_variant(element) for element in node.elements}
        return VARIANTS.issuperset(variants) and not self._absent.isdisjoint(variants)

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:  # noqa: N802 (libcst's names)
        if not self.wanted(updated_node):
            return updated_node
        kept = [element for element in updated_node.elements if _variant(element) not in self._absent]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=updated_node.elements[-1].comma)
        return updated_node.with_changes(elements=kept)


def _variant(element: cst.BaseDictElement) -> str:
    """The variant that a key says, "" for any other key."""
    key = element.key if isinstance(element, cst.DictElement) else None
    if isinstance(key, cst.Tuple) and key.elements:
        key = key.elements[-1].value
    return _text(key)


def _text(node: cst.CSTNode | None) -> str:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""

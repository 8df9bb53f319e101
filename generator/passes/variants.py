"""Tables by variant keep the variants that the module's passes have: a model without waves has none of what waves need."""

from __future__ import annotations

import libcst as cst

VARIANTS = frozenset(("single", "batched", "ragged", "chunked", "chunked_batched"))


def drop_variants(module: cst.Module) -> cst.Module:
    """Drop from every table whose keys are variants, or pairs that end in one, the entries of those that no Shape has."""
    found = _Shapes()
    module.visit(found)
    return module.visit(_Drop(VARIANTS - found.variants))


class _Shapes(cst.CSTVisitor):
    """The first arguments of all calls of Shape."""

    def __init__(self) -> None:
        self.variants: set[str] = set()

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Name) and node.func.value == "Shape":
            self.variants.add(_text(node.args[0].value))


class _Drop(cst.CSTTransformer):
    def __init__(self, absent: frozenset[str]) -> None:
        self._absent = absent

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        variants = [_variant(element) for element in updated_node.elements]
        if not variants or not VARIANTS.issuperset(variants) or not self._absent & set(variants):
            return updated_node
        kept = [element for element, variant in zip(updated_node.elements, variants) if variant not in self._absent]
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

"""Checkpoint tensors -> the form that the device holds: the rules that a module's weight table names.

A rule takes the tensors of its sources, as published (projections are [out, in]), and returns the device tensor's
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from runtime.errors import ModuleError
from runtime.rope import angles, half_split, interleave_pairs, interleaved, pair_rotation
from runtime.tables import Geometry, Weight

Rule = Callable[[Sequence[Tensor], Weight, Geometry], Tensor]
TILE = 32  # columns of a device tile
TURNED = 2  # of query, key and value, the first two are turned by the rotary embedding


def rows(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    return sources[0]


def projection(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Stack along the outputs, then [out, in] -> [in, out]."""
    return torch.cat(tuple(sources)).t().contiguous()


def paired_projection(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Two projections of one width, [out, in] each -> [in, 2 x out] whose column tiles are of the first and second in turn."""
    first, second = (source.reshape(-1, TILE, source.shape[1]) for source in sources)
    return torch.stack((first, second), dim=1).reshape(-1, sources[0].shape[1]).t().contiguous()


def vector(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Stack, then lay out as the table says: a bias is one row, a norm is rows of one tile's width."""
    return torch.cat(tuple(sources)).reshape(weight.shape)


def turned(rule: Rule) -> Rule:
    """`rule` on query and key sources whose heads were reordered to interleaved pairs; a value source stays as it
    is.
    """

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        pairs = [interleave_pairs(source, geometry.head_dim) for source in sources[:TURNED]]
        return rule([*pairs, *sources[TURNED:]], weight, geometry)

    return apply


def rotary_table(function: Callable[[Tensor], Tensor], spread: Callable[[Tensor], Tensor]) -> Rule:
    """Cosines or sines of every position of the context."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return spread(function(angles(geometry.rope, weight.shape[0])))

    return apply


RULES: dict[str, Rule] = {
    "rows": rows,
    "projection": projection,
    "paired_projection": paired_projection,
    "bias": vector,
    "norm": vector,
    "rotary_projection": turned(projection),
    "rotary_bias": turned(vector),
    "rotary_norm": turned(vector),
    "rotary_cos": rotary_table(torch.cos, half_split),
    "rotary_sin": rotary_table(torch.sin, half_split),
    "rotary_cos_interleaved": rotary_table(torch.cos, interleaved),
    "rotary_sin_interleaved": rotary_table(torch.sin, interleaved),
    "ones": lambda sources, weight, geometry: torch.ones(weight.shape),
    "rotary_transformation": lambda sources, weight, geometry: pair_rotation(),
}


def source_shapes(weight: Weight, geometry: Geometry) -> tuple[tuple[int, ...], ...]:
    """The published shape of each source of a weight, from its device shape."""
    if weight.transform not in RULES:
        raise ModuleError(f"weight {weight.name}: no rule named {weight.transform!r}; the rules are {', '.join(RULES)}")
    if not weight.sources:
        return ()
    if weight.transform == "rows":
        return (weight.shape,)
    if weight.transform.endswith("projection"):
        into, out = weight.shape
        return tuple([(width, into) for width in _widths(weight, out, geometry)])
    return tuple([(width,) for width in _widths(weight, prod(weight.shape), geometry)])


def _widths(weight: Weight, total: int, geometry: Geometry) -> tuple[int, ...]:
    """How the outputs of a weight divide among its sources: query, key and value by their heads, others equally."""
    count = len(weight.sources)
    if count == 3:
        heads = (geometry.query_heads, geometry.key_value_heads, geometry.key_value_heads)
        widths = tuple([number * geometry.head_dim for number in heads])
    else:
        widths = (total // count,) * count
    if sum(widths) != total:
        raise ModuleError(f"weight {weight.name}: {total} outputs do not divide into {count} sources of {widths}")
    return widths

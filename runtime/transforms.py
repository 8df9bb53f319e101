"""Checkpoint tensors -> the form that the device holds: the rules that a module's weight table names.

A rule takes the tensors of its sources, as published (projections are [out, in]), and returns the device tensor's
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from runtime import recurrent_weights
from runtime.errors import ModuleError
from runtime.recurrent_weights import gated
from runtime.rope import angles, cosines, half_split, head_order, interleaved, pair_rotation, reorder_heads, sines
from runtime.tables import TILE, Geometry, Rope, Weight

Rule = Callable[[Sequence[Tensor], Weight, Geometry], Tensor]
HIDDEN_SCORE = -(2.0**100)  # exact in bfloat16, and far from its end


def rows(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    return sources[0]


def scaled_rows(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Rows times hidden ** 0.5, rounded once with the product: a model in float32 multiplies by that root as it is."""
    return sources[0].float() * geometry.hidden**0.5


def projection(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Stack along the outputs, then [out, in] -> [in, out]."""
    return torch.cat(tuple(sources)).t().contiguous()


def paired_projection(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Two projections of one width, [out, in] each or one above the other -> [in, 2 x out] whose column tiles are of
    the first and second in turn.
    """
    stacked = torch.cat(tuple(sources))
    tiled = stacked.reshape(2, -1, TILE, stacked.shape[1])
    return tiled.transpose(0, 1).reshape(stacked.shape).t().contiguous()


def half_projection(half: int) -> Rule:
    """One of the two projections that a fused source holds one above the other."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return sources[0].chunk(2)[half].t().contiguous()

    return apply


def vector(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Stack, then lay out as the table says: a bias is one row, a norm is rows of one tile's width."""
    return torch.cat(tuple(sources)).reshape(weight.shape)


def offset_vector(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Norm weights published as w of 1 + w."""
    return 1 + vector(sources, weight, geometry).float()


def capped(rule: Rule) -> Rule:
    """The final norm's weights over the cap of the logits, which are then tanh'ed as they leave the head."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return rule(sources, weight, geometry).float() / geometry.logit_soft_cap

    return apply


def scored(rule: Rule) -> Rule:
    """`rule` on sources whose query heads are scaled as scores are and divided by their cap, of which explicit scores are then
    tanh'ed as they leave their product. Stacked, query heads come first.
    """

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        stacked = torch.cat(tuple(sources)).float()
        scale = (geometry.query_scale or geometry.head_dim) ** -0.5 / geometry.attention_soft_cap
        width = geometry.query_heads * geometry.head_dim
        return rule([stacked[:width] * scale, stacked[width:]], weight, geometry)

    return apply


def mask(windowed: bool) -> Rule:
    """[1, 1, tokens, tokens]: 0 where a query (row) sees a key (column), else a number whose exponential is nothing."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        position = torch.arange(weight.shape[-1])
        behind = position[:, None] - position
        hidden = (behind < 0) | (behind >= geometry.sliding_window) if windowed else behind < 0
        return torch.zeros(weight.shape).masked_fill_(hidden, HIDDEN_SCORE)

    return apply


def sinks(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Published sinks join scores that are already scaled; the device scales them with the scores."""
    return sources[0].float().reshape(weight.shape) * (geometry.query_scale or geometry.head_dim) ** 0.5


def turned(rule: Rule, style: str) -> Rule:
    """`rule` on sources whose heads were reordered for the device's rotation. Stacked, query heads come first, then key
    heads, which are turned too; value heads stay as they are. A norm is one head, of queries or of keys.
    """

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        stacked = torch.cat(tuple(sources))
        order = head_order(style, geometry.head_dim, geometry.rope.dimensions)
        heads = stacked[: (geometry.query_heads + geometry.key_value_heads) * geometry.head_dim]
        return rule([reorder_heads(heads, order), stacked[len(heads) :]], weight, geometry)

    return apply


def rotary_table(
    function: Callable[[Rope, Tensor, int], Tensor], spread: Callable[[Tensor], Tensor], local: bool = False
) -> Rule:
    """Cosines or sines of every position of the context; `local`: of layers with a window."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        rope, (positions, head_dim) = geometry.local_rope if local else geometry.rope, weight.shape
        if rope is None:
            raise ModuleError(f"weight {weight.name}: the geometry states no local_rope")
        return spread(function(rope, angles(rope, positions, rope.short_factors), head_dim))

    return apply


def two_rotary_tables(function: Callable[[Rope, Tensor, int], Tensor], spread: Callable[[Tensor], Tensor]) -> Rule:
    """Cosines or sines of every position as short prompts turn it, and below them as long ones do."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        rope, (rows, head_dim) = geometry.rope, weight.shape
        both = [angles(rope, rows // 2, factors) for factors in (rope.short_factors, rope.long_factors)]
        return spread(function(rope, torch.cat(both), head_dim))

    return apply


RULES: dict[str, Rule] = {
    "rows": rows,
    "scaled_rows": scaled_rows,
    "projection": projection,
    "paired_projection": paired_projection,
    "first_projection": half_projection(0),
    "second_projection": half_projection(1),
    "bias": vector,
    "norm": vector,
    "offset_norm": offset_vector,
    "capped_norm": capped(vector),
    "capped_offset_norm": capped(offset_vector),
    "sinks": sinks,
    "scored_projection": scored(projection),
    "scored_rotary_projection": scored(turned(projection, "interleaved")),
    "scored_partial_projection": scored(turned(projection, "half_split")),
    "causal_mask": mask(windowed=False),
    "window_mask": mask(windowed=True),
    "rotary_projection": turned(projection, "interleaved"),
    "rotary_bias": turned(vector, "interleaved"),
    "rotary_norm": turned(vector, "interleaved"),
    "rotary_offset_norm": turned(offset_vector, "interleaved"),
    "partial_projection": turned(projection, "half_split"),
    "gated_projection": gated(projection, gate=False),
    "gated_partial_projection": gated(turned(projection, "half_split"), gate=False),
    "gated_rotary_projection": gated(turned(projection, "interleaved"), gate=False),
    "gated_by_projection": gated(projection, gate=True),
    "partial_bias": turned(vector, "half_split"),
    "partial_norm": turned(vector, "half_split"),
    "partial_offset_norm": turned(offset_vector, "half_split"),
    "rotary_cos": rotary_table(cosines, half_split),
    "rotary_sin": rotary_table(sines, half_split),
    "rotary_cos_interleaved": rotary_table(cosines, interleaved),
    "rotary_sin_interleaved": rotary_table(sines, interleaved),
    "rotary_local_cos": rotary_table(cosines, half_split, local=True),
    "rotary_local_sin": rotary_table(sines, half_split, local=True),
    "rotary_local_cos_interleaved": rotary_table(cosines, interleaved, local=True),
    "rotary_local_sin_interleaved": rotary_table(sines, interleaved, local=True),
    "rotary_cos_switched": two_rotary_tables(cosines, half_split),
    "rotary_sin_switched": two_rotary_tables(sines, half_split),
    "rotary_cos_interleaved_switched": two_rotary_tables(cosines, interleaved),
    "rotary_sin_interleaved_switched": two_rotary_tables(sines, interleaved),
    "ones": lambda sources, weight, geometry: torch.ones(weight.shape),
    "zeros": lambda sources, weight, geometry: torch.zeros(weight.shape),
    "below_diagonal": lambda sources, weight, geometry: torch.ones(weight.shape).tril(-1),
    "tiles_before": lambda sources, weight, geometry: TILE * torch.ones(weight.shape).triu(1),
    "numbers": lambda sources, weight, geometry: torch.arange(prod(weight.shape)).reshape(weight.shape).int(),
    "no_numbers": lambda sources, weight, geometry: torch.zeros(weight.shape, dtype=torch.int32),
    "token_of_pair": lambda sources, weight, geometry: (torch.arange(prod(weight.shape)) // geometry.experts.per_token)
    .reshape(weight.shape)
    .int(),
    "rotary_transformation": lambda sources, weight, geometry: pair_rotation(),
    **recurrent_weights.RULES,
}
EMBEDDINGS = ("rows", "scaled_rows")
HALVES = ("first_projection", "second_projection")


def source_shapes(weight: Weight, geometry: Geometry) -> tuple[tuple[int, ...], ...]:
    """The published shape of each source of a weight, from its device shape."""
    if weight.transform not in RULES:
        raise ModuleError(f"weight {weight.name}: no rule named {weight.transform!r}; the rules are {', '.join(RULES)}")
    if not weight.sources:
        return ()
    if (shapes := recurrent_weights.source_shapes(weight, geometry)) is not None:
        return shapes
    if weight.transform in EMBEDDINGS:
        return (weight.shape,)
    if weight.transform.endswith("projection"):
        into, out = weight.shape
        if weight.transform in HALVES:
            return ((2 * out, into),)
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

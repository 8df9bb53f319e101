"""Rules of weight tables for models with linear attention: both published forms become one, and the operations' constants.

Published projections are [out, in]. The interleaved form holds, for each key head, its query, key, values and gates one after
another, and its update rates and decays; the split form has a tensor for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtime.tables import TILE, GatedDeltaNet, Geometry, Weight

Rule = Callable[[Sequence[Tensor], Weight, Geometry], Tensor]
Shapes = tuple[tuple[int, ...], ...]
HALF_TILE = TILE // 2


def by_key_head(tensor: Tensor, net: GatedDeltaNet, widths: Sequence[int]) -> list[Tensor]:
    """Rows of an interleaved tensor -> the rows of each of its parts, key head by key head."""
    heads = tensor.reshape(net.key_heads, sum(widths), tensor.shape[1])
    return [part.reshape(-1, tensor.shape[1]) for part in heads.split(list(widths), dim=1)]


def projected_widths(net: GatedDeltaNet) -> tuple[int, ...]:
    """Rows of one key head: its query, its key, and the values and gates of the value heads that read it."""
    values = net.value_width // net.key_heads
    return net.key_dim, net.key_dim, values, values


def rate_widths(net: GatedDeltaNet) -> tuple[int, int]:
    """Rows of one key head: update rates, then decays."""
    shared = net.value_heads // net.key_heads
    return shared, shared


def interleaved_mixed(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Queries of all heads, then keys, then values."""
    query, key, value, _ = by_key_head(sources[0], geometry.gated_delta_net, projected_widths(geometry.gated_delta_net))
    return torch.cat((query, key, value)).t().contiguous()


def interleaved_gate(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    *_, gate = by_key_head(sources[0], geometry.gated_delta_net, projected_widths(geometry.gated_delta_net))
    return gate.t().contiguous()


def interleaved_rate(which: int) -> Rule:
    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return (
            by_key_head(sources[0], geometry.gated_delta_net, rate_widths(geometry.gated_delta_net))[which]
            .t()
            .contiguous()
        )

    return apply


def tap(index: int) -> Rule:
    """What the token index + 1 - kernel places away is multiplied by, in each channel: published as [channels, 1, kernel]."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return sources[0][:, 0, index].reshape(weight.shape)

    return apply


def decay_rate(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """-exp(A_log), with which a softplus becomes the logarithm of a decay."""
    return -sources[0].float().exp().reshape(weight.shape)


def gated(rule: Rule, gate: bool) -> Rule:
    """`rule` on queries, or on their gates: the query projection holds for each head first one, then the other."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        both, *others = sources
        heads = both.reshape(geometry.query_heads, 2, geometry.head_dim, both.shape[1])[:, int(gate)]
        return rule([heads.reshape(-1, both.shape[1]), *others], weight, geometry)

    return apply


def unit_length(power: float) -> Rule:
    """What makes a root-mean-square norm of a key head one of unit length, times key_dim ** `power`."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        return torch.full(weight.shape, geometry.gated_delta_net.key_dim ** (power - 0.5))

    return apply


def validity(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """A row of zeros for a token of padding and one of ones for any other."""
    return torch.arange(2.0)[:, None].expand(weight.shape).contiguous()


def quadrants(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
    """Three tiles that keep one quadrant each: the upper left, the lower right, the lower left."""
    masks = torch.zeros(3, TILE, TILE)
    upper, lower = slice(0, HALF_TILE), slice(HALF_TILE, TILE)
    for mask, (rows, columns) in zip(masks, ((upper, upper), (lower, lower), (lower, upper))):
        mask[rows, columns] = 1
    return torch.cat(tuple(masks), dim=1).reshape(weight.shape)


def joining(block: int) -> Rule:
    """[1, 1, chunk, chunk]: ones where a block of so many tokens meets the one before it in a pair of blocks."""

    def apply(sources: Sequence[Tensor], weight: Weight, geometry: Geometry) -> Tensor:
        index = torch.arange(weight.shape[-1]) // block
        later, earlier = index[:, None], index
        return ((later // 2 == earlier // 2) & (later > earlier)).float().reshape(weight.shape)

    return apply


RULES: dict[str, Rule] = {
    "interleaved_mixed": interleaved_mixed,
    "interleaved_gate": interleaved_gate,
    "interleaved_update": interleaved_rate(0),
    "interleaved_decay": interleaved_rate(1),
    **{f"tap_{index}": tap(index) for index in range(4)},
    "decay_rate": decay_rate,
    "validity": validity,
    "identity": lambda sources, weight, geometry: torch.eye(weight.shape[-1]).reshape(weight.shape),
    "lower_triangle": lambda sources, weight, geometry: torch.ones(weight.shape).tril(),
    "quadrants": quadrants,
    "unit_length": unit_length(0.0),
    "scaled_unit_length": unit_length(-0.5),
    **{f"joining_{block}": joining(block) for block in (1, 2, 4, 8, 16, 32)},
}


def source_shapes(weight: Weight, geometry: Geometry) -> Shapes | None:
    """The published shapes of a rule's sources where its device shape does not say them; None for any other rule."""
    if weight.transform.startswith("gated_"):
        width, held = geometry.query_heads * geometry.head_dim, geometry.key_value_heads * geometry.head_dim
        return ((2 * width, geometry.hidden),) + ((held, geometry.hidden),) * (len(weight.sources) - 1)
    net = geometry.gated_delta_net
    if weight.transform in ("interleaved_mixed", "interleaved_gate"):
        return ((2 * net.key_width + 2 * net.value_width, geometry.hidden),)
    if weight.transform in ("interleaved_update", "interleaved_decay"):
        return ((2 * net.value_heads, geometry.hidden),)
    if weight.transform.startswith("tap_"):
        return ((net.convolution_width, 1, net.kernel),)
    return None

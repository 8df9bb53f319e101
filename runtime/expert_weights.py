"""Weights of experts -> the form that the device holds: one tensor for each expert, or one for each part of its width.

A source is either one expert's tensor, its name with "{expert}" for the index, or all experts' in one, [experts, ...].
Projections of the first kind are [out, in]; of the second, gate and up stand one above the other, or alternate in the columns
of [in, out] where the rule's name says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing import Any

import torch
from torch import Tensor

from runtime.tables import Weight

Rule = Callable[[Tensor, int], Tensor]


def _half(half: int) -> Rule:
    """[width, in], or gate above up [2 width, in] -> [in, width]."""
    return lambda source, width: source[half * (len(source) - width) :][:width].t()


RULES: dict[str, Rule] = {  # one expert's source and the width of its gate -> its device tensor
    "expert_gate": _half(0),
    "expert_up": _half(1),
    "expert_down": lambda source, width: source.t(),
    "alternating_gate": lambda source, width: source[:, 0::2],
    "alternating_up": lambda source, width: source[:, 1::2],
    "alternating_down": lambda source, width: source,
    "alternating_gate_bias": lambda source, width: source[None, 0::2],
    "alternating_up_bias": lambda source, width: source[None, 1::2],
}


def arranged(weight: Weight, make: Callable[[int], Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """What `make` gives for an expert, one for each part, as the modules take it: for each part a tuple of the experts."""
    return tuple(zip(*[make(expert) for expert in range(weight.experts)]))


def is_joined(weight: Weight) -> bool:
    """Whether the source holds all experts at once."""
    return "{expert}" not in weight.sources[0]


def source_names(weight: Weight) -> tuple[str, ...]:
    """The names of a weight's sources: one, or one for each expert."""
    (source,) = weight.sources
    return tuple(dict.fromkeys(source.replace("{expert}", str(expert)) for expert in range(weight.experts)))


def source_shape(weight: Weight) -> tuple[int, ...]:
    """The published shape of a source of an expert weight."""
    parts = weight.parts
    if weight.transform.endswith("_bias"):
        width = weight.shape[-1]
        return (weight.experts, width if "down" in weight.transform else 2 * width * parts)
    rows, columns = weight.shape
    if weight.transform.endswith("down"):
        width, hidden = rows * parts, columns
        shape = (width, hidden) if weight.transform.startswith("alternating") else (hidden, width)
    else:
        hidden, width = rows, columns * parts
        shape = (hidden, 2 * width) if weight.transform.startswith("alternating") else (width, hidden)
        if weight.transform.startswith("expert") and is_joined(weight):
            shape = (2 * width, hidden)
    return (weight.experts, *shape) if is_joined(weight) else shape


def device_values(source: Tensor, weight: Weight, part: int) -> Tensor:
    """The tensor of one expert, or of one part of its width, from that expert's source.

    The bias of the down projection belongs to one sum: the first part carries it and the others carry zeros.
    """
    if weight.transform.endswith("down_bias"):
        return source[None] if part == 0 else torch.zeros(weight.shape, dtype=source.dtype)
    along = 0 if weight.transform.endswith("down") else 1
    width = weight.shape[along] * weight.parts
    whole = RULES[weight.transform](source, width)
    return whole.narrow(along, part * weight.shape[along], weight.shape[along]).contiguous()

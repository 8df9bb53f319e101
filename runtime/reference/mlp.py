"""Gated feed-forward layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import silu


def gated_mlp(hidden: Tensor, parameter: Callable[[str], Tensor]) -> Tensor:
    """down(silu(gate(x)) * up(x)) over `[tokens, hidden]` (Shazeer, 2020); `parameter` gives a tensor by its published
    name.
    """
    gate = silu(hidden @ parameter("mlp.gate_proj.weight").T)
    return (gate * (hidden @ parameter("mlp.up_proj.weight").T)) @ parameter("mlp.down_proj.weight").T

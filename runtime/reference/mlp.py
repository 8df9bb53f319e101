"""Gated feed-forward layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import silu


def gated_mlp(hidden: Tensor, parameter: Callable[[str], Tensor], fused: bool) -> Tensor:
    """down(silu(gate(x)) * up(x)) over `[tokens, hidden]` (Shazeer, 2020); `parameter` gives a tensor by its published
    name. `fused`: gate and up are published as one tensor, gate first.
    """
    if fused:
        gate, up = (hidden @ parameter("mlp.gate_up_proj.weight").T).chunk(2, dim=-1)
    else:
        gate, up = (hidden @ parameter(f"mlp.{name}_proj.weight").T for name in ("gate", "up"))
    return (silu(gate) * up) @ parameter("mlp.down_proj.weight").T

"""Gated feed-forward layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import gelu, silu

from runtime.tables import Geometry


def gated_mlp(hidden: Tensor, parameter: Callable[[str], Tensor], geometry: Geometry) -> Tensor:
    """down(act(gate(x)) * up(x)) over `[tokens, hidden]` (Shazeer, 2020), where act is silu or the tanh form of gelu;
    `parameter` gives a tensor by its published name. Fused projections: gate and up are one tensor, gate first.
    """
    if geometry.fused_projections:
        gate, up = (hidden @ parameter("mlp.gate_up_proj.weight").T).chunk(2, dim=-1)
    else:
        gate, up = (hidden @ parameter(f"mlp.{name}_proj.weight").T for name in ("gate", "up"))
    activated = gelu(gate, approximate="tanh") if geometry.activation == "gelu_tanh" else silu(gate)
    return (activated * up) @ parameter("mlp.down_proj.weight").T

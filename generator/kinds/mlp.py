"""Gated feed-forward: down(silu(gate(x)) * up(x))."""

from __future__ import annotations

from generator.geometry import Resolved
from generator.kinds.rows import MatmulRole, WeightRow, norm

PREFIX = "model.layers.{layer}.mlp."


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    return (
        norm("mlp_norm", "model.layers.{layer}.post_attention_layernorm.weight"),
        WeightRow("gate", (f"{PREFIX}gate_proj.weight",), "projection", "(HIDDEN, INTERMEDIATE)", "WEIGHT_DTYPE"),
        WeightRow("up", (f"{PREFIX}up_proj.weight",), "projection", "(HIDDEN, INTERMEDIATE)", "WEIGHT_DTYPE"),
        WeightRow("down", (f"{PREFIX}down_proj.weight",), "projection", "(INTERMEDIATE, HIDDEN)", "WEIGHT_DTYPE"),
    )


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    dtype = resolved.dtypes.weights
    return (
        MatmulRole("gate_up", resolved.hidden, resolved.device_intermediate, dtype),
        MatmulRole("down", resolved.device_intermediate, resolved.hidden, dtype),
    )

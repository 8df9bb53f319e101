"""Gated feed-forward: down(silu(gate(x)) * up(x))."""

from __future__ import annotations

from generator import programs
from generator.geometry import Resolved
from generator.kinds.rows import MatmulRole, WeightRow, norm

PREFIX = "model.layers.{layer}.mlp."


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    gate, up, both, down = (f"{PREFIX}{part}_proj.weight" for part in ("gate", "up", "gate_up", "down"))
    fused = resolved.fused_projections
    if programs.fuses_gate_up(resolved):
        sources = (both,) if fused else (gate, up)
        inner = (WeightRow("gate_up", sources, "paired_projection", "(HIDDEN, 2 * INTERMEDIATE)", "WEIGHT_DTYPE"),)
    else:
        inner = tuple(
            WeightRow(name, (source,), transform, "(HIDDEN, INTERMEDIATE)", "WEIGHT_DTYPE")
            for name, source, transform in (
                ("gate", both if fused else gate, "first_projection" if fused else "projection"),
                ("up", both if fused else up, "second_projection" if fused else "projection"),
            )
        )
    return (
        norm("mlp_norm", "model.layers.{layer}.post_attention_layernorm.weight"),
        *inner,
        WeightRow("down", (down,), "projection", "(INTERMEDIATE, HIDDEN)", "WEIGHT_DTYPE"),
    )


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    width = resolved.device_intermediate * (2 if programs.fuses_gate_up(resolved) else 1)
    weights, activation = resolved.dtypes.weights, resolved.dtypes.activation
    return (
        MatmulRole(
            "gate_up", resolved.hidden, width, weights, activation, fused=programs.fused(resolved, "gate_up")
        ),
        MatmulRole(
            "down",
            resolved.device_intermediate,
            resolved.hidden,
            weights,
            activation,
            fused=programs.fused(resolved, "down"),
        ),
    )

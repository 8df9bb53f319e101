"""Gated feed-forward: down(act(gate(x)) * up(x)), where act is silu or the tanh form of gelu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator import programs, steps as shared
from generator.kinds.rows import LAYER, MatmulRole, WeightRow, layer_norm
from generator.steps import Step, Tensor, sizes
from generator.tiles import TILE_BYTES

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import Resolved
    from generator.shapes import PassShape

PREFIX = f"{LAYER}mlp."


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
    before = "pre_feedforward" if resolved.sandwich_norms else "post_attention"
    behind = (layer_norm(resolved, "mlp_output_norm", "post_feedforward"),) if resolved.sandwich_norms else ()
    return (
        layer_norm(resolved, "mlp_norm", before),
        *inner,
        WeightRow("down", (down,), "projection", "(INTERMEDIATE, HIDDEN)", "WEIGHT_DTYPE"),
        *behind,
    )


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    width = resolved.device_intermediate * (2 if programs.fuses_gate_up(resolved) else 1)
    weights, activation = resolved.dtypes.weights, resolved.dtypes.activation
    return (
        MatmulRole("gate_up", resolved.hidden, width, weights, activation, fused=programs.fused(resolved, "gate_up")),
        MatmulRole(
            "down",
            resolved.device_intermediate,
            resolved.hidden,
            weights,
            activation,
            fused=programs.fused(resolved, "down"),
        ),
    )


def steps(
    resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor, kind: str
) -> Iterator[Step]:
    """The operations in a pass of `shape`, in the order and with the frees of the template."""
    size = sizes(resolved, shape.token_tiles)
    first, normed = shared.norm(size, hidden)
    yield first
    count = size.rows * size.intermediate
    gated = Tensor("gated", count, size.activation, "gated")
    weight_bytes = size.hidden * size.intermediate * TILE_BYTES[resolved.dtypes.weights]
    if programs.fuses_gate_up(resolved):
        yield Step("gate_up", (normed,), (gated,), (normed,), 2 * weight_bytes, role="gate_up")
    else:
        gate, up = (Tensor(name, count, size.activation, "gated") for name in ("gate", "up"))
        yield Step("gate_up", (normed,), (gate,), dram_bytes=weight_bytes, role="gate_up")
        yield Step("gate_up", (normed,), (up,), (normed,), weight_bytes, role="gate_up")
        buffers = 7 * TILE_BYTES["bfloat16"]
        yield Step("mul", (gate, up), (gated,), (gate, up), buffer_bytes=buffers, units=count)
    weight_tiles = size.intermediate * size.hidden
    yield from shared.half_layer_end(resolved, size, "down", gated, weight_tiles, hidden, summed)

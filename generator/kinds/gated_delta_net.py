"""Linear attention with a recurrent state (a gated delta net): projections, a short convolution, a recurrence, a gated norm.

Published projections are either interleaved by key head or split; at load both become queries, keys and values side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator import programs, recurrences
from generator.kinds.gated_delta_net_steps import steps
from generator.kinds.rows import LAYER, MatmulRole, WeightRow, norm_layout, norm_rule

if TYPE_CHECKING:
    from generator.geometry import Resolved

__all__ = ["constants", "matmuls", "steps", "weights"]

PREFIX = f"{LAYER}linear_attn."
KIND = "gated_delta_net"


def constants(resolved: Resolved) -> tuple[WeightRow, ...]:
    """What exists once: the rows that tell tokens from padding, the start of a row's own positions, and constant matrices."""
    rows = [
        WeightRow("validity", (), "validity", "(2, VALUE_HEADS)", "ACTIVATION_DTYPE", "ROW_MAJOR"),
        WeightRow("row_start", (), "no_numbers", "(1,)", "INDEX_DTYPE", "ROW_MAJOR"),
    ]
    square = "(1, 1, RECURRENT_CHUNK, RECURRENT_CHUNK)"
    names = {"identity": "identity", "lower_triangle": "lower_triangle"}
    if resolved.gated_delta_net.form == "operation":
        rows += [
            WeightRow(name, (), rule, square, "STATE_DTYPE") for name, rule in {**names, "all_ones": "ones"}.items()
        ]
        return (*rows, WeightRow("quadrants", (), "quadrants", "(1, 1, TILE, 3 * TILE)", "STATE_DTYPE"))
    names |= {f"joining_{block}": f"joining_{block}" for block in recurrences.JOINED_BLOCKS}
    rows += [WeightRow(name, (), rule, square, "STATE_DTYPE") for name, rule in names.items()]
    lengths = {"query_length": "scaled_unit_length", "key_length": "unit_length"}
    for name, rule in lengths.items():
        rows.append(WeightRow(name, (), rule, "(1, 1, KEY_DIM // TILE, TILE)", "NORM_DTYPE", "ROW_MAJOR"))
    return tuple(rows)


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Of the layers of this kind. The gated norm is published as it is, whatever the others are."""
    net = resolved.gated_delta_net

    def row(
        name: str, source: str, rule: str, shape: str, dtype: str = "WEIGHT_DTYPE", layout: str = "TILED"
    ) -> WeightRow:
        return WeightRow(name, (f"{PREFIX}{source}",), rule, shape, dtype, layout, kind=KIND)

    if net.published == "interleaved":
        both, rates = "in_proj_qkvz.weight", "in_proj_ba.weight"
        projections = (
            row("mixed", both, "interleaved_mixed", "(HIDDEN, CONVOLUTION_WIDTH)"),
            row("output_gate", both, "interleaved_gate", "(HIDDEN, VALUE_WIDTH)"),
            row("decay", rates, "interleaved_decay", "(HIDDEN, VALUE_HEADS)", "RATE_DTYPE"),
            row("update", rates, "interleaved_update", "(HIDDEN, VALUE_HEADS)", "RATE_DTYPE"),
        )
    else:
        projections = (
            row("mixed", "in_proj_qkv.weight", "projection", "(HIDDEN, CONVOLUTION_WIDTH)"),
            row("output_gate", "in_proj_z.weight", "projection", "(HIDDEN, VALUE_WIDTH)"),
            row("decay", "in_proj_a.weight", "projection", "(HIDDEN, VALUE_HEADS)", "RATE_DTYPE"),
            row("update", "in_proj_b.weight", "projection", "(HIDDEN, VALUE_HEADS)", "RATE_DTYPE"),
        )
    norm = f"{LAYER}input_layernorm.weight"
    taps = [
        row(f"tap_{tap}", "conv1d.weight", f"tap_{tap}", "(1, 1, 1, CONVOLUTION_WIDTH)", "BIAS_DTYPE")
        for tap in range(net.kernel)
    ]
    return (
        WeightRow(
            "delta_norm", (norm,), norm_rule(resolved), "HIDDEN_NORM", "NORM_DTYPE", norm_layout(resolved), kind=KIND
        ),
        *projections,
        row("decay_bias", "dt_bias", "bias", "(1, 1, 1, VALUE_HEADS)", "STATE_DTYPE"),
        row("decay_rate", "A_log", "decay_rate", "(1, 1, 1, VALUE_HEADS)", "STATE_DTYPE"),
        *taps,
        row("value_norm", "norm.weight", "norm", "(VALUE_DIM,)", "NORM_DTYPE"),
        row("delta_output", "out_proj.weight", "projection", "(VALUE_WIDTH, HIDDEN)"),
    )


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    net, dtypes = resolved.gated_delta_net, resolved.dtypes
    return (
        MatmulRole("mixed", resolved.hidden, net.convolution_width, dtypes.weights, dtypes.activation),
        MatmulRole("output_gate", resolved.hidden, net.value_width, dtypes.weights, dtypes.activation),
        MatmulRole("rates", resolved.hidden, net.value_heads, "bfloat16", "float32"),
        MatmulRole("tails", 0, net.convolution_width, "bfloat16", dtypes.activation, over_tokens=True, one_row=True),
        MatmulRole(
            "delta_output",
            net.value_width,
            resolved.hidden,
            dtypes.weights,
            dtypes.activation,
            fused=programs.fused(resolved, "delta_output"),
        ),
    )

"""Self-attention with grouped key-value heads and a rotary embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator import programs
from generator.kinds.attention_steps import steps
from generator.kinds.rows import LAYER, MatmulRole, WeightRow, layer_norm, norm_rule

if TYPE_CHECKING:
    from generator.geometry import Resolved

__all__ = ["matmuls", "steps", "weights"]

PREFIX = f"{LAYER}self_attn."


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Query, key and value projections are one matmul; query and key columns are permuted at load where the rotation
    takes its pairs from other columns than the published one.
    """
    order = column_order(resolved)
    made = "scored_" if resolved.attention_soft_cap else "gated_" if resolved.attention_gate else ""
    projections = tuple(f"{PREFIX}{part}_proj" for part in (["qkv"] if resolved.fused_projections else "qkv"))
    rows = [
        layer_norm(resolved, "attention_norm", "input"),
        WeightRow(
            "query_key_value",
            tuple(f"{name}.weight" for name in projections),
            f"{made}{order}projection",
            "(HIDDEN, QUERY_KEY_VALUE_WIDTH)",
            "WEIGHT_DTYPE",
        ),
    ]
    if resolved.attention_gate:
        source = (f"{PREFIX}q_proj.weight",)
        rows.append(WeightRow("attention_gate", source, "gated_by_projection", "(HIDDEN, QUERY_WIDTH)", "WEIGHT_DTYPE"))
    if resolved.query_key_value_bias:
        rows.append(
            WeightRow(
                "query_key_value_bias",
                tuple(f"{name}.bias" for name in projections),
                f"{order}bias",
                "(1, 1, 1, QUERY_KEY_VALUE_WIDTH)",
                "BIAS_DTYPE",
            )
        )
    if resolved.query_key_norm:
        for name, source in (("query_norm", "q_norm"), ("key_norm", "k_norm")):
            rows.append(
                WeightRow(
                    name,
                    (f"{PREFIX}{source}.weight",),
                    f"{order}{norm_rule(resolved)}",
                    "HEAD_NORM",
                    "NORM_DTYPE",
                    "ROW_MAJOR",
                )
            )
    if resolved.attention_sinks:
        sources = (f"{PREFIX}sinks",)
        rows.append(WeightRow("attention_sinks", sources, "sinks", "(1, QUERY_HEADS, 1, 1)", "BIAS_DTYPE"))
    rows.append(
        WeightRow(
            "attention_output", (f"{PREFIX}o_proj.weight",), "projection", "(QUERY_WIDTH, HIDDEN)", "WEIGHT_DTYPE"
        )
    )
    if resolved.attention_output_bias:
        sources = (f"{PREFIX}o_proj.bias",)
        rows.append(WeightRow("attention_output_bias", sources, "bias", "(1, 1, 1, HIDDEN)", "BIAS_DTYPE"))
    if resolved.sandwich_norms:
        rows.append(layer_norm(resolved, "attention_output_norm", "post_attention"))
    if resolved.gated_delta_net is not None:
        return tuple(replace(row, kind="full") for row in rows)
    return tuple(rows)


def column_order(resolved: Resolved) -> str:
    """The prefix of the rules that permute the columns of query and key heads; "" where they stay as published."""
    if resolved.rotary_style == "interleaved":
        return "rotary_"
    return "partial_" if resolved.rope.dimensions < resolved.head_dim else ""


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    dtype = resolved.dtypes.weights
    gate = ()
    if resolved.attention_gate:
        gate = (
            MatmulRole(
                "attention_gate", resolved.hidden, resolved.device_query_width, dtype, resolved.dtypes.activation
            ),
        )
    return (
        MatmulRole(
            "query_key_value",
            resolved.hidden,
            resolved.device_query_key_value_width,
            dtype,
            programs.heads_dtype(resolved),
            bias_dtype="bfloat16" if resolved.query_key_value_bias else None,
        ),
        *gate,
        MatmulRole(
            "attention_output",
            resolved.device_query_width,
            resolved.hidden,
            dtype,
            resolved.dtypes.activation,
            bias_dtype="bfloat16" if resolved.attention_output_bias else None,
            fused=programs.fused(resolved, "attention_output"),
        ),
    )

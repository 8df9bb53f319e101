"""Self-attention with grouped key-value heads and a rotary embedding."""

from __future__ import annotations

from generator import programs
from generator.geometry import Resolved
from generator.kinds.rows import MatmulRole, WeightRow, norm

PREFIX = "model.layers.{layer}.self_attn."


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Query, key and value projections are one matmul; interleaved rotary permutes query and key columns at load."""
    interleaved = resolved.rotary_style == "interleaved"
    projections = tuple(f"{PREFIX}{part}_proj" for part in "qkv")
    rows = [
        norm("attention_norm", "model.layers.{layer}.input_layernorm.weight"),
        WeightRow(
            "query_key_value",
            tuple(f"{name}.weight" for name in projections),
            "rotary_projection" if interleaved else "projection",
            "(HIDDEN, QUERY_KEY_VALUE_WIDTH)",
            "WEIGHT_DTYPE",
        ),
    ]
    if resolved.query_key_value_bias:
        rows.append(
            WeightRow(
                "query_key_value_bias",
                tuple(f"{name}.bias" for name in projections),
                "rotary_bias" if interleaved else "bias",
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
                    "rotary_norm" if interleaved else "norm",
                    "HEAD_NORM",
                    "NORM_DTYPE",
                    "ROW_MAJOR",
                )
            )
    rows.append(
        WeightRow(
            "attention_output", (f"{PREFIX}o_proj.weight",), "projection", "(QUERY_WIDTH, HIDDEN)", "WEIGHT_DTYPE"
        )
    )
    return tuple(rows)


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    dtype = resolved.dtypes.weights
    return (
        MatmulRole(
            "query_key_value",
            resolved.hidden,
            resolved.device_query_key_value_width,
            dtype,
            programs.heads_dtype(resolved),
            bias_dtype="bfloat16" if resolved.query_key_value_bias else None,
        ),
        MatmulRole(
            "attention_output",
            resolved.device_query_width,
            resolved.hidden,
            dtype,
            resolved.dtypes.activation,
            fused=programs.fused(resolved, "attention_output"),
        ),
    )

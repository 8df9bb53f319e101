"""What surrounds the layers: embedding, rotary tables, final norm and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator import programs
from generator.kinds import experts, gated_delta_net
from generator.kinds.rows import MatmulRole, WeightRow, norm, norm_layout, norm_rule

if TYPE_CHECKING:
    from generator.geometry import Resolved


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights outside the layers; a tied head is a second tensor, since the two are read in different layouts."""
    style = "" if resolved.rotary_style == "half_split" else "_interleaved"
    suffix, rows_of_rotary = (f"{style}_switched", "2 * CONTEXT") if resolved.rotary_switch else (style, "CONTEXT")
    rotary_shape = f"({rows_of_rotary}, HEAD_DIM)"
    capped = "capped_" if resolved.logit_soft_cap else ""
    head_source = "model.embed_tokens.weight" if resolved.tied_embeddings else "lm_head.weight"
    rows = [
        WeightRow(
            "embedding",
            ("model.embed_tokens.weight",),
            "scaled_rows" if resolved.scaled_embedding else "rows",
            "(VOCABULARY, HIDDEN)",
            "EMBEDDING_DTYPE",
            "ROW_MAJOR",
        ),
        WeightRow("rotary_cos", (), f"rotary_cos{suffix}", rotary_shape, "ROTARY_DTYPE", "ROW_MAJOR"),
        WeightRow("rotary_sin", (), f"rotary_sin{suffix}", rotary_shape, "ROTARY_DTYPE", "ROW_MAJOR"),
        *_local_rotary(resolved, style),
        norm("final_norm", "model.norm.weight", f"{capped}{norm_rule(resolved)}", norm_layout(resolved)),
        WeightRow("head", (head_source,), "projection", "(HIDDEN, VOCABULARY)", "HEAD_DTYPE"),
    ]
    if resolved.attention_soft_cap:
        names = {"full": "causal_mask", "sliding": "window_mask"}
        side = "(1, 1, PREFILL_CHUNK, PREFILL_CHUNK)"
        rows += [
            WeightRow(name, (), name, side, "ACTIVATION_DTYPE")
            for kind, name in names.items()
            if kind in resolved.kinds
        ]
    if resolved.rotary_style == "interleaved":
        rows.append(
            WeightRow("rotary_transformation", (), "rotary_transformation", "(1, 1, TILE, TILE)", "ROTARY_DTYPE")
        )
    if resolved.experts is not None:
        rows += experts.constants(resolved)
    if resolved.gated_delta_net is not None:
        rows += gated_delta_net.constants(resolved)
    if programs.fuses_residual(resolved):
        rows.append(WeightRow("ones", (), "ones", "(1, 1, 1, HIDDEN)", "ACTIVATION_DTYPE"))
    return tuple(rows)


def _local_rotary(resolved: Resolved, style: str) -> tuple[WeightRow, ...]:
    """The tables of windowed layers where these are turned otherwise."""
    if resolved.local_rope is None:
        return ()
    names = ("rotary_local_cos", "rotary_local_sin")
    return tuple(
        WeightRow(name, (), f"{name}{style}", "(CONTEXT, HEAD_DIM)", "ROTARY_DTYPE", "ROW_MAJOR") for name in names
    )


def head(resolved: Resolved) -> MatmulRole:
    return MatmulRole(
        "head", resolved.hidden, resolved.device_vocabulary, resolved.dtypes.head, resolved.dtypes.activation
    )

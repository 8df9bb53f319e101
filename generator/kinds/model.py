"""What surrounds the layers: embedding, rotary tables, final norm and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator import programs
from generator.kinds.rows import MatmulRole, WeightRow, norm

if TYPE_CHECKING:
    from generator.geometry import Resolved


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights outside the layers; a tied head is a second tensor, since the two are read in different layouts."""
    style = "" if resolved.rotary_style == "half_split" else "_interleaved"
    suffix, rows_of_rotary = (f"{style}_switched", "2 * CONTEXT") if resolved.rotary_switch else (style, "CONTEXT")
    rotary_shape = f"({rows_of_rotary}, HEAD_DIM)"
    head_source = "model.embed_tokens.weight" if resolved.tied_embeddings else "lm_head.weight"
    rows = [
        WeightRow(
            "embedding", ("model.embed_tokens.weight",), "rows", "(VOCABULARY, HIDDEN)", "EMBEDDING_DTYPE", "ROW_MAJOR"
        ),
        WeightRow("rotary_cos", (), f"rotary_cos{suffix}", rotary_shape, "ROTARY_DTYPE", "ROW_MAJOR"),
        WeightRow("rotary_sin", (), f"rotary_sin{suffix}", rotary_shape, "ROTARY_DTYPE", "ROW_MAJOR"),
        norm("final_norm", "model.norm.weight"),
        WeightRow("head", (head_source,), "projection", "(HIDDEN, VOCABULARY)", "HEAD_DTYPE"),
    ]
    if resolved.rotary_style == "interleaved":
        rows.append(
            WeightRow("rotary_transformation", (), "rotary_transformation", "(1, 1, TILE, TILE)", "ROTARY_DTYPE")
        )
    if programs.fuses_residual(resolved):
        rows.append(WeightRow("ones", (), "ones", "(1, 1, 1, HIDDEN)", "ACTIVATION_DTYPE"))
    return tuple(rows)


def head(resolved: Resolved) -> MatmulRole:
    return MatmulRole("head", resolved.hidden, resolved.device_vocabulary, resolved.dtypes.head, resolved.dtypes.activation)

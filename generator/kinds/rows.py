"""Rows of the tables that the parts of a layer contribute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightRow:
    """One entry of an emitted weight table. `shape`, `dtype` and `layout` are expressions over the module's constants."""

    name: str
    sources: tuple[str, ...]
    transform: str
    shape: str
    dtype: str
    layout: str = "TILED"


@dataclass(frozen=True)
class MatmulRole:
    """One kind of matmul: sizes in elements, dtypes by their ttnn names; `bias_dtype` is None without a bias.

    `fused` names what a minimal matmul does besides (matmuls.PAIRS, matmuls.RESIDUAL), "" for a plain matmul.
    """

    name: str
    inner: int
    output: int
    weight_dtype: str
    output_dtype: str = "bfloat16"
    bias_dtype: str | None = None
    fused: str = ""


def norm(name: str, source: str) -> WeightRow:
    """A norm over the hidden width."""
    return WeightRow(name, (source,), "norm", "HIDDEN_NORM", "NORM_DTYPE", "ROW_MAJOR")

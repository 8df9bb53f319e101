"""Qwen3 with experts: shares of the chosen, and of all."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Experts
from tests.support.tiny.base import BASE

KIND = "Qwen3Moe"
GEOMETRIES = {
    "qwen3_moe": replace(
        BASE,
        query_key_norm=True,
        norm_epsilon=1e-6,
        intermediate=96,
        experts=Experts(count=8, per_token=2, intermediate=96, renormalise=True, published="qwen3_moe"),
    ),
}
VARIATIONS = {
    "qwen3_moe-shares-of-all": replace(
        BASE,
        query_key_norm=True,
        intermediate=64,
        experts=Experts(count=40, per_token=3, intermediate=64, renormalise=False, published="qwen3_moe"),
    ),
}

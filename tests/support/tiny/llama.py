"""Llama: the kinds of rotary embedding, tied and untied, wide heads."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Rope
from tests.support.tiny.base import BASE, LINEAR, YARN

KIND = "Llama"
SCALED = Rope(
    "llama3", 10000.0, 32, factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=64
)
GEOMETRIES = {
    "llama-tied": replace(BASE, tied_embeddings=True, rope=SCALED),
    "llama-untied": replace(BASE, rope=SCALED),
}
VARIATIONS = {
    "llama-heads-of-256": replace(
        BASE, hidden=512, query_heads=2, key_value_heads=1, head_dim=256, rope=replace(BASE.rope, dimensions=256)
    ),
    "llama-linear": replace(BASE, rope=LINEAR),
    "llama-yarn": replace(BASE, rope=YARN),
}

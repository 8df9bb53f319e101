"""Gemma 2. Soft caps are small, so that random logits reach them."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.base import BASE, WINDOW

KIND = "Gemma2"
GEMMA = replace(
    BASE,
    layers=3,
    head_dim=64,
    norm_epsilon=1e-6,
    tied_embeddings=True,
    rope=replace(BASE.rope, dimensions=64),
    activation="gelu_tanh",
    sliding_window=WINDOW,
    query_scale=100,
    sandwich_norms=True,
    unit_offset_norms=True,
    scaled_embedding=True,
)
GEMMA2 = replace(GEMMA, full_attention_layers=(1,), attention_soft_cap=2.0, logit_soft_cap=3.0)
CAPPED = {
    "gemma2": GEMMA2,
    "gemma2-windowed": replace(GEMMA2, layers=2, full_attention_layers=()),
    "gemma2-heads-of-96": replace(GEMMA2, head_dim=96, rope=replace(GEMMA2.rope, dimensions=96)),
}

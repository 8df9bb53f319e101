"""Gemma 3: an embedding of their own in windowed layers, and a small cap of the logits, so that random ones reach it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.gemma2 import GEMMA

KIND = "Gemma3"
GEMMA3 = replace(
    GEMMA,
    query_key_norm=True,
    full_attention_layers=(1,),
    rope=replace(GEMMA.rope, kind="linear", theta=1000000.0, factor=8.0),
    local_rope=GEMMA.rope,
)
WINDOWED = {
    "gemma3": GEMMA3,
    "gemma3-capped": replace(GEMMA3, logit_soft_cap=2.0, full_attention_layers=(2,)),
}

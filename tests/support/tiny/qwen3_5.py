"""Qwen3.5, dense: as Qwen3-Next, with the projections of linear attention in tensors of their own."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import GatedDeltaNet
from tests.support.tiny.base import HYBRID, LINEAR

KIND = "Qwen3_5"
QWEN3_5 = replace(HYBRID, gated_delta_net=replace(HYBRID.gated_delta_net, published="split"))
RECURRENT = {"qwen3_5": QWEN3_5}
RECURRENT_VARIATIONS = {
    "qwen3_5-wide-values-tied": replace(
        QWEN3_5,
        tied_embeddings=True,
        gated_delta_net=GatedDeltaNet(2, 6, key_dim=32, value_dim=64, kernel=4, published="split"),
    ),
    "qwen3_5-narrow-values": replace(
        QWEN3_5, gated_delta_net=GatedDeltaNet(1, 4, key_dim=64, value_dim=32, kernel=4, published="split")
    ),
    "qwen3_5-more-heads-in-a-wave-than-cores": replace(
        QWEN3_5, gated_delta_net=GatedDeltaNet(2, 16, key_dim=32, value_dim=32, kernel=4, published="split")
    ),
    "qwen3_5-linear": replace(QWEN3_5, rope=replace(LINEAR, dimensions=16)),
    "qwen3_5-attention-first": replace(QWEN3_5, full_attention_layers=(0, 2)),
}

"""Qwen3-Next: three layers of linear attention before each of attention, experts with one that sees every token."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Experts, GatedDeltaNet
from tests.support.tiny.base import HYBRID, YARN

KIND = "Qwen3Next"
EXPERTS = Experts(8, per_token=2, intermediate=64, renormalise=True, published="qwen3_moe", shared_intermediate=64)
QWEN3_NEXT = replace(HYBRID, intermediate=64, experts=EXPERTS)
RECURRENT = {"qwen3_next": QWEN3_NEXT}
RECURRENT_VARIATIONS = {
    "qwen3_next-a-value-head-for-each-key-head": replace(
        QWEN3_NEXT,
        gated_delta_net=GatedDeltaNet(2, 2, key_dim=64, value_dim=64, kernel=4, published="interleaved"),
        experts=replace(EXPERTS, renormalise=False),
    ),
    "qwen3_next-yarn": replace(QWEN3_NEXT, rope=replace(YARN, dimensions=16)),
    "qwen3_next-four-value-heads-for-each-key-head": replace(
        QWEN3_NEXT, gated_delta_net=GatedDeltaNet(2, 8, key_dim=32, value_dim=64, kernel=4, published="interleaved")
    ),
}

"""Qwen3.5 with experts, which are published in one tensor."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Experts
from tests.support.tiny.qwen3_5 import QWEN3_5

KIND = "Qwen3_5Moe"
RECURRENT = {
    "qwen3_5_moe": replace(
        QWEN3_5,
        intermediate=64,
        experts=Experts(
            8, per_token=3, intermediate=64, renormalise=True, published="qwen3_5_moe", shared_intermediate=32
        ),
    )
}

"""gpt-oss: biases everywhere, sinks, windows and experts with a clamped gate."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Experts
from tests.support.tiny.base import BASE, WINDOW, YARN

KIND = "GptOss"
WINDOWED = {
    "gpt_oss": replace(
        BASE,
        head_dim=64,
        query_key_value_bias=True,
        intermediate=96,
        rope=replace(YARN, dimensions=64, truncate=False, attention_factor=1.3),
        sliding_window=WINDOW,
        full_attention_layers=(1,),
        attention_sinks=True,
        attention_output_bias=True,
        experts=Experts(
            count=8,
            per_token=2,
            intermediate=96,
            renormalise=True,
            published="gpt_oss",
            biases=True,
            activation="swiglu_oai",
        ),
    ),
}

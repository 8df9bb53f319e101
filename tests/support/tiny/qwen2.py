"""Qwen2: three biases. Heads of 96 are rotated in interleaved pairs on the device, so weights, biases and keys are reordered."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.base import BASE, YARN

KIND = "Qwen2"
GEOMETRIES = {
    "qwen2": replace(BASE, query_key_value_bias=True, norm_epsilon=1e-6),
    "qwen2-heads-of-96": replace(BASE, query_key_value_bias=True, head_dim=96, rope=replace(BASE.rope, dimensions=96)),
}
VARIATIONS = {"qwen2-yarn": replace(BASE, query_key_value_bias=True, rope=YARN)}

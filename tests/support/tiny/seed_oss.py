"""Seed-OSS: biases of query, key and value, and heads wider than hidden / query heads."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tiny.base import BASE, LINEAR, YARN

KIND = "SeedOss"
SEED_OSS = replace(
    BASE,
    query_heads=10,
    head_dim=64,
    query_key_value_bias=True,
    norm_epsilon=1e-6,
    rope=replace(BASE.rope, theta=10000000.0, dimensions=64),
)
GEOMETRIES = {"seed_oss": SEED_OSS}
VARIATIONS = {
    "seed_oss-linear": replace(SEED_OSS, rope=replace(LINEAR, dimensions=64)),
    "seed_oss-yarn": replace(SEED_OSS, rope=replace(YARN, dimensions=64)),
}

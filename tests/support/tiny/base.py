"""What the tiny geometries are made from."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import GatedDeltaNet, Geometry, Rope

BASE = Geometry(
    vocabulary=256,
    hidden=128,
    intermediate=192,
    layers=2,
    query_heads=4,
    key_value_heads=2,
    head_dim=32,
    norm_epsilon=1e-5,
    query_key_value_bias=False,
    query_key_norm=False,
    tied_embeddings=False,
    rope=Rope("default", 10000.0, 32),
)
YARN = replace(
    BASE.rope, kind="yarn", factor=4.0, original_context=256, beta_fast=8.0, beta_slow=1.0, attention_factor=1.138629
)
LINEAR = replace(BASE.rope, kind="linear", factor=3.0)
# Windows of 40 tokens: a whole block and a part of one, so that their edges lie inside blocks, attention chunks and
# passes.
WINDOW = 40
# Three layers of linear attention before one of gated attention, whose heads turn by a quarter.
HYBRID = replace(
    BASE,
    hidden=64,
    intermediate=96,
    layers=4,
    query_heads=2,
    key_value_heads=1,
    head_dim=64,
    norm_epsilon=1e-6,
    query_key_norm=True,
    unit_offset_norms=True,
    rope=replace(BASE.rope, dimensions=16),
    full_attention_layers=(3,),
    gated_delta_net=GatedDeltaNet(2, 4, key_dim=32, value_dim=32, kernel=4, published="interleaved"),
    attention_gate=True,
)

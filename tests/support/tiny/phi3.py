"""Phi 3: fused projections, a part of each head turned, other factors for longer prompts."""

from __future__ import annotations

from dataclasses import replace

from runtime.tables import Geometry
from tests.support.tiny.base import BASE

KIND = "Phi3"
GEOMETRIES = {
    "phi3": replace(BASE, fused_projections=True, rope=replace(BASE.rope, theta=250000.0)),
    "phi3-three-quarters": replace(
        BASE, fused_projections=True, tied_embeddings=True, rope=replace(BASE.rope, dimensions=24)
    ),
}
VARIATIONS = {
    "phi3-heads-of-96-two-thirds": replace(
        BASE, fused_projections=True, hidden=384, head_dim=96, rope=replace(BASE.rope, dimensions=64)
    ),
}


def longrope(head_dim: int, dimensions: int, switch: int) -> Geometry:
    """A geometry whose prompts of more than `switch` tokens are turned by other factors."""
    pairs = dimensions // 2
    rope = replace(
        BASE.rope,
        kind="longrope",
        dimensions=dimensions,
        original_context=switch,
        attention_factor=1.190238,
        short_factors=tuple(1 + index / pairs for index in range(pairs)),
        long_factors=tuple(1.25 + 3 * index / pairs for index in range(pairs)),
    )
    return replace(BASE, fused_projections=True, hidden=4 * head_dim, head_dim=head_dim, rope=rope)


# Prompts of both sides share waves of 128 at a switch of 100, chunks of 128 from 128 on at one of 200.
LONGROPE = {
    "phi3-longrope-in-waves": longrope(32, 32, 100),
    "phi3-longrope-in-chunks": longrope(64, 48, 200),
    "phi3-longrope-heads-of-96-in-waves": longrope(96, 96, 100),
    "phi3-longrope-heads-of-96-in-chunks": longrope(96, 72, 200),
}

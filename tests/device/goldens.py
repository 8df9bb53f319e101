"""All comparisons of the emulator with the library's numbers, by family."""

from __future__ import annotations

from tests.device.golden_arithmetic import elementwise, matrices, minimal_matrices, normalization
from tests.device.golden_attention import attention, chunks, rotations, windows_and_sinks
from tests.device.golden_delta import (
    batched_matrices,
    convolutions,
    delta_rules,
    gated_norms,
    gates,
    joins,
    scans,
)
from tests.device.golden_draws import draws
from tests.device.golden_experts import experts, routing
from tests.device.golden_moves import caches, heads, look_ups, moves
from tests.device.golden_values import Comparison

FAMILIES = (
    moves,
    look_ups,
    heads,
    caches,
    elementwise,
    normalization,
    matrices,
    minimal_matrices,
    rotations,
    attention,
    chunks,
    windows_and_sinks,
    draws,
    routing,
    experts,
    delta_rules,
    convolutions,
    gated_norms,
    joins,
    gates,
    scans,
    batched_matrices,
)


def comparisons() -> list[Comparison]:
    return [comparison for family in FAMILIES for comparison in family()]

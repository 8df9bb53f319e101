"""The report of one pass, from its captured graphs. Counts of two layers are scaled to the depth of the model.

A layer's operations are those between the moment the module takes its weights and the moment it takes the next
layer's; the second of the captured layers stands for all that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.legality.graph import Memory, Operation, Transfer
from runtime.legality.recorder import Call

LAST = 1  # index of the layer that stands for all later ones
ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class Sizes:
    """What a board and a module hold whatever runs. DRAM in bytes of all banks, L1 in bytes of one core."""

    weights: int
    key_value: int
    dram_capacity: int
    l1_bank: int


@dataclass(frozen=True)
class Recorded:
    """One pass as it was recorded at two layers: `operations` with buffers and `memory` with addresses tell of the same
    operations, in the same order."""

    calls: tuple[Call, ...]
    operations: tuple[Operation, ...]
    memory: tuple[Memory, ...]
    transfers: tuple[Transfer, ...]

    def __post_init__(self) -> None:
        if len(self.operations) != len(self.memory):
            raise RuntimeError(
                f"{len(self.operations)} operations without dispatch and {len(self.memory)} with it: the pass is not "
                "the same twice"
            )

    def call_of(self, operation: Operation) -> Call | None:
        """None for an operation outside of any call that the module makes by the library's name."""
        return None if operation.place.call is None else self.calls[operation.place.call]


def at_full_depth(counts: Sequence[int | None], layers: int) -> int:
    """The number of `counts` (a layer or None for each operation of a pass at two layers) when there are `layers`."""
    last = sum(layer == LAST for layer in counts)
    return len(counts) + last * (layers - LAST - 1) if layers > LAST else len(counts)


def peak_at_full_depth(memory: Sequence[Memory], layers: int) -> int:
    """Most bytes of DRAM during a pass: what the second layer needs beyond the first, every later one needs again."""
    most = {layer: max((one.dram for one in memory if one.place.layer == layer), default=0) for layer in (0, LAST)}
    growth = max(most[LAST] - most[0], 0) if layers > LAST else 0
    return max((one.dram for one in memory), default=0) + growth * max(layers - LAST - 1, 0)


def configurations(recorded: Recorded) -> tuple[dict[str, str], str]:
    """Of each matmul, by the name of its weight, and of attention: the configuration in words."""
    matmuls, attention = {}, ""
    for operation in recorded.operations:
        call = recorded.call_of(operation)
        if call is None:
            continue
        if "Matmul" in operation.name:
            matmuls.setdefault(call.role or call.function, call.program or operation.factory)
        elif ATTENTION in call.name:
            attention = call.program or operation.factory
    return matmuls, attention


def record(recorded: Recorded, operation: Operation) -> dict[str, Any]:
    call = recorded.call_of(operation)
    return {
        "operation": operation.name,
        "call": call.name if call else "",
        "line": call.line if call else 0,
        "function": call.function if call else "",
        "layer": operation.place.layer,
        "stage": operation.place.stage,
        "inputs": [one.to_json() for one in operation.inputs],
        "outputs": [one.to_json() for one in operation.outputs],
        "cores": operation.cores,
        "circular_buffer_bytes": operation.buffer_bytes,
        "fidelity": operation.fidelity,
        "program": (call.program if call else "") or operation.factory,
    }


def report(recorded: Recorded, sizes: Sizes, layers: int) -> dict[str, Any]:
    """All fields of a pass's report but `shape` and `passed`."""
    matmuls, attention = configurations(recorded)
    body = [one for one in recorded.transfers if one.place.stage == "body"]
    both = [one.buffer_bytes + lived.l1 for one, lived in zip(recorded.operations, recorded.memory)]
    placed = [one.place.layer for one in recorded.operations]
    return {
        "operations": at_full_depth(placed, layers),
        "operations_per_layer": sum(layer == min(LAST, layers - 1) for layer in placed),
        "host_uploads": at_full_depth([one.place.layer for one in body if one.kind == "upload"], layers),
        "host_reads": at_full_depth([one.place.layer for one in body if one.kind == "read"], layers),
        "circular_buffer_bytes": {
            "peak": max((one.buffer_bytes for one in recorded.operations), default=0),
            "limit": sizes.l1_bank,
        },
        "l1_bytes": {"peak": max(both, default=0), "limit": sizes.l1_bank},
        "dram_bytes": {
            "weights": sizes.weights,
            "key_value": sizes.key_value,
            "activations_peak": peak_at_full_depth(recorded.memory, layers),
            "capacity": sizes.dram_capacity,
        },
        "matmuls": matmuls,
        "attention": attention,
        "calls": [record(recorded, one) for one in recorded.operations],
    }


def nothing_measured() -> dict[str, Any]:
    """The same fields of a pass that was refused before it could be recorded."""
    empty = Recorded((), (), (), ())
    return dict.fromkeys(report(empty, Sizes(0, 0, 0, 0), 1), None) | {"calls": [], "matmuls": {}}

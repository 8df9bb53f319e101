"""The report of one pass, from its captured graphs. Counts of the first layers are scaled to the depth of the model.

A layer's operations are those between the moment the module takes its weights and the moment it takes the next
layer's; of each kind of layers the first captured one after layer 0 stands for all that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.legality.graph import Memory, Operation, Transfer
from runtime.legality.recorder import Call
from runtime.tables import layer_kinds

Kinds = tuple[str, ...]  # one for each layer
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
    """One pass as it was recorded over the first layers: `operations` with buffers and `memory` with addresses tell of the same
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


def kinds_of(module: Any) -> Kinds:
    """The kind of each layer; one without a name where all are alike."""
    return layer_kinds(module) or ("",) * module.LAYERS


def recorded_layers(kinds: Kinds) -> int:
    """Layers from the first on that are recorded: up to the ones that stand for all others, and two of one kind, if any."""
    count = max(stand_in(kinds, kind) for kind in kinds) + 1
    return count if len(set(kinds[:count])) < count else min(count + 1, len(kinds))


def stand_in(kinds: Kinds, kind: str) -> int:
    """The layer that stands for all later ones of its kind: not layer 0, unless it is the only one."""
    return kinds.index(kind, 1) if kind in kinds[1:] else kinds.index(kind)


def at_full_depth(counts: Sequence[int | None], kinds: Kinds) -> int:
    """The number of `counts` (a layer or None for each operation of a pass over the recorded layers) in a whole pass."""
    later = kinds[recorded_layers(kinds) :]
    return len(counts) + sum(counts.count(stand_in(kinds, kind)) for kind in later)


def peak_at_full_depth(memory: Sequence[Memory], kinds: Kinds) -> int:
    """Most bytes of DRAM during a pass: what a recorded layer needs beyond an earlier one of its kind, every later one
    needs again.
    """
    recorded = recorded_layers(kinds)
    most = [max((one.dram for one in memory if one.place.layer == layer), default=0) for layer in range(recorded)]
    pairs = [(kinds.index(kinds[layer]), layer) for layer in range(recorded) if kinds.index(kinds[layer]) < layer]
    growth = max((-(-(most[layer] - most[first]) // (layer - first)) for first, layer in pairs), default=0)
    return max((one.dram for one in memory), default=0) + max(growth, 0) * (len(kinds) - recorded)


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


def report(recorded: Recorded, sizes: Sizes, kinds: Kinds) -> dict[str, Any]:
    """All fields of a pass's report but `shape` and `passed`."""
    matmuls, attention = configurations(recorded)
    body = [one for one in recorded.transfers if one.place.stage == "body"]
    both = [one.buffer_bytes + lived.l1 for one, lived in zip(recorded.operations, recorded.memory)]
    placed = [one.place.layer for one in recorded.operations]
    return {
        "operations": at_full_depth(placed, kinds),
        "operations_per_layer": max(placed.count(stand_in(kinds, kind)) for kind in kinds),
        "host_uploads": at_full_depth([one.place.layer for one in body if one.kind == "upload"], kinds),
        "host_reads": at_full_depth([one.place.layer for one in body if one.kind == "read"], kinds),
        "circular_buffer_bytes": {
            "peak": max((one.buffer_bytes for one in recorded.operations), default=0),
            "limit": sizes.l1_bank,
        },
        "l1_bytes": {"peak": max(both, default=0), "limit": sizes.l1_bank},
        "dram_bytes": {
            "weights": sizes.weights,
            "key_value": sizes.key_value,
            "activations_peak": peak_at_full_depth(recorded.memory, kinds),
            "capacity": sizes.dram_capacity,
        },
        "matmuls": matmuls,
        "attention": attention,
        "calls": [record(recorded, one) for one in recorded.operations],
    }


def nothing_measured() -> dict[str, Any]:
    """The same fields of a pass that was refused before it could be recorded."""
    empty = Recorded((), (), (), ())
    return dict.fromkeys(report(empty, Sizes(0, 0, 0, 0), ("",)), None) | {"calls": [], "matmuls": {}}

"""A slot's recurrent state on the host and back: all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from types import ModuleType
from typing import Any

from torch import Tensor

from runtime.backend import ttnn
from runtime.bindings import Bindings
from runtime.errors import SnapshotMismatch
from runtime.positions import ZERO, Held
from runtime.tables import states


@dataclass(frozen=True, eq=False)
class StateSnapshot:
    """The states at `end` and at `boundary`, for each part of the module's STATES by its name a tensor of each recurrent layer.

    `digest` is of the model and the layers that they belong to.
    """

    digest: str
    end: int
    boundary: int
    at_end: dict[str, tuple[Tensor, ...]]
    at_boundary: dict[str, tuple[Tensor, ...]]


def geometry_digest(module: ModuleType, layers: int) -> str:
    """Of everything that a state depends on besides the weights: equal where a state may be restored."""
    parts = [(part.name, part.shape, str(part.dtype)) for part in states(module)]
    return sha256(repr((module.GEOMETRY, module.LAYER_KINDS[:layers], module.ALIGNMENT, parts)).encode()).hexdigest()


def take(bindings: Bindings, slot: int) -> StateSnapshot:
    """What a slot holds. Reading waits for the device, so that a copy of a plan that is still running is in it."""
    held = bindings.states.positions.require(slot)
    digest = geometry_digest(bindings.module, len(bindings.weights.layers))
    at_end = _read(bindings, held.end_at)
    at_boundary = at_end if held.boundary_at == held.end_at else _read(bindings, held.boundary_at)
    return StateSnapshot(digest, held.end, held.boundary, at_end, at_boundary)


def put_back(bindings: Bindings, slot: int, snapshot: StateSnapshot) -> Held:
    """Write a snapshot beside what the slots hold; the caller makes its slot refer to it."""
    positions = bindings.states.positions
    positions.require_slot(slot)
    _check(bindings, snapshot)
    ttnn.synchronize_device(bindings.device)
    end_at, boundary_at = positions.free()[:2]
    _write(bindings, end_at, snapshot.at_end)
    if snapshot.boundary == snapshot.end:
        return Held(snapshot.end, snapshot.boundary, end_at, end_at)
    if snapshot.boundary == 0:
        return Held(snapshot.end, 0, end_at, ZERO)
    _write(bindings, boundary_at, snapshot.at_boundary)
    return Held(snapshot.end, snapshot.boundary, end_at, boundary_at)


def _read(bindings: Bindings, place: int) -> dict[str, tuple[Tensor, ...]]:
    held = bindings.stores.slots[place]
    return {part.name: tuple(map(ttnn.to_torch, getattr(held, part.name))) for part in bindings.module.STATES}


def _write(bindings: Bindings, place: int, values: dict[str, tuple[Tensor, ...]]) -> None:
    for part in bindings.module.STATES:
        for value, target in zip(values[part.name], getattr(bindings.stores.slots[place], part.name)):
            host = ttnn.from_torch(value, dtype=part.dtype, layout=part.layout)
            ttnn.copy_host_to_device_tensor(host, target)


def _check(bindings: Bindings, snapshot: Any) -> None:
    """Refuse what is not a whole state of this model."""
    module, layers = bindings.module, len(bindings.weights.layers)
    if not isinstance(snapshot, StateSnapshot):
        raise SnapshotMismatch(f"{type(snapshot).__name__} is no snapshot of a slot; take one with snapshot()")
    if snapshot.digest != geometry_digest(module, layers):
        raise SnapshotMismatch(
            f"the snapshot is of other recurrent layers than the {layers} layers of {module.MODEL} that are loaded; "
            f"restore it where it was taken"
        )
    if not 0 <= snapshot.boundary <= snapshot.end or snapshot.boundary % module.ALIGNMENT:
        raise SnapshotMismatch(
            f"the snapshot holds the state at {snapshot.end} and at {snapshot.boundary}, which is no multiple of "
            f"{module.ALIGNMENT} up to it"
        )
    for where, parts in (("end", snapshot.at_end), ("boundary", snapshot.at_boundary)):
        for part in module.STATES:
            count = len(getattr(bindings.stores, part.name))
            shapes = [tuple(tensor.shape) for tensor in parts.get(part.name, ())]
            if shapes != [part.shape] * count:
                raise SnapshotMismatch(
                    f"the snapshot's {part.name} at its {where} are {len(shapes)} tensors of {sorted(set(shapes))} and "
                    f"{count} of {part.shape} are needed; a state is restored whole or not at all"
                )

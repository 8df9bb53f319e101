"""What every part of one runtime works with. Resolved once: eager and traced runs hold the very same objects."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.errors import DeviceMismatch
from runtime.load import check_device, check_module
from runtime.postprocess import Postprocessor
from runtime.registry import Registry
from runtime.resources import Ownership
from runtime.staging import Stager
from runtime.states import States
from runtime.stats import Stats
from runtime.stores import row_dtype
from runtime.tables import FULL, RECURRENT, State, Store, held_states, of_kind, states, wave_rows


@dataclass(frozen=True)
class Bindings:
    """One module on one device, its borrowed weights and stores, and the collaborators made for them."""

    module: ModuleType
    device: Any
    weights: SimpleNamespace
    stores: SimpleNamespace
    ownership: Ownership
    stats: Stats
    registry: Registry
    stager: Stager
    postprocess: Postprocessor
    states: States

    @property
    def blocks(self) -> int:
        """Key-value blocks of the stores, which may be fewer than the module's."""
        counts = [tensor.shape[0] for store in self.module.STORES for tensor in getattr(self.stores, store.name)[:1]]
        return min(counts, default=self.module.KEY_VALUE_BLOCKS)


def bind(module: ModuleType, device: Any, weights: SimpleNamespace, stores: SimpleNamespace) -> Bindings:
    """Check that these belong together and make the rest. Raises ModuleError or DeviceMismatch."""
    check_module(module)
    check_device(module, device)
    layers = len(weights.layers)
    paged = of_kind(module, layers, FULL) if states(module) else layers
    for store in module.STORES:
        tensors = getattr(stores, store.name, ())
        if len(tensors) != paged:
            of_them = f", {paged} of them with keys and values," if paged != layers else ""
            raise DeviceMismatch(
                f"weights have {layers} layers{of_them} and the store {store.name} has {len(tensors)}; "
                f"allocate it for as many"
            )
        _check_store(store, tensors)
    if states(module):
        _check_states(module, stores, of_kind(module, layers, RECURRENT))
    stats = Stats(len(weights.layers))
    stager = Stager(module, device, stats)
    return Bindings(
        module,
        device,
        weights,
        stores,
        Ownership(),
        stats,
        Registry(),
        stager,
        Postprocessor(module, device, weights, stager),
        States(module, stores, stats),
    )


def _check_store(store: Store, tensors: tuple[Any, ...]) -> None:
    """The stores are those that the module's passes were built for, with as many blocks or fewer."""
    for tensor in tensors:
        shape = tuple(tensor.shape)
        if shape[1:] != store.shape[1:] or shape[0] > store.shape[0] or tensor.dtype != store.dtype:
            raise DeviceMismatch(
                f"the store {store.name} is {tensor.dtype} {shape} and the module's passes are built for {store.dtype} "
                f"{store.shape}, of which only the first number, the blocks, may be smaller; use stores.allocate"
            )


def _check_states(module: ModuleType, stores: SimpleNamespace, layers: int) -> None:
    """States are held for as many layers, rows and slots as the module's passes need, in their shapes and types."""
    held = getattr(stores, "slots", ())
    if len(held) != held_states(module):
        raise DeviceMismatch(
            f"the stores hold {len(held)} states and STATE_SLOTS {module.STATE_SLOTS} with waves of up to "
            f"{wave_rows(module)} rows need {held_states(module)}; use stores.allocate"
        )
    for part in module.STATES:
        rows = getattr(stores, part.name, ())
        of_layers = {len(rows), *[len(getattr(state, part.name, ())) for state in held]}
        if of_layers != {layers}:
            raise DeviceMismatch(
                f"weights have {layers} recurrent layers and the states {part.name} have "
                f"{' and '.join(map(str, sorted(of_layers)))}; allocate them for as many"
            )
        for of_layer in rows:
            if len(of_layer) != wave_rows(module):
                raise DeviceMismatch(
                    f"the states {part.name} have {len(of_layer)} rows and the largest wave has {wave_rows(module)}; "
                    f"use stores.allocate"
                )
            _check_state(part, of_layer, row_dtype(part))
        for state in held:
            _check_state(part, getattr(state, part.name), part.dtype)


def _check_state(part: State, tensors: tuple[Any, ...], dtype: Any) -> None:
    for tensor in tensors:
        if tuple(tensor.shape) != part.shape or tensor.dtype != dtype:
            raise DeviceMismatch(
                f"a state of {part.name} is {tensor.dtype} {tuple(tensor.shape)} and the module's passes are built for "
                f"{dtype} {part.shape}; use stores.allocate"
            )

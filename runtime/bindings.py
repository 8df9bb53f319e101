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
from runtime.stats import Stats
from runtime.tables import Store


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

    @property
    def blocks(self) -> int:
        """Key-value blocks of the stores, which may be fewer than the module's."""
        return min([getattr(self.stores, store.name)[0].shape[0] for store in self.module.STORES])


def bind(module: ModuleType, device: Any, weights: SimpleNamespace, stores: SimpleNamespace) -> Bindings:
    """Check that these belong together and make the rest. Raises ModuleError or DeviceMismatch."""
    check_module(module)
    check_device(module, device)
    for store in module.STORES:
        tensors = getattr(stores, store.name, ())
        if len(tensors) != len(weights.layers):
            raise DeviceMismatch(
                f"weights have {len(weights.layers)} layers and the store {store.name} has {len(tensors)}; "
                f"allocate it for as many"
            )
        _check_store(store, tensors)
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

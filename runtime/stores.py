"""Per-sequence state on the device, as the module lists it: paged keys and values now, other kinds by the same table.

The caller owns stores: a runtime that uses them never frees them.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.backend import ttnn
from runtime.errors import ModuleError
from runtime.resources import Ownership


def allocate(module: ModuleType, device: Any, layers: int | None = None, blocks: int | None = None) -> SimpleNamespace:
    """Zeroed stores: one tuple of device tensors for each name in STORES, one tensor for each layer.

    layers: only so many layers, from the first on. blocks: only so many key-value blocks; the widths of page tables are
    the module's all the same. Raises ModuleError for more than the module has. On a failure what was allocated is
    released.
    """
    if blocks is not None and not 0 < blocks <= module.KEY_VALUE_BLOCKS:
        raise ModuleError(
            f"{blocks} key-value blocks were asked for; the module has 1 to {module.KEY_VALUE_BLOCKS}, and its manifest "
            f"says how many"
        )
    with Ownership().scope() as scope:
        stores = {}
        for store in module.STORES:
            count = store.layers if layers is None else layers
            if not 0 < count <= store.layers:
                raise ModuleError(
                    f"{count} layers of the store {store.name} were asked for; the module has 1 to {store.layers}"
                )
            stores[store.name] = tuple(
                [
                    scope.own(
                        ttnn.zeros(
                            store.shape if blocks is None else (blocks, *store.shape[1:]),
                            dtype=store.dtype,
                            layout=store.layout,
                            device=device,
                            memory_config=ttnn.DRAM_MEMORY_CONFIG,
                        )
                    )
                    for _ in range(count)
                ]
            )
        scope.move(*[tensor for tensors in stores.values() for tensor in tensors])
    return SimpleNamespace(**stores)


def release(stores: SimpleNamespace) -> None:
    """Free every store. Raises the first error after all were tried."""
    with Ownership().scope() as scope:
        for tensors in vars(stores).values():
            for tensor in tensors:
                scope.own(tensor)

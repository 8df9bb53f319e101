"""Per-sequence state on the device, as the module lists it: paged keys and values, and the states of recurrent layers.

The caller owns stores: a runtime that uses them never frees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.backend import ttnn
from runtime.errors import ModuleError
from runtime.resources import Ownership, Scope
from runtime.tables import FULL, RECURRENT, State, held_states, of_kind, states, wave_rows

SCANNED = "states"  # the part that a scan works on in float32, however narrow it is stored


def allocate(module: ModuleType, device: Any, layers: int | None = None, blocks: int | None = None) -> SimpleNamespace:
    """Zeroed stores: one tuple of device tensors for each name in STORES, one tensor for each layer that has it.

    Of a module with STATES, there is under each part's name, for each recurrent layer, a tuple of tensors, one for each row
    of the largest wave, on which passes work. `slots` are the states held between passes, `tables.held_states` of them,
    each with a tensor for each recurrent layer under the part's name; the first is the zero state, which nothing writes.

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
            count = _attention_layers(module, store, layers)
            shape = store.shape if blocks is None else (blocks, *store.shape[1:])
            stores[store.name] = tuple([_zeros(device, store, shape, store.dtype, scope) for _ in range(count)])
        if states(module):
            stores |= _states(module, device, of_kind(module, layers or module.LAYERS, RECURRENT), scope)
        made = SimpleNamespace(**stores)
        scope.move(*tensors(made))
    return made


def tensors(stores: Any) -> Iterator[Any]:
    """Every device tensor of stores."""
    if isinstance(stores, SimpleNamespace):
        for held in vars(stores).values():
            yield from tensors(held)
    elif isinstance(stores, (tuple, list)):
        for held in stores:
            yield from tensors(held)
    else:
        yield stores


def release(stores: SimpleNamespace) -> None:
    """Free every store. Raises the first error after all were tried."""
    with Ownership().scope() as scope:
        for tensor in tensors(stores):
            scope.own(tensor)


def row_dtype(part: State) -> Any:
    """What passes work on: the scan's part in float32, since a narrower one would lose with every chunk."""
    return ttnn.float32 if part.name == SCANNED else part.dtype


def _attention_layers(module: ModuleType, store: Any, layers: int | None) -> int:
    """Layers that have a paged store, of the first `layers`."""
    hybrid = bool(states(module))
    most = module.LAYERS if hybrid else store.layers
    count = most if layers is None else layers
    if not 0 < count <= most:
        raise ModuleError(f"{count} layers of the store {store.name} were asked for; the module has 1 to {most}")
    return of_kind(module, count, FULL) if hybrid else count


def _states(module: ModuleType, device: Any, layers: int, scope: Scope) -> dict[str, Any]:
    rows = {
        part.name: tuple(
            [
                tuple([_zeros(device, part, part.shape, row_dtype(part), scope) for _ in range(wave_rows(module))])
                for _ in range(layers)
            ]
        )
        for part in module.STATES
    }
    slots = [
        SimpleNamespace(
            **{
                part.name: tuple([_zeros(device, part, part.shape, part.dtype, scope) for _ in range(layers)])
                for part in module.STATES
            }
        )
        for _ in range(held_states(module))
    ]
    return {**rows, "slots": tuple(slots)}


def _zeros(device: Any, entry: Any, shape: tuple[int, ...], dtype: Any, scope: Scope) -> Any:
    return scope.own(
        ttnn.zeros(shape, dtype=dtype, layout=entry.layout, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    )

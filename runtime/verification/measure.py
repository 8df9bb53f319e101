"""Reading a module's stores and layer outputs back, and measuring them against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from torch import Tensor

from runtime.backend import ttnn
from runtime.resources import Ownership
from runtime.rope import head_order
from runtime.staging import Stager
from runtime.stats import Stats
from runtime.tables import RECURRENT, layer_kinds, states
from runtime.verification.comparison import Agreement, agreement, worst_blocks
from runtime.verification.expected import Expected
from runtime.verification.routes import Outcome, Row


def key_order(module: ModuleType) -> Tensor:
    """Which published column of a key each column of the module's stores holds."""
    geometry = module.GEOMETRY
    return head_order(module.ROTARY_STYLE, geometry.head_dim, geometry.rope.dimensions)


def cached(store: Tensor, row: Row, order: Tensor | None = None) -> Tensor:
    """A prompt's part of one store `[blocks, heads, block_size, head_dim]` -> `[heads, tokens, head_dim]`, with the
    columns of keys put back from `order` to where published models hold them.
    """
    blocks = store[list(row.pages)]
    heads = blocks.transpose(0, 1).flatten(1, 2)[:, : len(row.tokens)]
    return heads if order is None else heads[..., order.argsort()]


def caches(
    module: ModuleType, stores: SimpleNamespace, outcomes: Sequence[Outcome], expected: Sequence[Expected]
) -> list[dict[str, list[Agreement]]]:
    """For each outcome, keys and values of every layer against the reference, as the worst block has it; of a recurrent layer
    its state and its convolution's tail in their place. Each store is read once."""
    measured: list[dict[str, list[Agreement]]] = [{"keys": [], "values": []} for _ in outcomes]
    for name in ("keys", "values"):
        order = key_order(module) if name == "keys" else None
        for layer, store in enumerate(getattr(stores, name)):
            host = ttnn.to_torch(store)
            for outcome, found in zip(outcomes, measured):
                ours = cached(host, outcome.row, order).float()
                theirs = getattr(expected[outcome.row.prompt], name)[layer]
                found[name].append(worst_blocks(ours, theirs, module.BLOCK_SIZE))
    for index, layer in enumerate([at for at, kind in enumerate(layer_kinds(module)) if kind == RECURRENT]):
        for outcome, found in zip(outcomes, measured):
            theirs = expected[outcome.row.prompt].states[index]
            for name, ours, wanted in zip(("keys", "values"), outcome.states[index], theirs):
                found[name].insert(layer, agreement(ours[0].float(), wanted.float()))
    return measured


def stores_of_layer(module: ModuleType, stores: SimpleNamespace, layer: int) -> SimpleNamespace:
    """What one layer reads and writes, as stores that hold nothing else; the states of the first row begin at zero."""
    kinds = layer_kinds(module)
    if not states(module):
        return SimpleNamespace(**{name: [tensors[layer]] for name, tensors in vars(stores).items()})
    index = kinds[:layer].count(kinds[layer])
    nothing = {name: [] for name in vars(stores)}
    if kinds[layer] != RECURRENT:
        return SimpleNamespace(**{**nothing, "keys": [stores.keys[index]], "values": [stores.values[index]]})
    parts = {part.name: getattr(stores, part.name)[index] for part in states(module)}
    for name, rows in parts.items():
        ttnn.copy(getattr(stores.slots[0], name)[index], rows[0])
    return SimpleNamespace(**{**nothing, **{name: [rows] for name, rows in parts.items()}})


def layer_outputs(
    module: ModuleType,
    device: Any,
    weights: SimpleNamespace,
    stores: SimpleNamespace,
    prefill: Any,
    row: Row,
    expected: Expected,
) -> list[Agreement]:
    """Each layer's output for a prompt that one pass holds, by the module's own functions with one layer's weights at a
    time.

    Errors of earlier layers are carried along, as they are in a run.
    """
    (plan,) = prefill.prepare([list(row.tokens)], [list(row.pages)], [len(row.tokens)])
    (chunk,) = plan.chunks
    measured = []
    with Ownership().scope() as scope:
        inputs = Stager(module, device, Stats()).stage(plan, chunk, scope)
        hidden = scope.own(module.embed(inputs.tokens, weights))
        turning = [scope.own(table) for table in module.rotary(inputs.positions, weights)]
        kinds = layer_kinds(module)
        for layer, theirs in enumerate(expected.hidden):
            one_layer = SimpleNamespace(**{**vars(weights), "layers": [weights.layers[layer]]})
            its_stores = stores_of_layer(module, stores, layer)
            used_up = scope.disown(hidden)
            kind = (kinds[layer : layer + 1],) if kinds else ()
            hidden = scope.own(module.layers(used_up, *turning, inputs, one_layer, its_stores, chunk.shape, *kind))
            ours = ttnn.to_torch(hidden).float().reshape(-1, theirs.shape[-1])[: len(row.tokens)]
            measured.append(agreement(ours, theirs))
    return measured

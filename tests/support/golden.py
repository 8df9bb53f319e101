"""Emitted modules of the tiny families on the emulator, and what transformers says they must give."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from generator import catalog, geometry, targets
from generator.manifest import check
from generator.rules import ROPE_KEYS
from generator.toml_source import scan
from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.prefill import Prefill
from runtime.stores import allocate
from runtime.tables import Geometry, Rope
from runtime.verification.comparison import relative_error, worst_blocks
from runtime.verification.measure import cached, key_order
from runtime.verification.routes import Row
from runtime.weights import load_weights
from tests.support.building import program_of
from tests.support.families import EVERY_GEOMETRY, Peer, build_peer, family_of, random_tokens

EXACT = {
    "weights": "bfloat16",
    "embedding": "bfloat16",
    "head": "bfloat16",
    "key_value": "bfloat16",
    "activation": "bfloat16",
}
CAPS = ("query_scale", "attention_soft_cap", "logit_soft_cap")
ONE_PASS = {"lengths": (32, 64, 128, 640), "prefill_chunk": 640}  # a soft cap leaves no chunks
STATE_SLOTS = 12
PACKED = EXACT | {"weights": "bfloat8_b", "head": "bfloat8_b", "key_value": "bfloat8_b"}


def manifest(family: str, dtypes: dict[str, str]) -> dict[str, Any]:
    """The manifest of a tiny family: three lengths, waves up to eight, five whole chunks of context."""
    shape, rope = EVERY_GEOMETRY[family], EVERY_GEOMETRY[family].rope
    width: dict[str, Any] = {"intermediate": shape.intermediate}
    if shape.experts is not None:
        names = ("count", "per_token", "intermediate", "renormalise", "shared_intermediate")
        stated = {name: getattr(shape.experts, name) for name in names}
        width = {"experts": {name: value for name, value in stated.items() if name != "shared_intermediate" or value}}
    partial = {"rotary_dimensions": rope.dimensions} if rope.dimensions < shape.head_dim else {}
    return {
        "name": "golden",
        "family": family_of(family),
        "source": "tests",
        "model": {
            **{name: getattr(shape, name) for name in ("vocabulary", "hidden", "layers")},
            **width,
            **{name: getattr(shape, name) for name in ("query_heads", "key_value_heads", "head_dim", "norm_epsilon")},
            "tied_embeddings": shape.tied_embeddings,
            "maximum_context": 640,
            "activation": shape.activation,
            "rope": _table(rope),
            **partial,
            **_windows(shape),
            **_recurrent(shape),
            **{name: getattr(shape, name) for name in CAPS if getattr(shape, name)},
        },
        "target": {
            "n150": {
                "context": 640,
                "block_size": 32,
                "key_value_blocks": 120,
                "lengths": (32, 64, 128),
                "waves": (1, 2, 4, 8),
                "wave_tokens": 1024,
                "prefill_chunk": 128,
                "attention_chunk": 64,
                "dtypes": dtypes,
            }
            | (ONE_PASS if shape.attention_soft_cap else {})
            | _recurrent_table(shape)
        },
    }


def _table(rope: Rope) -> dict[str, Any]:
    stated = {name: getattr(rope, name) for name in ROPE_KEYS[rope.kind]}
    return {"kind": rope.kind, "theta": rope.theta, **stated}


def _windows(shape: Geometry) -> dict[str, Any]:
    if not shape.sliding_window:
        return {}
    local = {"local_rope": _table(shape.local_rope)} if shape.local_rope else {}
    full = shape.full_attention_layers
    return {"sliding_window": shape.sliding_window, "full_attention_layers": full, **local}


def _recurrent(shape: Geometry) -> dict[str, Any]:
    if shape.gated_delta_net is None:
        return {}
    kinds = tuple(["gated_delta_net" if shape.is_recurrent(layer) else "full" for layer in range(shape.layers)])
    names = ("key_heads", "value_heads", "key_dim", "value_dim", "kernel")
    return {"layer_kinds": kinds, "gated_delta_net": {name: getattr(shape.gated_delta_net, name) for name in names}}


def _recurrent_table(shape: Geometry) -> dict[str, Any]:
    """Slots for more rows than the largest wave; lengths of whole chunks of the recurrence, which as matmuls are larger."""
    net = shape.gated_delta_net
    if net is None:
        return {}
    return {"state_slots": STATE_SLOTS} | ({} if net.key_dim == net.value_dim else {"lengths": (64, 128)})


def build_module(data: dict[str, Any]) -> ModuleType:
    """A manifest as plain data -> its emitted module, imported."""
    (target,) = data["target"]
    file = check(data, "golden.toml", scan(""), (target,))
    resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, target))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{target}.py"
        path.write_text(program_of(resolved, "golden.toml"), encoding="utf-8")
        return load(path)


@cache
def module_of(family: str, packed: bool = False) -> ModuleType:
    return build_module(manifest(family, PACKED if packed else EXACT))


def mistaken(family: str, **rope: Any) -> ModuleType:
    """The module of a family that believes other numbers of its rotary embedding: its tables are made from these."""
    module = module_of(family)
    believed = replace(module.GEOMETRY, rope=replace(module.GEOMETRY.rope, **rope))
    return SimpleNamespace(**vars(module) | {"GEOMETRY": believed})


class Bench:
    """A tiny family on a device of its own, with the parameters of a transformers model; `module` replaces its own."""

    def __init__(
        self, family: str, precision: str = "float32", packed: bool = False, module: ModuleType | None = None
    ) -> None:
        self.family = family
        self.peer: Peer = build_peer(family)
        self.module = module or module_of(family, packed)
        self.geometry: Geometry = self.module.GEOMETRY
        self.device = open_device(self.module.BOARD, precision=precision)
        self.load(self.peer.tensors)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Weights out of `tensors`, empty stores and a runtime of their own."""
        self.weights = load_weights(self.module, self.device, tensors)
        self.stores = allocate(self.module, self.device)
        self.prefill = Prefill(self.module, self.device, self.weights, self.stores)

    def rows(self, lengths: Sequence[int], seed: int = 0) -> list[Row]:
        """Random prompts without token 0, which is what padding holds, each with blocks out of a random permutation."""
        blocks = iter(np.random.default_rng(seed).permutation(self.module.KEY_VALUE_BLOCKS).tolist())
        rows = []
        for index, length in enumerate(lengths):
            tokens = tuple(
                token % (self.module.VOCABULARY - 1) + 1 for token in random_tokens(length, seed * 100 + index)
            )
            rows.append(Row(index, tokens, tuple(next(blocks) for _ in range(-(-length // self.module.BLOCK_SIZE)))))
        return rows

    def call(
        self,
        rows: Sequence[Row],
        ends: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
        slots: Sequence[int] | None = None,
        final: bool = True,
        **options: Any,
    ) -> Any:
        """Logits `[rows, vocabulary]` of rows up to `ends` (default: whole), over `starts` tokens that are in the
        cache. options: others of prefill_forward.
        """
        ends = [len(row.tokens) for row in rows] if ends is None else ends
        tokens = np.zeros((len(rows), max(len(row.tokens) for row in rows)), dtype=np.int64)
        pages = np.full((len(rows), max(len(row.pages) for row in rows)), -1)
        for index, row in enumerate(rows):
            tokens[index, : len(row.tokens)] = row.tokens
            pages[index, : len(row.pages)] = row.pages
        return self.prefill.prefill_forward(tokens, pages, list(ends), starts, slots, final=final, **options)

    def store(self, name: str, layer: int) -> Tensor:
        """One store as the device holds it, `[blocks, heads, block_size, head_dim]`."""
        return ttnn.to_torch(getattr(self.stores, name)[layer]).float()

    def everything(self) -> Tensor:
        """Every store of every layer, stacked."""
        return torch.stack(
            [self.store(name, layer) for name in ("keys", "values") for layer in range(len(self.stores.keys))]
        )

    def fill(self, value: float) -> None:
        """Every element of every store becomes `value`."""
        for store in (*self.stores.keys, *self.stores.values):
            host = torch.full(tuple(store.shape), value)
            ttnn.copy_host_to_device_tensor(ttnn.from_torch(host, dtype=store.dtype, layout=store.layout), store)

    def cache(self, row: Row) -> dict[str, list[Tensor]]:
        """What the stores hold of a row, each layer `[heads, tokens, head_dim]` in published order."""
        order = key_order(self.module)
        return {
            name: [
                cached(self.store(name, layer), row, order if name == "keys" else None)
                for layer in range(len(self.stores.keys))
            ]
            for name in ("keys", "values")
        }

    def errors(self, rows: Sequence[Row], logits: Tensor) -> dict[str, float]:
        """Largest relative errors to transformers: of a row's logits, of a block of keys, of a block of values."""
        worst = {"logits": 0.0, "keys": 0.0, "values": 0.0}
        for row, found in zip(rows, logits, strict=True):
            wanted = self.peer.logits(list(row.tokens))[-1]
            worst["logits"] = max(worst["logits"], relative_error(found, wanted))
            ours = self.cache(row)
            for name, layers in zip(("keys", "values"), self.peer.keys_and_values(list(row.tokens))):
                for mine, theirs in zip(ours[name], layers, strict=True):
                    worst[name] = max(
                        worst[name], worst_blocks(mine, theirs, self.module.BLOCK_SIZE).max_relative_error
                    )
        return worst

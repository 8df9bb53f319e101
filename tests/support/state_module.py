"""A module with recurrent layers whose states can be told from the tokens by hand, on the emulator.

It is a tiny dense model of one attention layer between two recurrent ones. A recurrent layer adds to its state, in every
row of it, a vector of whole numbers for each real token, so that the state is exact whatever the passes. It carries what the
last three tokens stand for over, as a convolution does, and adds its state to the hidden rows of the pass, so that logits
depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runtime.backend import open_device, ttnn
from runtime.load import check_module
from runtime.prefill import Prefill
from runtime.reference.parameters import RandomParameters
from runtime.stores import allocate
from runtime.tables import Input, State, Weight
from runtime.weights import load_weights
from tests.support.golden import EXACT, build_module, manifest

CONTEXT, BLOCK, ALIGNMENT, CHUNK, SLOTS, WIDTH, CARRIED = 384, 32, 64, 128, 4, 32, 3
KINDS = ("gated_delta_net", "full", "gated_delta_net")
TRACE_REGION = 1 << 28
RECURRENT_LAYERS = (0, 2)


@cache
def dense_module() -> ModuleType:
    """Lengths of 32, 64 and 128, waves up to four, chunks of 128 over aligned positions of 64, three chunks of context."""
    data = manifest("llama-untied", EXACT)
    small = {"vocabulary": 64, "hidden": 32, "intermediate": 32, "layers": 1, "query_heads": 1, "key_value_heads": 1}
    data["model"] |= small | {"head_dim": 32, "maximum_context": CONTEXT}
    data["target"]["n150"] |= {
        "context": CONTEXT,
        "block_size": BLOCK,
        "key_value_blocks": 2 * SLOTS * CONTEXT // BLOCK,
        "lengths": (32, 64, 128),
        "waves": (1, 2, 4),
        "wave_tokens": 256,
        "prefill_chunk": CHUNK,
        "attention_chunk": ALIGNMENT,
    }
    return build_module(data)


@cache
def state_module(stored: str = "float32", forms: tuple[tuple[int, str], ...] | None = None) -> SimpleNamespace:
    """The stand-in. stored: type of held states. forms: the table RECURRENCE, by default waves from two rows on."""
    dense = dense_module()
    rows = sorted({shape.rows for shape in dense.TRACES})
    table = Weight(
        "table",
        ("model.layers.{layer}.table",),
        "rows",
        (dense.VOCABULARY, WIDTH),
        ttnn.bfloat16,
        ttnn.ROW_MAJOR_LAYOUT,
    )
    made = SimpleNamespace(
        **{
            **vars(dense),
            "__name__": "state_module",
            "LAYERS": len(KINDS),
            "LAYER_KINDS": KINDS,
            "LAYER_WEIGHTS": (
                *[replace(weight, kind="full") for weight in dense.LAYER_WEIGHTS],
                replace(table, kind="gated_delta_net"),
            ),
            "STATES": (
                State("states", 2, (1, 1, 32, WIDTH), getattr(ttnn, stored), ttnn.TILE_LAYOUT),
                State("tails", 2, (1, CARRIED, WIDTH), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT),
            ),
            "STATE_SLOTS": SLOTS,
            "RECURRENCE": dict(forms) if forms else {count: "rows" if count == 1 else "wave" for count in rows},
            "INPUTS": {variant: _with_states(inputs) for variant, inputs in dense.INPUTS.items()},
            "body": _body(dense.body),
        }
    )
    made.capture = _capture(made)
    check_module(made)
    return made


def _with_states(inputs: Any) -> Any:
    def all_inputs(shape: Any) -> tuple[Input, ...]:
        carried = (1, CARRIED * shape.rows)
        return (
            *inputs(shape),
            Input("valid", (1, shape.rows * shape.tokens), ttnn.uint32, "always"),
            Input("tail_selection", (1, 1, 32, shape.rows * shape.tokens), ttnn.bfloat16, "always"),
            Input("tail_picks", carried, ttnn.uint32, "always"),
        )

    return all_inputs


def _body(dense_body: Any) -> Any:
    def body(inputs: Any, weights: Any, stores: Any, shape: Any) -> Any:
        recurrent = [layer for layer in weights.layers if layer.kind == "gated_delta_net"]
        attention = [layer for layer in weights.layers if layer.kind == "full"]
        only = SimpleNamespace(**{**vars(weights), "layers": attention})
        hidden = dense_body(inputs, only, SimpleNamespace(keys=stores.keys, values=stores.values), shape)
        valid = ttnn.embedding(inputs.valid, weights.validity, layout=ttnn.TILE_LAYOUT)
        for layer, states, tails in zip(recurrent, stores.states, stores.tails):
            hidden = _recur(hidden, valid, inputs, layer, weights, states, tails, shape)
        return hidden

    return body


def _recur(hidden: Any, valid: Any, inputs: Any, layer: Any, weights: Any, states: Any, tails: Any, shape: Any) -> Any:
    rows, tokens = shape.rows, shape.tokens
    mixed = ttnn.embedding(inputs.tokens, layer.table, layout=ttnn.TILE_LAYOUT)
    real = ttnn.mul(mixed, valid)
    parts = []
    for row in range(rows):
        own = ttnn.slice(real, (0, row * tokens, 0), (1, (row + 1) * tokens, WIDTH))
        spread = ttnn.slice(weights.spread, (0, 0, 0, 0), (1, 1, 32, tokens))
        seen = ttnn.linear(spread, ttnn.reshape(own, (1, 1, tokens, WIDTH)), dtype=ttnn.float32)
        ttnn.copy(ttnn.add(states[row], seen), states[row])
        back = ttnn.slice(weights.spread_back, (0, 0, 0, 0), (1, 1, tokens, 32))
        parts.append(ttnn.linear(back, states[row], dtype=ttnn.bfloat16))
    selection = ttnn.to_layout(inputs.tail_selection, ttnn.TILE_LAYOUT)
    picked = ttnn.to_layout(
        ttnn.linear(selection, ttnn.reshape(mixed, (1, 1, rows * tokens, WIDTH))), ttnn.ROW_MAJOR_LAYOUT
    )
    both = ttnn.concat([*tails[:rows], ttnn.reshape(picked, (1, 32, WIDTH))], dim=1)
    ends = ttnn.embedding(
        inputs.tail_picks, ttnn.reshape(both, (CARRIED * rows + 32, WIDTH)), layout=ttnn.ROW_MAJOR_LAYOUT
    )
    for row in range(rows):
        ttnn.copy(ttnn.slice(ends, (0, CARRIED * row, 0), (1, CARRIED * (row + 1), WIDTH)), tails[row])
    given = parts[0] if rows == 1 else ttnn.concat(parts, dim=2)
    return ttnn.add(hidden, given)


def _capture(module: Any) -> Any:
    def capture(device: Any, trace: Any, inputs: Any, weights: Any, stores: Any, shape: Any) -> Any:
        hidden = module.body(inputs, weights, stores, shape)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        return hidden

    return capture


@cache
def parameters() -> dict[str, Tensor]:
    """Random weights of the attention layer, which is layer 1, and whole numbers for each token in the recurrent ones."""
    drawn = RandomParameters(dense_module().GEOMETRY, 0)
    layer = ("input_layernorm", "post_attention_layernorm", *(f"self_attn.{n}_proj" for n in "qkvo"))
    names = [f"{name}.weight" for name in (*layer, *(f"mlp.{n}_proj" for n in ("gate", "up", "down")))]
    attention = {f"model.layers.1.{name}": drawn[f"model.layers.0.{name}"] for name in names}
    ends = {name: drawn[name] for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")}
    return {**attention, **ends, **{f"model.layers.{layer}.table": table(layer) for layer in RECURRENT_LAYERS}}


def table(layer: int) -> Tensor:
    """Of each token [vocabulary, WIDTH]: its id, its id again in a form of the layer's own, and small numbers."""
    made = torch.randint(
        -3, 4, (dense_module().VOCABULARY, WIDTH), generator=torch.Generator().manual_seed(layer)
    ).float()
    made[:, 0] = torch.arange(dense_module().VOCABULARY)
    return made


def state_after(tokens: Any, count: int) -> list[Tensor]:
    """What states and tails must hold after the first `count` tokens of a prompt: of each layer, one after the other."""
    seen = torch.as_tensor(np.asarray(tokens[:count], dtype=np.int64))
    found = []
    for layer in RECURRENT_LAYERS:
        rows = table(layer)[seen]
        found.append(rows.sum(0).expand(1, 1, 32, WIDTH))
        tail = torch.cat([torch.zeros(CARRIED, WIDTH), rows])[-CARRIED:]
        found.append(tail.reshape(1, CARRIED, WIDTH))
    return found


def held_tensors(prefill: Prefill, slot: int, where: str = "end") -> list[Tensor]:
    """States and tails of a slot, of each recurrent layer one after the other."""
    held = prefill._states.positions[slot]
    entry = prefill._bindings.stores.slots[held.end_at if where == "end" else held.boundary_at]
    return [ttnn.to_torch(tensor).float() for both in zip(entry.states, entry.tails) for tensor in both]


class StateRig:
    """The stand-in on a device of its own, eager or with its traces captured."""

    def __init__(self, traced: bool = False, module: Any = None, precision: str = "float32") -> None:
        self.module = module or state_module()
        self.traced = traced
        self.device = open_device(self.module.BOARD, precision=precision, trace_region_size=TRACE_REGION)
        self.weights = load_weights(self.module, self.device, parameters())
        for name, values in (("validity", [[0.0], [1.0]]), ("spread", [[1.0]]), ("spread_back", [[1.0]])):
            shape = {"validity": (2, WIDTH), "spread": (1, 1, 32, CHUNK), "spread_back": (1, 1, CHUNK, 32)}[name]
            setattr(self.weights, name, self._constant(torch.tensor(values).expand(shape), name == "validity"))
        self.stores = allocate(self.module, self.device)
        self.begin()

    def _constant(self, values: Tensor, rows: bool) -> Any:
        layout = ttnn.ROW_MAJOR_LAYOUT if rows else ttnn.TILE_LAYOUT
        values = values * (1.0 if rows or values.shape[2] == 32 else 2.0**-12)  # what reaches the hidden rows is small
        return ttnn.from_torch(values.contiguous(), dtype=ttnn.bfloat16, layout=layout, device=self.device)

    def begin(self) -> None:
        """A new runtime over the same stores."""
        self.prefill = Prefill(self.module, self.device, self.weights, self.stores)
        if self.traced:
            self.prefill.warm_up()
            self.prefill.capture(decode_traces="none")

    def prompt(self, seed: int, length: int = CONTEXT) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, self.module.VOCABULARY, length)

    def run(self, *rows: Any, **options: Any) -> Any:
        """Prefill rows (slot, prompt, length[, start]) on the slots' own blocks."""
        filled = [(*row, 0)[:4] for row in rows]
        share = CONTEXT // BLOCK
        pages = np.array([np.arange(slot * share, (slot + 1) * share) for slot, _, _, _ in filled])
        return self.prefill.prefill_forward(
            np.stack([prompt for _, prompt, _, _ in filled]),
            pages,
            [length for _, _, length, _ in filled],
            [start for _, _, _, start in filled],
            [slot for slot, _, _, _ in filled],
            traced=self.traced,
            **options,
        )

    def held(self, slot: int, where: str = "end") -> list[Tensor]:
        """The slot's states as the device holds them, in the order of `state_after`."""
        return held_tensors(self.prefill, slot, where)

    def assert_slot(self, slot: int, prompt: Any, end: int, boundary: int) -> None:
        """Positions and tensors of a slot are those of a prompt, exactly."""
        assert self.prefill.positions(slot) == (end, boundary)
        for where, count in (("end", end), ("boundary", boundary)):
            for found, wanted in zip(self.held(slot, where), state_after(prompt, count), strict=True):
                assert torch.equal(found, wanted), f"slot {slot}: the state at its {where}, {count}, differs"

    def keys(self, slot: int, tokens: int) -> Tensor:
        """Keys and values of a slot's first tokens."""
        share = CONTEXT // BLOCK
        both = torch.stack([ttnn.to_torch(self.stores.keys[0]).float(), ttnn.to_torch(self.stores.values[0]).float()])
        own = both[:, slot * share : (slot + 1) * share]
        return own.transpose(1, 2).flatten(2, 3)[:, :, :tokens]

    def live(self) -> set[int]:
        return {buffer.address for buffer in self.device.live_tensors()}

"""A device with a tiny one-layer model, and what a test believes of it: which tokens lie in which blocks, and which
tensors live.

The belief is plain: a sequence is a known prompt, its blocks and how many of its tokens are in them. What a prompt's
keys, values and logits are, at every position, comes from the reference once for a process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from runtime.backend import open_device, ttnn
from runtime.prefill import Prefill
from runtime.reference.dense import Cache, forward
from runtime.reference.parameters import RandomParameters
from runtime.stores import allocate, release
from runtime.weights import load_weights
from tests.support.golden import EXACT, build_module, manifest

CONTEXT, BLOCK, SLOTS, PROMPTS = 256, 32, 3, 12
TOLERANCE = 1e-4
CANARY = 1e4  # what unwritten blocks hold
TRACE_REGION = 1 << 28


@dataclass(frozen=True)
class Prompt:
    """Tokens [CONTEXT], and of each position logits [CONTEXT, vocabulary] and keys and values [heads, CONTEXT, head_dim]."""

    tokens: Tensor
    logits: Tensor
    keys: Tensor
    values: Tensor


@cache
def tiny_module() -> ModuleType:
    """One layer; lengths of one and two blocks, waves up to four, chunks of two blocks, four of them in the context."""
    data = manifest("llama-untied", EXACT)
    small = {"vocabulary": 64, "hidden": 32, "intermediate": 32, "layers": 1, "query_heads": 1, "key_value_heads": 1}
    data["model"] |= small | {"head_dim": 32, "maximum_context": CONTEXT}
    data["target"]["n150"] |= {
        "context": CONTEXT,
        "block_size": BLOCK,
        "key_value_blocks": SLOTS * CONTEXT // BLOCK,
        "lengths": (32, 64),
        "waves": (1, 2, 4),
        "wave_tokens": 128,
        "prefill_chunk": 64,
    }
    return build_module(data)


@cache
def parameters() -> dict[str, Tensor]:
    drawn = RandomParameters(tiny_module().GEOMETRY, 0)
    layer = ("input_layernorm", "post_attention_layernorm", *(f"self_attn.{n}_proj" for n in "qkvo"))
    names = [f"model.layers.0.{name}.weight" for name in (*layer, *(f"mlp.{n}_proj" for n in ("gate", "up", "down")))]
    return {name: drawn[name] for name in ("model.embed_tokens.weight", *names, "model.norm.weight", "lm_head.weight")}


@cache
def prompts() -> tuple[Prompt, ...]:
    made = []
    for seed in range(PROMPTS):
        tokens = torch.randint(tiny_module().VOCABULARY, (CONTEXT,), generator=torch.Generator().manual_seed(seed))
        kept = Cache()
        logits = forward(tiny_module().GEOMETRY, parameters(), tokens.tolist(), cache=kept)
        made.append(Prompt(tokens, logits, kept.keys[0], kept.values[0]))
    return tuple(made)


@dataclass
class Sequence:
    """What is believed of a slot. `open` is a prompt whose slices are under way, `dirty` one whose last slice failed."""

    slot: int
    pages: tuple[int, ...]
    prompt: Prompt
    committed: int = 0
    open: bool = False
    dirty: bool = False


@dataclass(frozen=True)
class Row:
    """One row of a call: `start` tokens are cached, `length` is where it ends."""

    sequence: Sequence
    start: int
    length: int
    final: bool

    @property
    def written_blocks(self) -> tuple[int, ...]:
        """The only blocks that the row may change."""
        return self.sequence.pages[self.start // BLOCK : -(-self.length // BLOCK)]


@dataclass
class World:
    """Device, runtime and stores of one run, with the belief about them."""

    device: Any
    weights: SimpleNamespace
    stores: SimpleNamespace | None = None
    prefill: Prefill = field(init=False)
    sequences: list[Sequence] = field(init=False)
    base: set[int] = field(init=False)  # addresses of what lives between calls: with the traces while there are any
    borrowed: set[int] = field(init=False)  # weights and stores alone
    seen: Tensor = field(init=False)  # the blocks after the last step

    def begin(self, seed: int) -> None:
        """Fresh stores that hold the canary, a fresh runtime, and empty sequences on blocks in an order of their own."""
        module = tiny_module()
        if self.stores is not None:
            release(self.stores)
        self.stores = allocate(module, self.device)
        for store in (*self.stores.keys, *self.stores.values):
            host = torch.full(tuple(store.shape), CANARY)
            ttnn.copy_host_to_device_tensor(ttnn.from_torch(host, dtype=store.dtype, layout=store.layout), store)
        self.prefill = Prefill(module, self.device, self.weights, self.stores)
        share = CONTEXT // BLOCK
        order = torch.randperm(SLOTS * share, generator=torch.Generator().manual_seed(seed)).tolist()
        self.sequences = [
            Sequence(slot, tuple(order[slot * share : (slot + 1) * share]), prompts()[slot]) for slot in range(SLOTS)
        ]
        self.base = self.borrowed = self.live()
        self.seen = self.blocks()

    def live(self) -> set[int]:
        return {buffer.address for buffer in self.device.live_tensors()}

    def faults(self) -> tuple[int, int, int]:
        """What a device counts that must never happen."""
        counters = self.device.counters
        return counters.double_frees, counters.destroyed_tensors, counters.compiles_under_trace

    def blocks(self) -> Tensor:
        """Keys and values [2, blocks, heads, block, head_dim]."""
        return torch.stack([ttnn.to_torch(store).float() for store in (self.stores.keys[0], self.stores.values[0])])

    def check_blocks(self, may_change: set[int]) -> None:
        """Every block outside `may_change` has the bits that it had; then what is there now is what was seen."""
        now = self.blocks()
        changed = {int(block) for block in (now != self.seen).flatten(2).any(2).any(0).nonzero()}
        assert changed <= may_change, f"foreign blocks {sorted(changed - may_change)} changed"
        self.seen = now

    def check_sequence(self, sequence: Sequence) -> None:
        """The blocks of a sequence hold its committed tokens."""
        if not sequence.committed:
            return
        for stored, wanted in zip(self.seen, (sequence.prompt.keys, sequence.prompt.values)):
            found = stored[list(sequence.pages)].transpose(0, 1).flatten(1, 2)[:, : sequence.committed]
            assert_close(found, wanted[:, : sequence.committed])


def assert_close(found: Tensor, wanted: Tensor) -> None:
    error = float((found - wanted).abs().max() / wanted.abs().max())
    assert error <= TOLERANCE, f"relative error {error:.2e} over {TOLERANCE:g}"


@cache
def world() -> World:
    """One device and its weights for a process; `begin` gives every run its own stores and runtime."""
    module = tiny_module()
    device = open_device(module.BOARD, precision="float32", trace_region_size=TRACE_REGION)
    return World(device, load_weights(module, device, parameters()))


class Injected(RuntimeError):
    """The fault that a test puts into a device call."""


class Fault:
    """A hook of the device that raises at its `at`-th call, and at every later one if `lasting`."""

    def __init__(self, at: int, lasting: bool) -> None:
        self.at, self.lasting, self.calls = at, lasting, 0
        self.first: Injected | None = None
        self.name = ""

    def __call__(self, name: str) -> None:
        self.calls += 1
        if self.calls - 1 == self.at or (self.lasting and self.first is not None):
            error = Injected(f"call {self.calls - 1} of {name}")
            if self.first is None:
                self.first, self.name = error, name
            raise error

"""Emitted modules with recurrent layers on the emulator: their states beside logits, keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from runtime.backend import open_device, ttnn
from runtime.stores import tensors
from runtime.verification.comparison import relative_error, worst_blocks
from runtime.verification.routes import Row
from tests.support.families import build_peer
from tests.support.golden import Bench, module_of

ALONE, WAVE, ROWS, MATMULS = "alone", "wave", "rows", "matmuls"
# A tiny geometry -> how the recurrence of its largest wave runs.
HYBRIDS = {
    "qwen3_next": WAVE,
    "qwen3_5": WAVE,
    "qwen3_5_moe": WAVE,
    "qwen3_5-more-heads-in-a-wave-than-cores": ROWS,
    "qwen3_5-wide-values-tied": MATMULS,
}
PARTS = ("states", "tails")
TRACE_REGION = 1 << 28
SPARE = 11  # a slot that no wave uses


@cache
def answer(family: str, tokens: tuple[int, ...]) -> SimpleNamespace:
    """What transformers makes of a prompt: logits of its last token, and keys, values, states and tails layer by layer."""
    return build_peer(family).answer(list(tokens))


class HybridBench(Bench):
    """A bench whose slots are looked at too. `slots` of a call are by default 0 and on, and forget what they held before it
    unless `starts` says otherwise.
    """

    def held(self, slot: int, where: str = "end") -> dict[str, tuple[Tensor, ...]]:
        """A slot's states [value_heads, key_dim, value_dim] and tails [kernel - 1, width] of each recurrent layer."""
        snapshot = self.prefill.snapshot(slot)
        parts = snapshot.at_end if where == "end" else snapshot.at_boundary
        return {name: tuple([layer[0].float() for layer in parts[name]]) for name in PARTS}

    def forget(self) -> None:
        """Every slot is empty."""
        for slot in range(self.module.STATE_SLOTS):
            self.prefill.reset(slot)

    def errors(self, rows: Sequence[Row], logits: Any, slots: Sequence[int] | None = None) -> dict[str, float]:
        """Largest relative errors to transformers of logits, of a block of keys, of values, of a layer's state, of its tail."""
        worst: dict[str, float] = dict.fromkeys(("logits", "keys", "values", *PARTS), 0.0)

        def note(name: str, error: float) -> None:
            worst[name] = max(worst[name], error)

        for row, slot, found in zip(rows, range(len(rows)) if slots is None else slots, logits, strict=True):
            wanted = answer(self.family, row.tokens)
            if found is not None:
                note("logits", relative_error(found, wanted.logits))
            ours = self.cache(row)
            for name in ("keys", "values"):
                for mine, theirs in zip(ours[name], getattr(wanted, name), strict=True):
                    note(name, worst_blocks(mine, theirs, self.module.BLOCK_SIZE).max_relative_error)
            for name, error in self.state_errors(slot, row.tokens).items():
                note(name, error)
        return worst

    def state_errors(self, slot: int, tokens: Sequence[int], where: str = "end") -> dict[str, float]:
        """Relative errors of a slot's states and tails to those of transformers behind `tokens`, the largest of a layer."""
        wanted, held = answer(self.family, tuple(tokens)), self.held(slot, where)
        pairs = {name: zip(held[name], getattr(wanted, name), strict=True) for name in PARTS}
        return {name: max(relative_error(*pair) for pair in layers) for name, layers in pairs.items()}

    def bits(self, rows: Sequence[Row], slots: Sequence[int]) -> list[bytes]:
        """A digest of everything that is stored of each row: keys and values, and the state at its end and its boundary."""
        found = []
        for row, slot in zip(rows, slots, strict=True):
            parts = [part for layers in self.cache(row).values() for part in layers]
            for where in ("end", "boundary"):
                parts += [layer for layers in self.held(slot, where).values() for layer in layers]
            found.append(digest(parts))
        return found

    def whole(self, row: Row, end: int | None = None, slot: int = SPARE) -> Tensor:
        """Logits of the first `end` tokens of a row, computed in one call in a slot that held nothing."""
        self.prefill.reset(slot)
        return self.call([row], ends=None if end is None else [end], slots=[slot])[0]

    def device_bits(self) -> bytes:
        """A digest of every store, the rows of passes and all held states among them."""
        return digest([ttnn.to_torch(tensor).float() for tensor in tensors(self.stores)])


def digest(parts: Sequence[Tensor]) -> bytes:
    made = sha256()
    for part in parts:
        assert torch.isfinite(part).all(), "a stored value is not finite"
        made.update(part.float().contiguous().numpy().tobytes())
    return made.digest()


@cache
def hybrid_bench(family: str, precision: str = "float32") -> HybridBench:
    """One bench for all tests of a process; they begin with `forget`."""
    return HybridBench(family, precision)


def of_rows(module: ModuleType, *rows: int, lengths: Sequence[int] = (64, 128)) -> ModuleType:
    """The module with passes of so many rows and tokens alone, which take less time to capture."""
    kept = {name: value for name, value in vars(module).items() if name not in ("TRACES", "PROGRAMS", "RECURRENCE")}
    shapes = tuple([shape for shape in module.TRACES if shape.rows in rows and shape.tokens in lengths])
    programs = tuple([(shape.digest, ending) for shape in shapes for ending in module.SAMPLING])
    forms = {count: form for count, form in module.RECURRENCE.items() if count in rows}
    return SimpleNamespace(**kept, TRACES=shapes, PROGRAMS=programs, RECURRENCE=forms)


class TracedBench(HybridBench):
    """A bench that replays traces, of passes of one row and of eight."""

    def __init__(self, family: str, precision: str = "float32") -> None:
        super().__init__(family, precision, module=of_rows(module_of(family), 1, 8))
        self.device = open_device(self.module.BOARD, precision=precision, trace_region_size=TRACE_REGION)
        self.load(self.peer.tensors)
        self.prefill.warm_up()
        self.prefill.capture(decode_traces="none")

    def call(self, *arguments: Any, traced: bool = True, **options: Any) -> Any:
        return super().call(*arguments, traced=traced, **options)

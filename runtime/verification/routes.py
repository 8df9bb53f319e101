"""The ways a prompt can reach a module: by itself, in a wave, after a cached prefix, in slices that the caller cuts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runtime.pages import block_count
from runtime.request import PreparedPrefill
from runtime.tables import rotary_switch, state_slots

MOST_SLICES = 5


@dataclass(frozen=True)
class Row:
    """One prompt and the blocks that it may use; `prompt` is its index in the verification."""

    prompt: int
    tokens: tuple[int, ...]
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """Where a prompt's passes ran and what came out: logits `[vocabulary]` of its last token; its blocks hold its
    cache. `states` are the state and the convolution's tail of each recurrent layer at its end.
    """

    row: Row
    logits: Tensor
    passes: tuple[str, ...]
    seconds: float
    states: tuple[tuple[Tensor, Tensor], ...] = ()


def assign_pages(prompts: Sequence[Sequence[int]], block_size: int, blocks: int, seed: int) -> list[list[Row]]:
    """Groups of prompts, in order, that fit the store together, each prompt with blocks of its own out of a random
    permutation.

    Twice the blocks that all prompts need are permuted and no more, so that an emulated store stays empty beyond them.
    """
    used = min(blocks, 2 * sum(block_count(len(tokens), block_size) for tokens in prompts))
    groups: list[list[Row]] = []
    free: list[int] = []
    generator = np.random.default_rng(seed)
    for index, tokens in enumerate(prompts):
        needed = block_count(len(tokens), block_size)
        if needed > len(free) or not groups:
            free = generator.permutation(used).tolist()
            groups.append([])
        pages, free = free[:needed], free[needed:]
        groups[-1].append(Row(index, tuple(tokens), tuple(pages)))
    return groups


def alone(module: ModuleType, prefill: Any, rows: Sequence[Row]) -> list[Outcome]:
    """One call for each prompt."""
    return [outcome for row in rows for outcome in together(module, prefill, [row])]


def together(module: ModuleType, prefill: Any, rows: Sequence[Row]) -> list[Outcome]:
    """One call with all prompts, or with as many as have state slots: those of one length share waves."""
    most = state_slots(module) or len(rows)
    outcomes = []
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        outcomes += _call(prefill, part, [len(row.tokens) for row in part], [0] * len(part), final=True)
    return outcomes


def after_cached_prefix(module: ModuleType, prefill: Any, rows: Sequence[Row]) -> list[Outcome]:
    """Another sequence has left the first half of the prompt in shared blocks; only the rest is computed."""
    outcomes = []
    for row in rows:
        prefix = _cut(module, row, 2, 1)
        if prefix and _same_side(module, prefix, len(row.tokens)):
            owner = Row(row.prompt, row.tokens[:prefix], row.pages[: block_count(prefix, module.BLOCK_SIZE)])
            _call(prefill, [owner], [prefix], [0], final=True)
            outcomes += _call(prefill, [row], [len(row.tokens)], [prefix], final=True)
    return outcomes


def in_slices(module: ModuleType, prefill: Any, rows: Sequence[Row]) -> list[Outcome]:
    """The caller cuts the prompt into up to five slices; only the last one has a result."""
    outcomes = []
    for row in rows:
        ends = {_cut(module, row, MOST_SLICES, index) for index in range(1, MOST_SLICES)} - {0} | {len(row.tokens)}
        cuts = [0, *sorted(end for end in ends if _same_side(module, end, len(row.tokens)))]
        if len(cuts) > 2:
            passes: tuple[str, ...] = ()
            seconds = 0.0
            for start, end in zip(cuts, cuts[1:]):
                (outcome,) = _call(prefill, [row], [end], [start], final=end == len(row.tokens))
                passes, seconds = passes + outcome.passes, seconds + outcome.seconds
            outcomes.append(replace(outcome, passes=passes, seconds=seconds))
    return outcomes


ROUTES: dict[str, Callable[[ModuleType, Any, Sequence[Row]], list[Outcome]]] = {
    "alone": alone,
    "together": together,
    "cached prefix": after_cached_prefix,
    "slices": in_slices,
}


def _cut(module: ModuleType, row: Row, pieces: int, index: int) -> int:
    """The aligned position at or below `index`/`pieces` of the prompt."""
    return len(row.tokens) * index // pieces // module.ALIGNMENT * module.ALIGNMENT


def _same_side(module: ModuleType, part: int, whole: int) -> bool:
    """Whether the keys of a part of a prompt are turned by the same rotary tables as those of the whole."""
    switch = rotary_switch(module)
    return switch is None or (part > switch) == (whole > switch)


def _call(
    prefill: Any, rows: Sequence[Row], lengths: Sequence[int], starts: Sequence[int], final: bool
) -> list[Outcome]:
    tokens = np.zeros((len(rows), max(lengths)), dtype=np.int32)
    pages = np.full((len(rows), max(len(row.pages) for row in rows)), -1, dtype=np.int32)
    for index, (row, length) in enumerate(zip(rows, lengths)):
        tokens[index, :length] = row.tokens[:length]
        pages[index, : len(row.pages)] = row.pages
    began = time.perf_counter()
    prepared = prefill.prepare(tokens, pages, list(lengths), list(starts), list(range(len(rows))), None, final)
    logits = prefill.collect(prefill.run(prepared, traced=False))
    seconds = (time.perf_counter() - began) / len(rows)
    nothing = torch.empty(0)
    return [
        Outcome(row, logits[index] if final else nothing, _passes(prepared, index), seconds, _states(prefill, index))
        for index, row in enumerate(rows)
    ]


def _states(prefill: Any, slot: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """What a slot holds at the end of its prompt; nothing of a module without recurrent layers."""
    if prefill.positions(slot) is None:
        return ()
    held = prefill.snapshot(slot).at_end
    return tuple(zip(held["states"], held["tails"]))


def _passes(prepared: Sequence[PreparedPrefill], row: int) -> tuple[str, ...]:
    """The passes that a row of the call took part in, as "batched 4 x 128" or "chunked 512 at 1024"."""
    named = []
    for plan in prepared:
        if row in plan.source_rows:
            for chunk in plan.chunks:
                shape = chunk.shape
                rows = f"{shape.rows} x " if shape.rows > 1 else ""
                start = f" at {chunk.start}" if shape.variant == "chunked" else ""
                named.append(f"{shape.variant} {rows}{shape.tokens}{start}")
    return tuple(named)

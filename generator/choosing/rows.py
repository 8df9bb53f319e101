"""Prompts of a workload as the passes that they take: whole prefill chunks and, last, what is left of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from generator.choosing.workload import Workload
    from generator.geometry import Resolved


@dataclass(frozen=True)
class Rows:
    """Arrays with an entry for each kind of prompt, all int64. `rest` are the tokens of its last pass, `start` that pass's first
    position, `begin` its first pass's, `chunked` whether it runs the variant that reads the cache, `weight` how many there are.
    """

    rest: np.ndarray
    start: np.ndarray
    begin: np.ndarray
    chunked: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Asked:
    """What a workload asks of a module: `refused` prompts are longer than its context, `cached` tokens lie in the cache already
    and `real` ones have to be computed, at least one of a prompt.
    """

    rows: Rows
    requests: int
    refused: int
    real: int
    cached: int


def cut(workload: Workload, resolved: Resolved, chunk: int) -> Asked:
    """Each prompt as the runtime's planner runs it by itself, equal ones together."""
    fits = workload.lengths <= resolved.context
    lengths, cached, weights = workload.lengths[fits], workload.cached[fits], workload.weights[fits]
    return Asked(
        _merged(cut_each(lengths, cached, weights, resolved, chunk)),
        requests=int(workload.weights.sum()),
        refused=int(workload.weights[~fits].sum()),
        real=int((np.maximum(lengths - cached, 1) * weights).sum()),
        cached=int((np.minimum(cached, lengths - 1) * weights).sum()),
    )


def cut_each(lengths: np.ndarray, cached: np.ndarray, weights: np.ndarray, resolved: Resolved, chunk: int) -> Rows:
    """In their order: from the start of a prompt in one pass where it fits and nothing of it is cached, else in chunks from the
    last aligned position within what is cached.
    """
    if resolved.attention_soft_cap:  # whose one pass computes a cached prefix again
        begin, chunked = np.zeros_like(lengths), np.zeros(len(lengths), dtype=bool)
    else:
        begin = np.minimum(cached, lengths - 1) // resolved.alignment * resolved.alignment
        resumed = begin > 0 if resolved.gated_delta_net is not None else cached > 0
        chunked = resumed | (lengths - begin > chunk)
    start = begin + (lengths - begin - 1) // chunk * chunk
    return Rows(lengths - start, start, begin, chunked, weights)


def _merged(rows: Rows) -> Rows:
    """Equal prompts once, with the sum of their weights."""
    columns = np.stack([rows.rest, rows.start, rows.begin, rows.chunked.astype(np.int64)])
    order = np.lexsort(columns)
    ordered = columns[:, order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    at = np.flatnonzero(first)
    summed = np.add.reduceat(rows.weight[order], at) if len(at) else rows.weight[:0]
    rest, start, begin, chunked = ordered[:, at]
    return Rows(rest, start, begin, chunked.astype(bool), summed)

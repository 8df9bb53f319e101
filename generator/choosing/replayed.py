"""A log replayed under two policies: the module's own tables, and the padding to powers of two of hand-written runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from generator.choosing import power_of_two
from generator.choosing.compiling import Compiling, Pass
from generator.choosing.limits import trace_bytes
from generator.choosing.prices import Prices
from generator.choosing.rows import cut_each
from generator.choosing.times import Times
from generator.choosing.waves import calls_within
from generator.choosing.workload import Workload
from generator.geometry import Resolved

Size = tuple[str, int, int]  # variant, rows, tokens
OWN, POWERS = "module", "power-of-two"


@dataclass
class Outcome:
    """Sums of one policy. Tokens: `real` of served prompts beside what is cached, `computed` with padding. Seconds are modelled,
    but those of the host, which are measured and None where nothing of the policy runs here.
    """

    policy: str
    refused: int = 0
    unanswered: int = 0  # fully cached prompts that get no pass, and zeros for an answer
    passes: int = 0
    row_by_row: int = 0  # of the passes, waves that no program holds, priced as their rows one after another
    real: int = 0
    computed: int = 0
    seconds: float = 0.0
    ideal_seconds: float = 0.0
    most_delay: float = (
        0.0  # seconds by which packing made the pass of some prompt longer than the one that it has by itself
    )
    host_seconds: float | None = None
    planned: int = 0  # prompts that host_seconds are of
    sizes: set[Size] = field(default_factory=set)

    def add(self, size: Size, seconds: float, times: int) -> None:
        self.sizes.add(size)
        self.passes += times
        self.computed += times * size[1] * size[2]
        self.seconds += times * seconds


@dataclass(frozen=True)
class Calls:
    """What is planned together: rows of the log, and how often such a call comes."""

    rows: np.ndarray
    weight: int


def calls(log: Workload, resolved: Resolved, window: float, rows: int) -> Iterator[Calls]:
    """The calls of a log: each distinct prompt by itself, or what arrives within a window. Prompts over the context make none."""
    fits = np.flatnonzero(log.lengths <= resolved.context)
    if not window:
        keys = np.stack([log.lengths[fits], log.cached[fits]])
        _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        weights = np.bincount(group.reshape(-1), log.weights[fits]).astype(np.int64)
        yield from (Calls(fits[[at]], int(weight)) for at, weight in zip(first, weights))
        return
    numbers = calls_within(log, resolved.context, window, rows)[fits]
    edges = np.flatnonzero(np.diff(numbers)) + 1
    yield from (Calls(part, 1) for part in np.split(fits, edges) if len(part))


def replay(
    log: Workload,
    resolved: Resolved,
    times: Times,
    planner: Any,
    window: float,
    rows: int,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Outcome, Outcome]:
    """Both policies over the same calls. `planner` is a runtime's Replay over the module, `times` are of one row."""
    prices = Prices(resolved)
    own, powers = Outcome(OWN, host_seconds=0.0), Outcome(POWERS)
    # No chunk of a model with a soft cap is legal: as in the module, what is cached is computed again.
    prefixes = np.zeros_like(log.cached) if resolved.attention_soft_cap else log.cached
    limits = power_of_two.Limits(resolved.context, resolved.prefill_chunk, resolved.block_size)
    ideal = _ideal(log, resolved, times)
    own.refused = powers.refused = int(log.weights[log.lengths > resolved.context].sum())
    for number, call in enumerate(calls(log, resolved, window, rows)):
        if number % 1000 == 0:
            progress(f"{number} calls")
        lengths = log.lengths[call.rows].tolist()
        _run_own(own, planner.plan(lengths, log.cached[call.rows].tolist()), call, prices)
        _run_powers(powers, lengths, prefixes[call.rows].tolist(), limits, call, prices, log, ideal)
        _serve(own, call.rows, call.weight, log, ideal)
    return own, powers


def _ideal(log: Workload, resolved: Resolved, times: Times) -> np.ndarray:
    """Seconds of each prompt by itself, in passes of exactly its tokens; 0 of those over the context."""
    fits = log.lengths <= resolved.context
    rows = cut_each(log.lengths[fits], log.cached[fits], log.weights[fits], resolved, resolved.prefill_chunk)
    found = np.zeros(len(log.lengths))
    found[fits] = times.without_padding(rows, resolved.prefill_chunk)
    return found


def _serve(outcome: Outcome, rows: Iterable[int], weight: int, log: Workload, ideal: np.ndarray) -> None:
    for row in rows:
        outcome.real += weight * max(int(log.lengths[row] - log.cached[row]), 1)
        outcome.ideal_seconds += weight * float(ideal[row])


def _run_own(own: Outcome, planned: Any, call: Calls, prices: Prices) -> None:
    """The module's own planner may refuse no prompt within the context: one that it does is a fault and raised as one."""
    if planned.refused:
        raise RuntimeError(f"the module refused rows {planned.refused} of a call within its context")
    own.host_seconds += planned.seconds
    own.planned += len(call.rows)
    for plan in planned.plans:
        for chunk in plan.chunks:
            size = (chunk.shape.variant, chunk.shape.rows, chunk.shape.tokens)
            if chunk.shape.variant == "ragged":
                lengths = [request.length for request in plan.requests]
                seconds = prices.ragged(*size[1:], lengths)
                own.most_delay = max(own.most_delay, seconds - prices.alone(min(lengths)))
            else:
                seconds = prices.seconds(*size, chunk.start, chunk is plan.chunks[-1])
            own.add(size, seconds, call.weight)


def _run_powers(
    powers: Outcome,
    lengths: list[int],
    cached: list[int],
    limits: power_of_two.Limits,
    call: Calls,
    prices: Prices,
    log: Workload,
    ideal: np.ndarray,
) -> None:
    """A row that the policy refuses is left out, and the rest of its call is planned again. One that it gives no pass is counted,
    and neither its token nor its ideal time is.
    """
    kept = list(range(len(lengths)))
    while kept:
        try:
            plan = power_of_two.plan([lengths[row] for row in kept], [cached[row] for row in kept], limits)
            break
        except power_of_two.Refused as error:
            powers.refused += call.weight
            del kept[error.row]
    else:
        return
    last = {row: one for one in plan.passes for row in one.source_rows}  # of each row, the last that it is in
    for one in plan.passes:
        size = (one.variant, one.rows, one.tokens)
        ends = any(last[row] is one for row in one.source_rows)
        powers.add(size, prices.seconds(*size, one.start, ends), call.weight)
        powers.row_by_row += call.weight * prices.is_row_by_row(*size)
    powers.unanswered += call.weight * len(plan.empty)
    _serve(powers, call.rows[[row for at, row in enumerate(kept) if at not in plan.empty]], call.weight, log, ideal)


def numbers(
    outcome: Outcome,
    requests: int,
    passes: Collection[Pass],
    operations: int,
    compiling: Compiling,
    resolved: Resolved,
) -> dict[str, Any]:
    """One policy's figures. `passes` are those that it has a program for: the module's, or the sizes that were met."""
    programs = len(passes)
    host = None if outcome.host_seconds is None else 1e6 * outcome.host_seconds / max(outcome.planned, 1)
    return {
        "policy": outcome.policy,
        "requests": requests,
        "refused": outcome.refused,
        "unanswered": outcome.unanswered,
        "passes": outcome.passes,
        "passes_priced_row_by_row": outcome.row_by_row,
        "real_tokens": outcome.real,
        "computed_tokens": outcome.computed,
        "computed_over_real": outcome.computed / outcome.real if outcome.real else None,
        "modelled_seconds": outcome.seconds,
        "most_delay_seconds": outcome.most_delay,
        "modelled_time_over_ideal": outcome.seconds / outcome.ideal_seconds if outcome.ideal_seconds else None,
        "programs": programs,
        "traces": programs,
        "trace_bytes": programs * trace_bytes(operations, resolved.board),
        "compile_seconds": compiling.seconds(passes),
        "host_microseconds_a_request": host,
    }

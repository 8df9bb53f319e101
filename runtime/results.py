"""Device results -> host values in the caller's row order, each read before the next one is asked for."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from runtime.backend import ttnn
from runtime.errors import CollectError, OutputMismatch, RequestError, UnreadResult
from runtime.request import LOGITS, InvocationResult
from runtime.resources import Ownership, attach, forget_frames
from runtime.stats import READ, Stats

Rows = torch.Tensor | tuple[torch.Tensor | None, ...]


class SampledTokens(NamedTuple):
    """What a call with log-probabilities returns: for each row its token (int64) and the natural logarithm of its
    probability (float32, NaN for a row that did not ask)."""

    tokens: Rows
    log_probabilities: Rows


Collected = Rows | SampledTokens


class PendingReads:
    """Results that left the runtime and may still hold device memory. They are followed, not kept alive."""

    def __init__(self) -> None:
        self._results: dict[int, weakref.ref[InvocationResult]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def add(self, result: InvocationResult) -> None:
        key, results = id(result), self._results
        results[key] = weakref.ref(result, lambda _: results.pop(key, None))

    def tensors(self) -> list[Any]:
        """Everything unread that is still allocated."""
        return [tensor for result in self._unread() for tensor in result.owned if tensor.is_allocated()]

    def require_read(self, next_step: str) -> None:
        """Refuse a step that could write over results. Called before each replay and before capture."""
        unread = self._unread()
        if unread:
            rows = ", ".join(str(row) for result in unread for row in result.source_rows)
            raise UnreadResult(
                f"the results of rows {rows} are still on the device, where {next_step} could write over them; "
                f"collect each result before the next is asked for"
            )

    def _unread(self) -> list[InvocationResult]:
        alive = [result for result in [reference() for reference in self._results.values()] if result is not None]
        return [result for result in alive if any(tensor.is_allocated() for tensor in result.owned)]


def check_output(out: Any, rows: int, vocabulary: int, sampling: str) -> None:
    """Refuse a caller's buffer that is not float32 [rows, vocabulary] for logits or int64 [rows] for token ids, or that
    cannot be written element by element.
    """
    shape, dtype = ((rows, vocabulary), torch.float32) if sampling == LOGITS else ((rows,), torch.int64)
    if not isinstance(out, torch.Tensor):
        raise OutputMismatch(f"the output buffer is {type(out).__name__}, not a {dtype} tensor of {shape}")
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise OutputMismatch(
            f"the output buffer is {out.dtype} {tuple(out.shape)}; {sampling} of this call are {dtype} {shape}"
        )
    if out.is_meta or out.requires_grad or 0 in [step for step, size in zip(out.stride(), shape) if size > 1]:
        raise OutputMismatch(
            "the output buffer has no memory of its own for each element, or requires a gradient; "
            "give one made by torch.empty"
        )


def read(result: InvocationResult) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Wait for a result and copy its real rows: (float32 [rows, vocabulary] or int64 [rows], log-probabilities float32
    [rows]), each None where there is none.
    """
    if result.output is None:
        return None, None
    if not result.output.is_allocated():
        raise CollectError(
            f"the results of rows {', '.join(map(str, result.source_rows))} were released before; collect each once"
        )
    host = ttnn.to_torch(result.output)
    rows = len(result.source_rows)
    if result.sampling == LOGITS:
        return host.reshape(-1, host.shape[-1])[:rows].to(torch.float32), None
    tokens = host.reshape(-1)[:rows].to(torch.int64)
    if result.log_probabilities is None:
        return tokens, None
    scored = ttnn.to_torch(result.log_probabilities).reshape(-1)[:rows].to(torch.float32)
    asked = torch.tensor([choice.log_probabilities for choice in result.choices])
    return tokens, torch.where(asked, scored, torch.nan)


def collect(
    results: Iterable[InvocationResult], ownership: Ownership, stats: Stats, out: torch.Tensor | None = None
) -> Collected:
    """Read each result, release it, and put the rows into the order of the call.

    Returns one tensor if every row has a value (logits float32 [rows, vocabulary] or token ids int64 [rows]), otherwise
    a tuple with one entry for each row, None where a prompt is not finished; both for tokens and for log-probabilities
    where any row asked for them. `out`, a checked buffer, is filled where rows have a value and returned in place of a
    new tensor. A failure stops the run behind `results` and releases what it still held.
    """
    rows: dict[int, torch.Tensor | None] = {}
    scored: dict[int, torch.Tensor | None] = {}
    sampling: str | None = None
    pending = iter(results)
    try:
        for result in pending:
            with stats.phase(READ):
                values, scores = _read_and_release(result, ownership)
            if sampling not in (None, result.sampling):
                raise CollectError(
                    f"results of {sampling} and of {result.sampling} are mixed; collect one call at a time"
                )
            sampling = result.sampling
            for index, row in enumerate(result.source_rows):
                if row in rows:
                    raise CollectError(f"row {row} is in two results; collect one call at a time")
                rows[row] = None if values is None else values[index]
                if scores is not None:
                    scored[row] = scores[index]
    except BaseException as error:
        attach(error, _abandon(pending, ownership))
        raise
    tokens = _in_order(rows, out)
    if not scored:
        return tokens
    missing = torch.tensor(torch.nan)
    return SampledTokens(
        tokens,
        _in_order({row: None if value is None else scored.get(row, missing) for row, value in rows.items()}, None),
    )


def _read_and_release(
    result: InvocationResult, ownership: Ownership
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    try:
        values = read(result)
    except BaseException as error:
        forget_frames(error)
        attach(error, ownership.release(result.owned))
        raise
    failures = ownership.release(result.owned)
    if failures:
        attach(failures[0], failures[1:])
        raise failures[0]
    return values


def _abandon(pending: Any, ownership: Ownership) -> list[BaseException]:
    """Stop a run that is under way, or release the results of one that is over."""
    if hasattr(pending, "close"):
        pending.close()
        return []
    return [failure for result in pending for failure in ownership.release(result.owned)]


def _in_order(rows: dict[int, torch.Tensor | None], out: torch.Tensor | None) -> Rows:
    values = [rows[row] for row in sorted(rows)]
    if not values:
        raise RequestError("nothing to collect: the run has no results, or they were collected before")
    if out is not None:
        for row, value in rows.items():
            if value is not None:
                out[row] = value
    if any(value is None for value in values):
        return tuple(values)
    return out if out is not None else torch.stack(values)

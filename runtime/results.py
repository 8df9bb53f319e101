"""Device results -> host values in the caller's row order, each read before the next one is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from runtime.backend import ttnn
from runtime.errors import CollectError, OutputMismatch, RequestError
from runtime.postprocess import LOGITS
from runtime.request import InvocationResult
from runtime.resources import Ownership, attach, forget_frames

Collected = torch.Tensor | tuple[torch.Tensor | None, ...]


def check_output(out: Any, rows: int, vocabulary: int, sampling: str) -> None:
    """Refuse a caller's buffer that is not float32 [rows, vocabulary] for logits or int64 [rows] for token ids."""
    shape, dtype = ((rows, vocabulary), torch.float32) if sampling == LOGITS else ((rows,), torch.int64)
    if not isinstance(out, torch.Tensor):
        raise OutputMismatch(f"the output buffer is {type(out).__name__}, not a {dtype} tensor of {shape}")
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise OutputMismatch(
            f"the output buffer is {out.dtype} {tuple(out.shape)}; {sampling} of this call are {dtype} {shape}"
        )


def read(result: InvocationResult) -> torch.Tensor | None:
    """Wait for a result and copy its real rows: float32 [rows, vocabulary], int64 [rows], or None for an unfinished
    prompt.
    """
    if result.output is None:
        return None
    host = ttnn.to_torch(result.output)
    rows = len(result.source_rows)
    if result.sampling == LOGITS:
        return host.reshape(-1, host.shape[-1])[:rows].to(torch.float32)
    return host.reshape(-1)[:rows].to(torch.int64)


def collect(results: Iterable[InvocationResult], ownership: Ownership, out: torch.Tensor | None = None) -> Collected:
    """Read each result, release it, and put the rows into the order of the call.

    Returns one tensor if every row has a value (logits float32 [rows, vocabulary] or token ids int64 [rows]), otherwise
    a tuple with one entry for each row, None where a prompt is not finished. `out`, a checked buffer, is filled where
    rows have a value and returned in place of a new tensor. A failure stops the run behind `results` and releases what
    it still held.
    """
    rows: dict[int, torch.Tensor | None] = {}
    sampling: str | None = None
    pending = iter(results)
    try:
        for result in pending:
            value = _read_and_release(result, ownership)
            if sampling not in (None, result.sampling):
                raise CollectError(
                    f"results of {sampling} and of {result.sampling} are mixed; collect one call at a time"
                )
            sampling = result.sampling
            for index, row in enumerate(result.source_rows):
                if row in rows:
                    raise CollectError(f"row {row} is in two results; collect one call at a time")
                rows[row] = None if value is None else value[index]
    except BaseException as error:
        attach(error, _abandon(pending, ownership))
        raise
    return _in_order(rows, out)


def _read_and_release(result: InvocationResult, ownership: Ownership) -> torch.Tensor | None:
    try:
        value = read(result)
    except BaseException as error:
        forget_frames(error)
        attach(error, ownership.release(result.owned))
        raise
    failures = ownership.release(result.owned)
    if failures:
        attach(failures[0], failures[1:])
        raise failures[0]
    return value


def _abandon(pending: Any, ownership: Ownership) -> list[BaseException]:
    """Stop a run that is under way, or release the results of one that is over."""
    if hasattr(pending, "close"):
        pending.close()
        return []
    return [failure for result in pending for failure in ownership.release(result.owned)]


def _in_order(rows: dict[int, torch.Tensor | None], out: torch.Tensor | None) -> Collected:
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

"""The policy `power-of-two`: the plans that a hand-written runtime makes of rows, as a table to compare plans with.

Nothing here is ever executed and no runtime imports it: it is what `codegen bench` and the figures compare with. It is a pure
function of numbers: lengths, cached lengths and limits in, waves and prefill chunks out. Contract rows S000-09 to S000-24
state its rules, and the column "today" of B-01 to B-06 what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WAVES = (1, 2, 4, 8, 16, 32)
SHORTEST, SHORT = 128, 1024  # the two lengths below which no power of two is tried
CHUNK_UNIT = 2048  # a prefill chunk of a prompt that needs several is a multiple of it
WAVE_TOKENS = 131072  # a wave of so many padded tokens runs as single rows
SPARE_BLOCKS = 8  # the table that attention reads is so much wider than the context: 256 blocks and 264
UNSET = -1


@dataclass(frozen=True)
class Limits:
    """What the policy is told about a model: tokens, rows and blocks. `lane_rows` is the capacity of the lane."""

    context: int
    chunk: int
    block: int = 32
    model_rows: int = 32
    lane_rows: int = 32
    batched_output: bool = True  # whether tokens can be sampled from a batched pass

    @property
    def blocks(self) -> int:
        return self.context // self.block

    @property
    def table_width(self) -> int:
        """Blocks of the widest page-table row, past which no padded row may reach."""
        return self.blocks + SPARE_BLOCKS


@dataclass(frozen=True)
class Pass:
    """One execution: `source_rows` padded to `rows`, `tokens` of each from absolute position `start`."""

    variant: str  # "single", "batched" or "chunked"
    source_rows: tuple[int, ...]
    rows: int
    tokens: int
    start: int

    @property
    def computed(self) -> int:
        return self.rows * self.tokens

    def fill_blocks(self, row: int, lengths: Sequence[int], block: int) -> tuple[int, ...]:
        """Logical blocks that the pass writes for one of its padded rows, `UNSET` past the prompt and in padding rows."""
        width = self.tokens // block
        if row >= len(self.source_rows):
            return (UNSET,) * width
        first = self.start // block
        used = range(first, min(first + width, -(-lengths[self.source_rows[row]] // block)))
        return (*used, *[UNSET] * (width - len(used)))

    def last_token(self, row: int, lengths: Sequence[int]) -> int | None:
        """Index of a row's last token within its share of the pass, None where it lies elsewhere."""
        relative = lengths[self.source_rows[row]] - 1 - self.start
        return relative if 0 <= relative < self.tokens else None


@dataclass(frozen=True)
class Plan:
    """The passes of a call in order. `empty` rows are fully cached: they get no pass and a result of zeros."""

    passes: tuple[Pass, ...]
    empty: tuple[int, ...]


class Refused(ValueError):
    """One row that the policy cannot plan, which takes its whole call with it."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(f"row {row}: {message}")
        self.row = row


class TableTooNarrow(Refused):
    """The scheduler's page table has fewer blocks than the prompt."""


class OverCapacity(Refused):
    """The prompt has more blocks than the paged cache."""


class PaddedRowTooWide(Refused):
    """The cached length and the whole padded length together reach past the widest page-table row."""


class NoChunk(Refused):
    """No chunk size that the policy may use divides the padded length."""


def padded_length(tokens: int) -> int:
    """128, 1024 or the next power of two (S000-09)."""
    if tokens <= SHORTEST:
        return SHORTEST
    return SHORT if tokens <= SHORT else 1 << (tokens - 1).bit_length()


def padded_rows(rows: int) -> int | None:
    """The smallest wave that holds `rows`, None where there is none (S000-10)."""
    return next((wave for wave in WAVES if rows <= wave), None)


def chunk_size(padded: int, limit: int) -> int | None:
    """The largest multiple of 2048 up to `limit` that divides the padded length, None where there is none (S000-18)."""
    sizes = range(limit // CHUNK_UNIT * CHUNK_UNIT, 0, -CHUNK_UNIT)
    return next((size for size in sizes if padded % size == 0), None)


def plan(
    lengths: Sequence[int],
    cached: Sequence[int],
    limits: Limits,
    *,
    batching: bool = True,
    sampling: bool = False,
    table_width: int | None = None,
) -> Plan:
    """The passes of one call, its buckets in the order of their first rows.

    lengths, cached: tokens of each prompt and of its cached prefix. batching: False where waves are switched off for this
    call. table_width: blocks of the scheduler's page-table rows, by default as many as the context has. Raises Refused for
    the first row that cannot be planned.
    """
    width = limits.blocks if table_width is None else table_width
    buckets: dict[int, list[int]] = {}
    empty = []
    for row, (length, prefix) in enumerate(zip(lengths, cached, strict=True)):
        if length == prefix:
            empty.append(row)
            continue
        padded = padded_length(length - prefix)
        _check_capacity(row, length, prefix + padded, width, limits)
        buckets.setdefault(padded, []).append(row)
    passes: list[Pass] = []
    for padded, rows in buckets.items():
        wave = padded_rows(len(rows))
        if len(rows) > 1 and batching and _one_wave(rows, wave, padded, cached, limits, sampling):
            passes.append(Pass("batched", tuple(rows), wave, padded, 0))
        else:
            for row in rows:
                passes += _alone(row, lengths[row], cached[row], padded, limits)
    return Plan(tuple(passes), tuple(empty))


def _check_capacity(row: int, length: int, padded_end: int, width: int, limits: Limits) -> None:
    blocks = -(-length // limits.block)
    if blocks > limits.blocks:
        raise OverCapacity(row, f"{length} tokens need {blocks} blocks and the cache has {limits.blocks}")
    if blocks > width:
        raise TableTooNarrow(row, f"{length} tokens need {blocks} blocks and the page table has {width}")
    if padded_end > limits.table_width * limits.block:
        raise PaddedRowTooWide(
            row, f"padded to position {padded_end}, past the {limits.table_width} blocks of {limits.block} tokens"
        )


def _one_wave(
    rows: list[int], wave: int | None, padded: int, cached: Sequence[int], limits: Limits, sampling: bool
) -> bool:
    """Whether a bucket runs as one wave; it is never split (S000-10, S000-11)."""
    return (
        wave is not None
        and wave <= min(limits.model_rows, limits.lane_rows)
        and not any(cached[row] for row in rows)
        and padded <= limits.chunk
        and wave * padded < WAVE_TOKENS
        and (limits.batched_output or not sampling)
    )


def _alone(row: int, length: int, cached: int, padded: int, limits: Limits) -> list[Pass]:
    """One pass for a fresh row within the chunk limit, otherwise chunks up to the one that holds the last token."""
    if padded <= limits.chunk:
        return [Pass("chunked" if cached else "single", (row,), 1, padded, cached)]
    size = chunk_size(padded, limits.chunk)
    if size is None:
        raise NoChunk(row, f"no multiple of {CHUNK_UNIT} up to {limits.chunk} divides the padded length {padded}")
    return [Pass("chunked", (row,), 1, size, start) for start in range(cached, length, size)]

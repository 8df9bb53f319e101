"""The closed set of passes of a module: every padded size that it can run, with its page-table widths and digest.

What is enumerated here is what is emitted, warmed and servable; the planner of the runtime only looks shapes up.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from math import lcm
from typing import TYPE_CHECKING, Any

from generator.tiles import TILE

if TYPE_CHECKING:
    from generator.geometry import Resolved

RAGGED_BLOCKS = 8  # of which the tokens of a ragged wave are a multiple: at least so many rows share it
PAGE_TABLE_MULTIPLE = 8  # chunked attention reads page-table rows of 32 bytes: eight int32 entries
SAMPLING = ("logits", "argmax", "top_k")  # the ways a pass may end; each gives a program of its own over the same body


@dataclass(frozen=True)
class PassShape:
    """Everything static about one pass; the fields are those of `runtime.tables.Shape`, in its order. `row_squares` is no part of it:
    when a ragged pass is timed, the sum of its rows' tiles squared, which is all that attention depends on; 0 for equal rows.
    """

    variant: str
    rows: int
    tokens: int
    fill_pages: int
    read_pages: int
    row_selection: str
    digest: str
    row_squares: int = field(default=0, compare=False)

    @property
    def token_tiles(self) -> int:
        return self.rows * self.tokens // TILE

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "row_squares"}


def read_pages(resolved: Resolved) -> int:
    """Width of the page table that chunked attention reads: blocks up to the furthest end of any chunk.

    The last chunk of a prompt takes the smallest length that holds it, so its padded end may lie past the context. The prompt
    that fills the context ends furthest; its last chunk starts at an aligned position at most one prefill chunk before.
    """
    starts = range(0, resolved.context, resolved.alignment)[-(resolved.prefill_chunk // resolved.alignment) :]
    ends = [
        start + min(length for length in resolved.lengths if start + length >= resolved.context) for start in starts
    ]
    return _table_width(resolved, max(ends))


def window_pages(resolved: Resolved, tokens: int) -> int:
    """Width of the page table that a layer with a window reads in a chunk of so many tokens: the chunk and, before it, the
    reach of the window. It never starts before the row.
    """
    return min(_table_width(resolved, resolved.window_reach + tokens), read_pages(resolved))


def _table_width(resolved: Resolved, tokens: int) -> int:
    """Entries for so many tokens, in whole attention chunks and rows that the operation reads."""
    pages = -(-tokens // resolved.block_size)
    multiple = lcm(PAGE_TABLE_MULTIPLE, resolved.alignment // resolved.block_size)
    return -(-pages // multiple) * multiple


def largest_pass(
    lengths: tuple[int, ...], waves: tuple[int, ...], wave_tokens: int, ragged_tokens: tuple[int, ...] = ()
) -> int:
    """Tokens of the largest pass: rows x length, at most `wave_tokens`, or a ragged wave."""
    equal = [wave * length for wave in waves for length in lengths if wave == 1 or wave * length <= wave_tokens]
    return max([*equal, *ragged_tokens])


def ragged_size(resolved: Resolved, tokens: int) -> tuple[int, int]:
    """Rows that a ragged wave of so many tokens takes, and tokens for each: the most that share its blocks equally and whose last
    tokens one tile holds.
    """
    blocks, most = tokens // resolved.block_size, min(resolved.board.maximum_wave, TILE)
    rows = max(count for count in range(1, most + 1) if blocks % count == 0)
    return rows, tokens // rows


def _shape(resolved: Resolved, variant: str, rows: int, tokens: int, pages_read: int) -> PassShape:
    fields = (variant, rows, tokens, rows * tokens // resolved.block_size, pages_read, "last")
    text = json.dumps([resolved.digest, *fields])
    return PassShape(*fields, digest=hashlib.sha256(text.encode()).hexdigest()[:16])


def enumerate_shapes(resolved: Resolved) -> tuple[PassShape, ...]:
    """All passes: for each length one row and every wave within the limit of tokens, from the start of a prompt or as chunks. Where
    there are ragged waves, those take all rows from the start of prompts that do not run by themselves.

    A pass that no call can need is left out, so that what is emitted is what is warmed and what is served.
    """
    pages_read = read_pages(resolved)
    single = [(1, tokens) for tokens in resolved.lengths]
    waves = [
        (rows, tokens)
        for tokens in resolved.lengths
        for rows in resolved.waves
        if rows > 1 and rows * tokens <= resolved.wave_tokens
    ]
    ragged = [ragged_size(resolved, tokens) for tokens in resolved.ragged_tokens if _needs_ragged(resolved, tokens)]
    passes = [
        _shape(resolved, variant, rows, tokens, pages_read if chunked else 0)
        for variant, sizes, chunked in (
            ("single", single, False),
            ("batched", () if resolved.ragged_tokens else waves, False),
            ("chunked", single, True),
            ("chunked_batched", waves, True),
        )
        for rows, tokens in sizes
        if needed(resolved, rows, tokens, chunked)
    ]
    singles = len([shape for shape in passes if shape.variant == "single"])
    passes[singles:singles] = [_shape(resolved, "ragged", *size, 0) for size in ragged]
    return tuple(passes)


def _needs_ragged(resolved: Resolved, tokens: int) -> bool:
    """Whether rows that the key-value blocks hold are more together than the next smaller ragged wave holds."""
    smaller = max([total for total in resolved.ragged_tokens if total < tokens], default=0)
    blocks, rows = smaller // resolved.block_size + 1, ragged_size(resolved, tokens)[0]
    most = rows * (resolved.lengths[-1] // resolved.block_size)
    return max(2, blocks) <= min(resolved.key_value_blocks, most)


def needed(resolved: Resolved, rows: int, tokens: int, chunked: bool) -> bool:
    """Whether some call that the key-value blocks hold runs this pass: found by trying the call that takes the fewest blocks.

    A wave is taken once its rows are one more than the next smaller wave holds, a length once it is one token more than the
    next shorter length. Blocks of a cached prefix may be shared by all rows, the others belong to one row each; there
    are as many slots as blocks.
    """
    if chunked and resolved.attention_soft_cap:
        return False
    block, alignment = resolved.block_size, resolved.alignment
    real = max([wave for wave in resolved.waves if wave < rows], default=0) + 1
    least = max([length for length in resolved.lengths if length < tokens], default=0) + 1
    # (first position, cached tokens, prompt tokens) of each row
    calls = [(0, 0, least)]
    if chunked:
        calls = [
            (begin, cached, length)
            for begin in (0, alignment)
            for length in (begin + least, begin + -(-least // block) * block)
            for cached in range(max(begin, block), begin + alignment + 1, block)
        ]
    for begin, cached, length in calls:
        starts_there = min(cached, length - 1) // alignment * alignment == begin
        blocks = max(real, cached // block + real * (-(-length // block) - cached // block))
        if starts_there and cached <= length <= resolved.context and blocks <= resolved.key_value_blocks:
            return True
    return False

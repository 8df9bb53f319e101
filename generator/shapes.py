"""The closed set of passes of a module: every padded size that it can run, with its page-table widths and digest.

What is enumerated here is what is emitted, warmed and servable; the planner of the runtime only looks shapes up.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

from generator.tiles import TILE

if TYPE_CHECKING:
    from generator.geometry import Resolved

PAGE_TABLE_MULTIPLE = 8  # chunked attention reads page-table rows of 32 bytes: eight int32 entries
SAMPLING = ("logits", "argmax", "top_k")  # the ways a pass may end; each gives a program of its own over the same body


@dataclass(frozen=True)
class PassShape:
    """Everything static about one pass; the fields are those of `runtime.tables.Shape`, in its order."""

    variant: str
    rows: int
    tokens: int
    fill_pages: int
    read_pages: int
    row_selection: str
    digest: str

    @property
    def token_tiles(self) -> int:
        return self.rows * self.tokens // TILE


def read_pages(resolved: Resolved) -> int:
    """Width of the page table that chunked attention reads: blocks up to the furthest end of any chunk.

    The last chunk of a prompt takes the smallest length that holds it, so its padded end may lie past the context. The prompt
    that fills the context ends furthest; its last chunk starts at an aligned position at most one prefill chunk before.
    """
    starts = range(0, resolved.context, resolved.alignment)[-(resolved.prefill_chunk // resolved.alignment) :]
    ends = [
        start + min(length for length in resolved.lengths if start + length >= resolved.context) for start in starts
    ]
    pages = -(-max(ends) // resolved.block_size)
    multiple = lcm(PAGE_TABLE_MULTIPLE, resolved.alignment // resolved.block_size)
    return -(-pages // multiple) * multiple


def _shape(resolved: Resolved, variant: str, rows: int, tokens: int, pages_read: int) -> PassShape:
    fields = (variant, rows, tokens, rows * tokens // resolved.block_size, pages_read, "last")
    text = json.dumps([resolved.digest, *fields])
    return PassShape(*fields, digest=hashlib.sha256(text.encode()).hexdigest()[:16])


def enumerate_shapes(resolved: Resolved) -> tuple[PassShape, ...]:
    """All passes: for each length one row and every wave within the limit of tokens, from the start of a prompt or as chunks.

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
    return tuple(
        _shape(resolved, variant, rows, tokens, pages_read if chunked else 0)
        for variant, sizes, chunked in (
            ("single", single, False),
            ("batched", waves, False),
            ("chunked", single, True),
            ("chunked_batched", waves, True),
        )
        for rows, tokens in sizes
        if needed(resolved, rows, tokens, chunked)
    )


def needed(resolved: Resolved, rows: int, tokens: int, chunked: bool) -> bool:
    """Whether some call that the key-value blocks hold runs this pass: found by trying the call that takes the fewest blocks.

    A wave is taken once its rows are one more than the next smaller wave holds, a length once it is one token more than the
    next shorter length. Blocks of a cached prefix may be shared by all rows, the others belong to one row each; there
    are as many slots as blocks.
    """
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

"""The closed set of passes of a module: every padded size that it can run, with its page-table widths and digest.

What is enumerated here is what is emitted, warmed and servable; the planner of the runtime only looks shapes up.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import lcm

from generator.geometry import Resolved
from generator.tiles import TILE

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
    """All passes: for each length one row and every wave within the limit of tokens, from the start of a prompt or as chunks."""
    pages_read = read_pages(resolved)
    waves = [
        (rows, tokens)
        for tokens in resolved.lengths
        for rows in resolved.waves
        if rows > 1 and rows * tokens <= resolved.wave_tokens
    ]
    single = [_shape(resolved, "single", 1, tokens, 0) for tokens in resolved.lengths]
    batched = [_shape(resolved, "batched", rows, tokens, 0) for rows, tokens in waves]
    chunked = [_shape(resolved, "chunked", 1, tokens, pages_read) for tokens in resolved.lengths]
    chunked_batched = [_shape(resolved, "chunked_batched", rows, tokens, pages_read) for rows, tokens in waves]
    return (*single, *batched, *chunked, *chunked_batched)

"""The roles of a page table. The caller's row is logical block -> physical block; a pass needs it in two forms.

* *fill*: where the cache write puts the blocks of a pass. -1 writes nothing. Used by packed waves (start 0) and by
  chunks alike.
* *read*: which blocks chunked attention walks, from position 0, or from where a window begins. Every entry must be a
  block that exists, so the tail repeats the row's own first block: it is masked, and it is never a foreign block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.request import PrefillRequest

NO_WRITE = -1


def block_count(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` tokens."""
    return -(-tokens // block_size)


def write_entries(
    into: np.ndarray, request: PrefillRequest, start: int, block_size: int, stop: int | None = None
) -> None:
    """Put one row's fill entries of the pass at `start` into `into`, which holds -1 and is as wide as the row's share.

    Written are the blocks between the cached length, which others may share, and the end of the real tokens, or `stop`
    where the pass ends before them.
    """
    first = start // block_size
    low = max(first, request.cached // block_size)
    high = min(first + len(into), len(request.pages))
    if stop is not None:
        high = min(high, block_count(stop, block_size))
    if low < high:
        into[low - first : high - first] = request.pages[low:high]


def fill_table(
    requests: tuple[PrefillRequest, ...], bounds: Sequence[int], start: int, block_size: int, stop: int | None = None
) -> np.ndarray:
    """Fill entries int32 [1, blocks of the pass]: the rows back to back, padding all -1. `bounds`: the tokens of the pass at
    which each row begins, and the end, multiples of the block. `stop`: where the pass ends, by default not before its rows.
    """
    table = np.full((1, bounds[-1] // block_size), NO_WRITE, dtype=np.int32)
    for index, request in enumerate(requests):
        first, last = bounds[index] // block_size, bounds[index + 1] // block_size
        write_entries(table[0, first:last], request, start, block_size, stop)
    return table


def read_table(requests: tuple[PrefillRequest, ...], rows: int, width: int, first: int = 0) -> np.ndarray:
    """Read entries int32 [rows, width]: each row's own blocks from its block number `first` on, then its own first block;
    padding rows read the first row's.
    """
    table = np.empty((rows, width), dtype=np.int32)
    table[:] = requests[0].pages[0]
    for index, request in enumerate(requests):
        pages = request.pages[first : first + width]
        table[index] = request.pages[0]
        table[index, : len(pages)] = pages
    return table

"""The roles of a page table, and what staging makes of them on the host."""

from __future__ import annotations

import numpy as np

from runtime.pages import fill_table, read_table
from runtime.request import PrefillRequest


def request(pages, length, cached=0, row=0):
    begin = cached // 128 * 128
    return PrefillRequest(
        row, row, np.arange(begin, length, dtype=np.int32), begin, cached, length, np.array(pages, dtype=np.int32), True
    )


def equal(rows: int, blocks: int) -> range:
    """Bounds of rows that share so many blocks of 32 tokens equally."""
    return range(0, 32 * blocks + 1, 32 * blocks // rows)


def test_s000_15_packed_rows_fill_their_own_blocks_and_padding_writes_nothing():
    rows = (request([9, 7], 40), request([3, 1, 4, 2], 128, row=1), request([8], 1, row=2))
    assert fill_table(rows, equal(4, 16), 0, 32).tolist() == [[9, 7, -1, -1, 3, 1, 4, 2, 8, -1, -1, -1, -1, -1, -1, -1]]


def test_s000_16_a_chunk_fills_its_own_blocks_only_and_reads_the_whole_row():
    row = request(range(100, 143), 1360)
    assert fill_table((row,), equal(1, 32), 0, 32)[0].tolist() == list(range(100, 132))
    assert fill_table((row,), equal(1, 16), 1024, 32)[0].tolist() == [*range(132, 143), -1, -1, -1, -1, -1]
    read = read_table((row,), 1, 48)[0].tolist()
    assert read[:43] == list(range(100, 143)) and read[43:] == [100] * 5


def test_s003_23_nothing_below_the_cached_length_is_written():
    row = request([5, 6, 7, 8, 9], 160, cached=64)
    assert fill_table((row,), equal(1, 8), 0, 32)[0].tolist() == [-1, -1, 7, 8, 9, -1, -1, -1]


def test_b06_a_fully_cached_row_writes_nothing():
    row = request([5, 6, 7, 8], 128, cached=128)
    assert set(fill_table((row,), equal(1, 4), 0, 32)[0].tolist()) == {-1}


def test_a_padding_row_of_a_chunked_wave_reads_a_block_that_exists():
    rows = (request([5, 6], 64), request([7, 8], 64, row=1), request([2, 3], 64, row=2))
    assert read_table(rows, 4, 4).tolist() == [[5, 6, 5, 5], [7, 8, 7, 7], [2, 3, 2, 2], [5, 5, 5, 5]]

"""Which waves and chunks the rows of a call become."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.admission import Admission
from runtime.errors import NoShape
from runtime.planner import Planner, smallest_wave, split
from runtime.slices import SliceCursors
from tests.support.plan_tables import plan_tables
from tests.support.twins import Rig


def plan(lengths, cached=None, tables=None, final=True, slots=None):
    tables = tables or plan_tables()
    width = max(lengths)
    needed = -(-width // tables.BLOCK_SIZE)
    tokens = np.tile(np.arange(width) % tables.VOCABULARY, (len(lengths), 1))
    pages = np.arange(len(lengths) * needed).reshape(len(lengths), needed)
    rows = Admission(tables, SliceCursors()).rows(tokens, pages, lengths, cached, slots, final)
    return Planner(tables).plan(rows, "logits")


def waves(prepared):
    return [(plan.source_rows, plan.chunks[0].shape.rows) for plan in prepared]


def passes(prepared):
    return [
        [(chunk.shape.variant, chunk.shape.tokens, chunk.start, chunk.stop) for chunk in plan.chunks]
        for plan in prepared
    ]


@pytest.mark.parametrize(
    "sizes, rows, expected",
    [
        ((1, 2, 4, 8), 9, [(8, 8), (1, 1)]),
        ((1, 2, 4, 8, 16, 32), 33, [(32, 32), (1, 1)]),
        ((1, 2, 4, 8, 16), 32, [(16, 16), (16, 16)]),
        ((1, 2, 4, 8), 3, [(3, 4)]),
        ((1, 2, 4, 8), 15, [(8, 8), (7, 8)]),
        ((1,), 3, [(1, 1), (1, 1), (1, 1)]),
        ((4, 8), 1, [(1, 4)]),
    ],
)
def test_b02_waves_split_into_the_largest_and_one_that_holds_the_rest(sizes, rows, expected):
    assert split(rows, smallest_wave(sizes)) == expected


def test_b02_nine_thirty_three_and_wide_rows_run_in_two_waves():
    wide = plan_tables({128: (1, 2, 4, 8, 16, 32), 1024: (1, 2, 4, 8, 16)}, blocks=4096)
    narrow = plan_tables({128: (1, 2, 4, 8)})
    assert [rows for _, rows in waves(plan([128] * 9, tables=narrow))] == [8, 1]
    assert [rows for _, rows in waves(plan([128] * 33, tables=wide))] == [32, 1]
    assert [rows for _, rows in waves(plan([1000] * 32, tables=wide))] == [16, 16]


def test_s000_12_rows_of_one_length_share_a_wave_and_keep_their_slots():
    prepared = plan([33, 128, 129], slots=[4, 1, 9])
    assert waves(prepared) == [((0, 1), 2), ((2,), 1)]
    assert [p.slots for p in prepared] == [(4, 1), (9,)]
    assert passes(prepared) == [[("batched", 128, 0, 128)], [("single", 512, 0, 129)]]


def test_s000_14_padded_rows_follow_the_source_order():
    (wave,) = plan([100, 90, 80], slots=[7, 3, 11])
    assert (wave.source_rows, wave.slots, wave.chunks[0].shape.rows) == ((0, 1, 2), (7, 3, 11), 4)


@pytest.mark.parametrize(
    "length, tokens", [(1, 128), (127, 128), (128, 128), (129, 512), (511, 512), (512, 512), (513, 1024)]
)
def test_b57_the_smallest_length_that_holds_a_row_is_used(length, tokens):
    assert passes(plan([length])) == [[("single", tokens, 0, length)]]


def test_long_rows_run_whole_chunks_and_end_in_the_smallest_length():
    assert passes(plan([2148])) == [
        [("chunked", 1024, 0, 1024), ("chunked", 1024, 1024, 2048), ("chunked", 128, 2048, 2148)]
    ]
    assert passes(plan([2048])) == [[("chunked", 1024, 0, 1024), ("chunked", 1024, 1024, 2048)]]


def test_s000_20_a_cached_prefix_runs_chunked_even_in_one_pass():
    assert passes(plan([160], cached=[32])) == [[("chunked", 512, 0, 160)]]
    assert passes(plan([160], cached=[128])) == [[("chunked", 128, 128, 160)]]


def test_b07_a_start_off_the_alignment_is_rounded_down():
    assert passes(plan([1500], cached=[992])) == [[("chunked", 1024, 896, 1500)]]


def test_b06_a_fully_cached_row_is_recomputed_from_the_boundary_below_its_last_token():
    assert passes(plan([256], cached=[256])) == [[("chunked", 128, 128, 256)]]
    assert passes(plan([128, 40], cached=[128, 0])) == [[("chunked", 128, 0, 128)], [("single", 128, 0, 40)]]


def test_b59_only_the_uncached_part_is_computed():
    assert passes(plan([4000], cached=[3968])) == [[("chunked", 128, 3968, 4000)]]


def test_b03_rows_of_equal_start_share_a_wave_where_the_tables_have_one():
    tables = plan_tables(chunk_rows=(1, 8), blocks=4096)
    (wave,) = plan([1281 + row for row in range(8)], cached=[128] * 8, tables=tables)
    assert wave.source_rows == tuple(range(8))
    assert [(c.shape.rows, c.shape.tokens, c.start, c.stop) for c in wave.chunks] == [
        (8, 1024, 128, 1152),
        (8, 512, 1152, 1288),
    ]
    assert len(plan([1280] * 8, cached=[128] * 4 + [256] * 4, tables=tables)) == 2
    assert len(plan([1280] * 8, cached=[128] * 8, tables=plan_tables(blocks=4096))) == 8


def test_s003_09_a_row_is_cut_alike_alone_and_in_company():
    tables = plan_tables(chunk_rows=(1, 2), blocks=4096)
    alone = passes(plan([1400], cached=[128], tables=tables))
    together = plan([1400, 3000, 1410], cached=[128] * 3, tables=tables)
    assert [[c[1:3] for c in chunks] for chunks in passes(together)][0] == [c[1:3] for c in alone[0]]
    assert waves(together) == [((0, 2), 2), ((1,), 1)]


def test_a_slice_never_shares_a_wave_with_a_last_one():
    assert [(p.source_rows, p.final) for p in plan([128, 128, 128], final=[True, False, True])] == [
        ((0, 2), True),
        ((1,), False),
    ]


def test_a_row_that_no_table_holds_is_refused_with_its_numbers():
    """S002-24: a module without chunked passes says what it does serve."""
    tables = plan_tables(chunk_rows=())
    with pytest.raises(NoShape, match="row 1: no pass of the module holds 1025 tokens from position 0"):
        plan([10, 1025], tables=tables)


ROWS = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 128)), min_size=1, max_size=40)


@settings(max_examples=300, deadline=None)
@given(ROWS, st.sampled_from([(1,), (1, 2, 4), (2, 8)]))
def test_s000_19_every_token_from_the_first_boundary_runs_once_and_the_last_chunk_holds_the_last_token(
    rows, chunk_rows
):
    tables = plan_tables(chunk_rows=chunk_rows, blocks=1 << 14)
    lengths = [length for length, _ in rows]
    cached = [min(blocks * 32, length // 32 * 32) for length, blocks in rows]
    prepared = plan(lengths, cached=cached, tables=tables)
    assert sorted(row for p in prepared for row in p.source_rows) == list(range(len(rows)))
    for p in prepared:
        assert len(p.requests) <= p.chunks[0].shape.rows
        assert all(chunk.shape in tables.TRACES and chunk.start % tables.ALIGNMENT == 0 for chunk in p.chunks)
        for request in p.requests:
            assert request.begin == p.chunks[0].start <= min(request.cached, request.length - 1)
            assert request.begin > min(request.cached, request.length - 1) - tables.ALIGNMENT
            ends = [chunk.start + chunk.shape.tokens for chunk in p.chunks]
            assert [chunk.start for chunk in p.chunks[1:]] == ends[:-1]
            assert p.chunks[-1].start < request.length <= ends[-1]
            assert p.chunks[-1].shape.read_pages == 0 or ends[-1] <= p.chunks[-1].shape.read_pages * tables.BLOCK_SIZE


def test_s000_13_rows_run_alone_while_the_environment_says_so(monkeypatch):
    rig = Rig()
    call = rig.call([40, 50, 33])
    for value, expected in ((None, 1), ("1", 3), ("0", 1), ("true", 3), ("", 1)):
        if value is None:
            monkeypatch.delenv("DISABLE_BATCHED_PREFILL", raising=False)
        else:
            monkeypatch.setenv("DISABLE_BATCHED_PREFILL", value)
        prepared = rig.prefill.prepare(**vars(call))
        assert len(prepared) == expected
        assert {plan.chunks[0].shape.rows for plan in prepared} == ({4} if expected == 1 else {1})


def test_s000_11_rows_alone_take_the_smallest_wave_of_their_length():
    tables = plan_tables({128: (4, 8)})
    rows = Admission(tables, SliceCursors()).rows([[1]] * 3, [[0], [1], [2]], [1] * 3, None, None, True)
    assert waves(Planner(tables).plan(rows, "logits", alone=True)) == [((0,), 4), ((1,), 4), ((2,), 4)]


def test_what_a_row_runs_alone_is_known_without_a_plan():
    planner = Planner(plan_tables())
    assert {(shape.variant, shape.tokens) for shape in planner.shapes(0, 0, 2148)} == {
        ("chunked", 1024),
        ("chunked", 128),
    }
    assert {(shape.variant, shape.tokens) for shape in planner.shapes(0, 0, 200)} == {("single", 512)}

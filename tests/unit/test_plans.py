"""Promises about plans and page tables that no device is needed for, over the tables that the generator makes."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import planning
from generator.shapes import enumerate_shapes
from runtime import errors
from runtime.admission import Admission
from runtime.planner import Planner
from runtime.slices import SliceCursors
from runtime.staging import HostValues
from tests.support.building import committed, committed_text, names_of, resolved
from tests.support.plan_tables import plan_tables

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = committed()


@cache
def large(wave_tokens: int = 65536) -> SimpleNamespace:
    """Lengths up to 4096 with waves of up to 16 of them."""
    lengths = (128, 256, 512, 1024, 2048, 4096)
    return planning.tables(planning.resolve(planning.manifest(8192, 4096, wave_tokens, lengths, 8192)))


def admit(lengths, cached=None, tables=None, final=True, slots=None, shared=0):
    """Rows of a call; their first `shared` blocks are the same in all."""
    tables = tables or plan_tables(blocks=1 << 13)
    width = -(-max(lengths) // tables.BLOCK_SIZE)
    tokens = np.tile(np.arange(max(lengths)) % tables.VOCABULARY, (len(lengths), 1))
    pages = np.arange(len(lengths) * width).reshape(len(lengths), width)
    pages[:, :shared] = pages[0, :shared]
    return Admission(tables, SliceCursors()).rows(tokens, pages, lengths, cached, slots, final)


def plan(lengths, cached=None, tables=None, **options):
    tables = tables or plan_tables(blocks=1 << 13)
    return Planner(tables).plan(admit(lengths, cached, tables, **options), "logits")


def sizes(prepared):
    return [(len(p.requests), p.chunks[0].shape.rows, p.chunks[0].shape.tokens) for p in prepared]


# --- waves -----------------------------------------------------------------------------------------------------------


def test_b02_9_33_and_32_rows_of_4096_run_in_two_waves_each():
    assert sizes(plan([128] * 9, tables=plan_tables({128: (1, 2, 4, 8)}))) == [(8, 8, 128), (1, 1, 128)]
    assert sizes(plan([128] * 33, tables=large())) == [(32, 32, 128), (1, 1, 128)]
    assert sizes(plan([4096] * 32, tables=large())) == [(16, 16, 4096), (16, 16, 4096)]


def test_b03_eight_rows_of_a_common_cached_prefix_run_in_one_wave():
    (wave,) = plan([200 + row for row in range(8)], cached=[128] * 8, tables=large(), shared=4)
    assert wave.source_rows == tuple(range(8)) and len(wave.chunks) == 1
    assert (wave.chunks[0].shape.variant, wave.chunks[0].shape.rows, wave.chunks[0].start) == (
        "chunked_batched",
        8,
        128,
    )


@pytest.mark.parametrize(("tokens", "computed"), [(129, 256), (300, 512), (1025, 2048)])
def test_b04_a_length_of_the_module_and_not_a_power_of_two_rule_is_computed(tokens, computed):
    assert sizes(plan([tokens], tables=large())) == [(1, 1, computed)]
    assert sizes(plan([tokens], tables=plan_tables({160: (1,), 384: (1,), 1152: (1,)}))) == [
        (1, 1, {129: 160, 300: 384, 1025: 1152}[tokens])
    ]


def test_b58_a_length_between_two_chunks_runs():
    (one,) = plan([6144], tables=large())
    assert [(chunk.shape.tokens, chunk.start, chunk.stop) for chunk in one.chunks] == [
        (4096, 0, 4096),
        (2048, 4096, 6144),
    ]


@pytest.mark.parametrize("container", [list, tuple, np.array, torch.tensor])
def test_b56_two_rows_of_16384_are_chunked_whatever_holds_their_lengths(container):
    tables = planning.tables(planning.resolve(planning.manifest(16384, 4096, 8192, (128, 4096), 1024)))
    rows = admit(
        container([16384, 16384]).tolist() if hasattr(container([1]), "tolist") else [16384] * 2, tables=tables
    )
    given = Admission(tables, SliceCursors()).rows(
        np.tile(np.arange(16384) % tables.VOCABULARY, (2, 1)),
        np.arange(1024).reshape(2, 512),
        container([16384] * 2),
        None,
        None,
        True,
    )
    assert given == rows
    (wave,) = Planner(tables).plan(given, "logits")
    assert [(chunk.shape.rows, chunk.start) for chunk in wave.chunks] == [(2, start) for start in range(0, 16384, 4096)]


def test_s002_04_a_chunk_is_cut_into_pieces_of_the_prefill_chunk_in_order():
    """11 units with at most 4 to a piece: 4, 4 and 3."""
    tables = plan_tables(chunk=512, lengths=(128, 384, 512), waves={128: (1,)})
    (one,) = plan([11 * 128], tables=tables)
    assert [(c.shape.tokens // 128, c.start // 128, c.stop // 128) for c in one.chunks] == [
        (4, 0, 4),
        (4, 4, 8),
        (3, 8, 11),
    ]


@pytest.mark.parametrize(("length", "cached"), [(1500, 0), (1500, 256), (4096, 128)])
def test_s002_26_the_spans_of_a_plan_are_absolute_and_begin_at_the_reused_offset(length, cached):
    (one,) = plan([length], [cached])
    spans = [(chunk.start, chunk.stop) for chunk in one.chunks]
    assert spans[0][0] == cached and spans[-1][1] == length
    assert [stop for _, stop in spans[:-1]] == [start for start, _ in spans[1:]]


def test_s003_07_rows_share_a_wave_where_start_length_and_ending_are_equal():
    tables = large()
    assert sizes(plan([100, 90], tables=tables)) == [(2, 2, 128)]
    assert sizes(plan([200, 228], [128, 128], tables=tables)) == [(2, 2, 128)]
    for lengths, cached, final in (
        ([100, 300], [0, 0], True),
        ([100, 228], [0, 128], True),
        ([228, 356], [128, 256], True),
        ([128, 128], [0, 0], [True, False]),
    ):
        assert [rows for rows, *_ in sizes(plan(lengths, cached, tables=tables, final=final))] == [1, 1]
    assert [rows for rows, *_ in sizes(plan([4096] * 3, tables=large(8192)))] == [2, 1]


def test_s003_08_waves_keep_the_order_of_the_rows_and_hold_each_once():
    drawn = np.random.default_rng(3)
    for count in (1, 9, 33, 70):
        lengths = drawn.integers(1, 4000, count).tolist()
        prepared = plan(lengths, tables=plan_tables(blocks=1 << 14))
        rows = [p.source_rows for p in prepared]
        assert sorted(row for wave in rows for row in wave) == list(range(count))
        assert rows[0][0] == 0 and all(list(wave) == sorted(wave) for wave in rows)


@pytest.mark.parametrize(("model", "target"), MODELS, ids=names_of(MODELS))
def test_s003_10_every_cut_between_chunks_is_a_multiple_of_the_alignment(model, target):
    numbers = resolved(model, target)
    assert numbers.prefill_chunk % numbers.alignment == 0 and numbers.alignment % numbers.block_size == 0


# --- rows ------------------------------------------------------------------------------------------------------------


def test_s003_25_a_range_is_computed_from_what_is_not_cached_and_its_end_always():
    with pytest.raises(errors.InvalidSlice, match="from 256 to 256 is empty"):
        plan([256], [256], final=False)  # wholly cached and not the last: nothing to run, and the caller is told so
    (last,) = plan([256], [256])
    assert (last.chunks[0].start, last.chunks[0].stop, len(last.requests[0].tokens)) == (128, 256, 128)
    (suffix,) = plan([1000], [256])
    assert suffix.requests[0].tokens.tolist() == list(range(256, 1000))


@pytest.mark.parametrize(
    ("start", "end", "kind"),
    [
        (64, 64, errors.InvalidSlice),
        (96, 64, errors.InvalidStart),
        (0, 0, errors.InvalidLength),
        (0, 4128, errors.ContextExceeded),
    ],
)
def test_s003_01_s002_02_a_slice_is_within_its_prompt_and_not_empty(start, end, kind):
    tables = plan_tables()
    tokens, pages = np.zeros((1, 4128), dtype=int), np.arange(129)[None]
    with pytest.raises(kind, match=str(end)):
        Admission(tables, SliceCursors()).rows(tokens, pages, [end], [start], None, False)


def test_s002_22_a_position_past_the_context_and_an_input_without_a_value_are_refused_by_name():
    with pytest.raises(errors.ContextExceeded, match="row 0: a prompt of 4097 tokens .* context of 4096"):
        plan([4097])
    tables = plan_tables()
    del tables.INPUTS["chunked"]
    with pytest.raises(KeyError, match="chunked"):
        HostValues(tables)


def test_fault_b28_a_prompt_of_whole_blocks_that_is_all_cached_has_tokens_to_compute():
    for length in (32, 128, 256, 1024, 4096):
        (one,) = plan([length], [length])
        assert one.chunks[-1].stop == length > one.chunks[0].start == one.requests[0].begin >= 0


# --- page tables -----------------------------------------------------------------------------------------------------


def tables_of(prepared, tables):
    values = HostValues(tables)
    for chunk in prepared.chunks:
        yield {entry.name: values.value(entry, prepared, chunk) for entry in values.inputs(chunk.shape)}


def test_b09_the_table_that_the_cache_write_uses_is_as_wide_as_its_pass():
    tables = plan_tables(context=1 << 17, blocks=1 << 12)
    (one,) = plan([100_000], tables=tables)
    for chunk, values in zip(one.chunks, tables_of(one, tables)):
        assert values["fill_table"].shape == (1, chunk.shape.tokens // 32) and chunk.shape.tokens <= 1024
        assert values["read_table"].shape[1] > 4096


def test_s003_11_the_tables_of_each_chunk_equal_those_of_a_prompt_planned_from_there():
    tables = plan_tables(blocks=1 << 13)
    (whole,) = plan([3000], tables=tables)
    for chunk, values in zip(whole.chunks, tables_of(whole, tables)):
        (rest,) = plan([3000], [chunk.start], tables=tables)
        again = next(tables_of(rest, tables)) if chunk.start else values
        for name in values:
            assert torch.equal(values[name], again[name]), (name, chunk.start)
    with pytest.raises(errors.CapacityExceeded, match="3000 tokens need 94 blocks and the page table has 93"):
        Admission(tables, SliceCursors()).rows(np.zeros((1, 3000), int), np.arange(93)[None], [3000], None, None, True)


def test_s000_16_and_17_a_chunk_fills_its_own_blocks_and_reads_its_rows():
    """Prompt 4129 of which 96 tokens are cached, alignment 32: chunks of 2048 from 96, blocks 3 to 66 and 67 to 129."""
    tables = plan_tables(alignment=32, chunk=2048, lengths=(2048,), context=8192, waves={128: (1,)})
    pages = 9 + np.arange(130)[None]
    rows = Admission(tables, SliceCursors()).rows(np.zeros((1, 4129), int), pages, [4129], [96], None, True)
    (one,) = Planner(tables).plan(rows, "logits")
    assert [chunk.start for chunk in one.chunks] == [96, 2144]
    first, second = tables_of(one, tables)
    assert (first["fill_table"][0] - 9).tolist() == list(range(3, 67))
    assert second["fill_table"][0].tolist() == [*range(9 + 67, 9 + 130), -1]
    width = second["read_table"].shape[1]
    assert second["read_table"][0].tolist() == [*range(9, 9 + 130), *[9] * (width - 130)]


def test_s000_15_stale_ids_of_the_scheduler_are_in_no_input():
    tables = plan_tables()
    pages = np.full((3, 160), 9999)
    pages[:, :4] = np.arange(12).reshape(3, 4)
    tokens = np.full((3, 128), 9999)
    tokens[:, :97] = 5
    rows = Admission(tables, SliceCursors()).rows(tokens, pages, [97, 33, 1], None, None, True)
    (wave,) = Planner(tables).plan(rows, "logits")
    (values,) = tables_of(wave, tables)
    assert all(int(value.max()) < 1000 for value in values.values())
    assert values["tokens"].view(4, 128)[3].sum() == 0 and set(values["fill_table"][0, 12:].tolist()) == {-1}


# --- what modules say ------------------------------------------------------------------------------------------------


def literal_tables(model, target, name):
    """The dictionaries that a committed module assigns to a name."""
    nodes = ast.parse(committed_text(model, target)).body
    return [node.value for node in nodes if isinstance(node, ast.Assign) and node.targets[0].id == name]


@pytest.mark.parametrize(("model", "target"), MODELS, ids=names_of(MODELS))
def test_b13_the_attention_chunks_of_every_pass_are_literals_of_the_module(model, target):
    if resolved(model, target).attention_soft_cap:
        (table,) = literal_tables(model, target, "SCORES")
        assert [ast.literal_eval(key) for key in table.keys] == list(resolved(model, target).lengths)
        assert not literal_tables(model, target, "ATTENTION")
        return
    (table,) = literal_tables(model, target, "ATTENTION")
    keys = [ast.literal_eval(key) for key in table.keys]
    numbers = [[ast.literal_eval(argument) for argument in value.args] for value in table.values]
    model_numbers = resolved(model, target)
    shapes = [(shape.variant, shape.rows, shape.tokens) for shape in enumerate_shapes(model_numbers)]
    assert sorted(keys) == sorted(shapes)
    for (variant, rows, tokens), (query, key) in zip(keys, numbers):
        if variant == "ragged":
            assert rows * tokens % query == rows * tokens % key == 0 and max(query, key) <= 128
            continue
        assert query <= tokens and query % 32 == key % 32 == 0
        if variant.startswith("chunked"):
            assert model_numbers.alignment % query == model_numbers.alignment % key == 0


@pytest.mark.parametrize(("model", "target"), MODELS, ids=names_of(MODELS))
def test_s002_14_attention_has_one_cache_type_and_none_of_the_options_that_the_model_does_not_have(model, target):
    text, numbers = committed_text(model, target), resolved(model, target)
    assert text.count('Store("keys"') == text.count('Store("values"') == 1
    assert all(word not in text for word in ("ring_", "attn_mask"))
    assert ("attention_sink" in text) == numbers.attention_sinks
    assert ("sliding_window" in text) == (numbers.sliding_window > 0)


def test_s000_06_the_package_exports_nothing_and_the_facade_is_one_module():
    source = (REPOSITORY / "runtime" / "__init__.py").read_text()
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]

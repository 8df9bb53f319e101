"""The closed set of passes: every length has every variant, waves keep their limit, tables are wide enough for any chunk."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.geometry import Resolved
from generator.shapes import PAGE_TABLE_MULTIPLE, PassShape, enumerate_shapes, read_pages
from runtime.tables import Shape
from tests.support.building import committed, names_of, resolved

MODELS = committed()
VARIANTS = ("single", "batched", "ragged", "chunked", "chunked_batched")
SMALL = resolved("smollm2-135m", "n150", True)


def furthest_end(model: Resolved) -> int:
    """Padded end of the furthest chunk, by trying every aligned start and every prompt end."""
    furthest = 0
    for first in range(0, model.context, model.alignment):
        for end in range(first + 1, model.context + 1):
            start = first
            while end - start > model.prefill_chunk:
                start += model.prefill_chunk
            length = min(length for length in model.lengths if length >= end - start)
            furthest = max(furthest, start + length)
    return furthest


def test_the_table_that_attention_reads_covers_the_end_of_any_chunk_of_the_twin() -> None:
    assert read_pages(SMALL) * SMALL.block_size >= furthest_end(SMALL) > SMALL.context - SMALL.alignment


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_table_that_attention_reads_is_no_wider_than_it_must_be(data: st.DataObject) -> None:
    """For any alignment, lengths and context: wide enough for every chunk, and not one step of the table wider."""
    block = data.draw(st.sampled_from([32, 64]))
    attention_chunk = data.draw(st.sampled_from([32, 64, 128, 256, 512, 1024]))
    alignment = lcm(block, attention_chunk)
    chunk = alignment * data.draw(st.integers(1, 4))
    lengths = {chunk, *data.draw(st.lists(st.integers(1, chunk // block).map(lambda n: n * block), max_size=3))}
    context = chunk + block * data.draw(st.integers(0, 12))
    model = replace(
        SMALL,
        block_size=block,
        attention_chunk=attention_chunk,
        alignment=alignment,
        prefill_chunk=chunk,
        lengths=tuple(sorted(lengths)),
        context=context,
    )
    step = lcm(PAGE_TABLE_MULTIPLE, alignment // block)
    blocks = -(-furthest_end(model) // block)
    assert read_pages(model) % step == 0
    assert 0 <= read_pages(model) - blocks < step


@pytest.mark.parametrize(("model", "target"), MODELS, ids=names_of(MODELS))
def test_every_length_has_a_single_and_a_chunked_pass_and_its_waves(model: str, target: str) -> None:
    numbers = resolved(model, target)
    shapes = enumerate_shapes(numbers)
    found = {variant: [(s.rows, s.tokens) for s in shapes if s.variant == variant] for variant in VARIANTS}
    assert sum(map(len, found.values())) == len(shapes)
    waves = {
        (rows, tokens)
        for rows in numbers.waves
        for tokens in numbers.lengths
        if rows > 1 and rows * tokens <= numbers.wave_tokens
    }
    assert found["single"] == [(1, tokens) for tokens in numbers.lengths]
    assert [rows * tokens for rows, tokens in found["ragged"]] == list(numbers.ragged_tokens)
    assert all(8 <= rows <= 32 and tokens % numbers.block_size == 0 for rows, tokens in found["ragged"])
    assert set(found["batched"]) == (set() if numbers.ragged_tokens else waves)
    chunks = ([], set()) if numbers.attention_soft_cap else (found["single"], waves)
    assert (found["chunked"], set(found["chunked_batched"])) == chunks
    for shape in shapes:
        assert shape.fill_pages * numbers.block_size == shape.rows * shape.tokens
        assert (shape.read_pages > 0) == (shape.variant in ("chunked", "chunked_batched"))
        assert shape.token_tiles * 32 == shape.rows * shape.tokens


def test_digests_tell_passes_and_geometries_apart_and_nothing_else() -> None:
    """S000-31: equal inputs give equal digests, and every field of a pass is in them."""
    digests = {shape.digest for shape in enumerate_shapes(SMALL)}
    other = {shape.digest for shape in enumerate_shapes(replace(SMALL, digest="0" * 16))}
    assert len(digests) == len(enumerate_shapes(SMALL))
    assert digests == {shape.digest for shape in enumerate_shapes(replace(SMALL, keys={}))}
    assert not digests & other


def test_a_digest_has_a_golden_value() -> None:
    first = enumerate_shapes(replace(SMALL, digest="0123456789abcdef"))[0]
    assert (first.variant, first.rows, first.tokens, first.fill_pages) == ("single", 1, 32, 1)
    assert first.digest == "cf72fd1c35afcabd"  # of ["0123456789abcdef", "single", 1, 32, 1, 0, "last"] as JSON


def test_fields_are_those_that_the_runtime_reads() -> None:
    """All but what only a timing needs on one side, and only a packing on the other."""
    assert list(PassShape.__dataclass_fields__) == [*list(Shape.__dataclass_fields__)[:-1], "row_squares"]
    assert list(Shape.__dataclass_fields__)[-1] == "microseconds"

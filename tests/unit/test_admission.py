"""What a call may hold, and what each refusal says: bad input is met before anything is planned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runtime import errors
from runtime.admission import Admission
from runtime.slices import SliceCursors
from tests.support.plan_tables import plan_tables

TABLES = plan_tables()


def admit(tokens=None, pages=None, lengths=(40, 100), starts=None, slots=None, final=True, tables=TABLES):
    lengths = list(lengths) if isinstance(lengths, tuple) else lengths
    rows = len(lengths)
    tokens = np.ones((rows, max(lengths)), dtype=np.int64) if tokens is None else tokens
    pages = np.arange(rows * 160).reshape(rows, 160) % tables.KEY_VALUE_BLOCKS if pages is None else pages
    return Admission(tables, SliceCursors()).rows(tokens, pages, lengths, starts, slots, final)


CONTAINERS = [
    list,
    tuple,
    np.array,
    torch.tensor,
    lambda values: [np.int64(v) for v in values],
    lambda v: torch.tensor(v).int(),
]


@pytest.mark.parametrize("container", CONTAINERS)
def test_b56_numbers_may_come_in_any_container(container):
    plain = admit(starts=[0, 32], slots=[4, 2])
    given = admit(
        lengths=container([40, 100]),
        tokens=torch.ones(2, 100, dtype=torch.int32),
        starts=container([0, 32]),
        slots=container([4, 2]),
        pages=torch.arange(320).reshape(2, 160),
    )
    assert given == plain


def test_s000_22_a_wider_page_table_gives_an_equal_plan():
    narrow = admit(pages=np.array([[7, 8, 0, 0], [1, 2, 3, 4]]))
    wide = admit(
        pages=np.concatenate((np.array([[7, 8], [1, 2]]), np.array([[9999, -5], [3, 4]]), np.full((2, 9), 9999)), 1)
    )
    assert narrow == wide


def test_fault_b08_a_plan_keeps_copies_of_what_the_caller_may_reuse():
    tokens, pages = np.ones((2, 100), dtype=np.int32), np.arange(320, dtype=np.int32).reshape(2, 160)
    rows = admit(tokens=tokens, pages=pages)
    tokens[:], pages[:] = 5, 0
    assert rows == admit()


REFUSALS = {
    "rank of tokens": (dict(tokens=np.ones(5, dtype=int)), errors.RequestError, "tokens has rank 1"),
    "rank of pages": (dict(pages=np.arange(4)), errors.RequestError, "page_table has rank 1"),
    "ragged": (dict(tokens=[[1, 2], [3]]), errors.RequestError, "tokens is ragged"),
    "floats": (dict(tokens=np.ones((2, 100))), errors.RequestError, "tokens holds float64"),
    "no rows": (dict(tokens=np.ones((0, 4), dtype=int)), errors.RequestError, "no rows"),
    "page rows": (dict(pages=np.zeros((3, 8), dtype=int)), errors.RequestError, "page_table has 3 rows for 2"),
    "lengths": (
        dict(tokens=np.ones((3, 100), dtype=int), pages=np.arange(12).reshape(3, 4)),
        errors.RequestError,
        "2 entries for 3",
    ),
    "rank of starts": (dict(starts=np.zeros((2, 1), dtype=int)), errors.RequestError, "start_pos has rank 2"),
    "type of starts": (dict(starts=[0, 1.5]), errors.RequestError, r"start_pos\[1\] is 1.5, not an integer"),
    "bool": (dict(slots=[True, 2]), errors.RequestError, r"slots\[0\] is True"),
    "scalar": (dict(starts=0), errors.RequestError, "start_pos is int"),
    "final": (dict(final=[True]), errors.RequestError, "one bool for each of 2 rows"),
    "empty prompt": (dict(lengths=(40, 0)), errors.InvalidLength, "row 1: a prompt of 0 tokens"),
    "too wide": (
        dict(lengths=(40, 41), tokens=np.ones((2, 40), dtype=int)),
        errors.InvalidLength,
        "41 tokens in a row of 40",
    ),
    "context": (dict(lengths=(4097, 5)), errors.ContextExceeded, "row 0: a prompt of 4097 tokens .* context of 4096"),
    "negative start": (dict(starts=[0, -32]), errors.InvalidStart, "row 1: -32 cached tokens of a prompt of 100"),
    "start past the end": (dict(starts=[64, 0]), errors.InvalidStart, "row 0: 64 cached tokens of a prompt of 40"),
    "start in a block": (dict(starts=[1, 0]), errors.InvalidStart, "row 0: 1 cached tokens end inside a block of 32"),
    "slot twice": (dict(slots=[3, 3]), errors.InvalidSlot, "row 1: slot 3 is also the slot of row 0"),
    "slot range": (dict(slots=[0, 512]), errors.InvalidSlot, "row 1: slot 512 is not one of 0 to 511"),
    "narrow": (
        dict(pages=np.arange(6).reshape(2, 3)),
        errors.CapacityExceeded,
        "row 1: 100 tokens need 4 blocks .* has 3",
    ),
    "page range": (
        dict(pages=np.array([[1, 2, 0, 0], [3, 4, 512, 5]])),
        errors.InvalidPage,
        "row 1: .*entry 2 is block 512",
    ),
    "page unset": (
        dict(pages=np.array([[1, -1, 0, 0], [3, 4, 6, 5]])),
        errors.InvalidPage,
        "row 0: .*entry 1 is block -1",
    ),
    "slice in a block": (dict(final=False), errors.InvalidSlice, "row 0: the slice ends at 40, inside a block of 32"),
    "empty slice": (dict(lengths=(64, 96), starts=[64, 0], final=False), errors.InvalidSlice, "from 64 to 64 is empty"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_s000_08_bad_arguments_are_refused_with_their_numbers(name):
    arguments, kind, message = REFUSALS[name]
    with pytest.raises(kind, match=message):
        admit(**arguments)


def test_s002_06_a_token_outside_the_vocabulary_is_named_with_its_position():
    for bad, position in ((1000, 99), (-1, 0), (1 << 40, 50)):
        tokens = np.ones((2, 100), dtype=np.int64)
        tokens[1, position] = bad
        with pytest.raises(
            errors.InvalidToken, match=f"row 1: token id {bad} at position {position} .* vocabulary of 1000"
        ):
            admit(tokens=tokens)


def test_ids_past_a_prompt_are_not_read():
    tokens = np.ones((2, 100), dtype=np.int64)
    tokens[0, 40:] = -1
    assert admit(tokens=tokens) == admit()


def test_a_store_smaller_than_a_prompt_is_refused():
    with pytest.raises(errors.CapacityExceeded, match="row 1: 100 tokens need 4 blocks and the store has 3"):
        admit(tables=plan_tables(blocks=3), slots=[0, 1])


@pytest.mark.parametrize(
    "context, chunk, length, cached",
    [(40960, 4096, 33000, 0), (5120, 2048, 5000, 0), (8192, 2048, 8192, 4064), (131072, 4096, 131072, 65504)],
)
def test_b01_what_fits_with_its_real_tokens_is_admitted(context, chunk, length, cached):
    tables = plan_tables(context=context, chunk=chunk, blocks=context // 32, lengths=(128, 512, 1024, chunk))
    pages = np.arange(context // 32)[None]
    (row,) = admit(np.ones((1, length), dtype=np.int32), pages, [length], [cached], tables=tables)
    assert row.length == length and row.begin == cached // 128 * 128


def test_b01_a_row_that_cannot_be_served_is_named_and_the_others_told_apart():
    with pytest.raises(errors.ContextExceeded) as caught:
        admit(lengths=(40, 5000, 33), slots=[1, 2, 1])
    assert caught.value.row == 1 and caught.value.servable == (0,)
    assert "servable rows of this call: 0" in str(caught.value)


def test_fault_b09_a_written_block_belongs_to_one_position_of_one_row():
    for pages, starts, message in (
        (
            [[1, 2, 0, 0], [3, 4, 2, 6]],
            None,
            "row 1: block 2 would be written as its block 2 and is also block 1 of row 0",
        ),
        (
            [[1, 2, 0, 0], [3, 4, 5, 3]],
            None,
            "row 1: block 3 would be written as its block 3 and is also block 0 of row 1",
        ),
        (
            [[1, 2, 0, 0], [2, 4, 5, 6]],
            [0, 32],
            "row 0: block 2 would be written as its block 1 and is also block 0 of row 1",
        ),
    ):
        with pytest.raises(errors.SharedBlock, match=message):
            admit(pages=np.array(pages), starts=starts)


def test_b03_cached_blocks_may_be_shared():
    rows = admit(pages=np.array([[9, 1, 0, 0], [9, 2, 3, 4]]), starts=[32, 32])
    assert [row.pages.tolist() for row in rows] == [[9, 1], [9, 2, 3, 4]]


def test_every_refusal_has_one_base():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20 and all(issubclass(kind, errors.PrefillError) for kind in kinds)

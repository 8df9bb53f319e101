"""What must not matter: where rows, slots and blocks lie, what padding and foreign memory hold, how a prompt is cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from runtime.reference.dense import token_by_token
from runtime.verification.comparison import relative_error
from runtime.verification.routes import Row
from tests.support.families import GEOMETRIES, WINDOWED
from tests.support.golden import Bench

# Single, batched and chunked passes, full ones and padded ones; 70 and 330 leave whole blocks of a pass empty.
LENGTHS = (5, 33, 70, 100, 128, 129, 330)
HUGE = 1e4


@pytest.fixture(scope="module", params=["float32", "declared", "windows"])
def bench(request):
    """Qwen3's form: every optional term but the bias; and the same with a window in one of three layers."""
    return (
        Bench("qwen3-upper-layers-windowed", "declared")
        if request.param == "windows"
        else Bench("qwen3", request.param)
    )


@pytest.fixture(scope="module", params=GEOMETRIES | WINDOWED)
def exact(request):
    return Bench(request.param)


def state(bench: Bench, rows: list[Row]) -> list[torch.Tensor]:
    """Keys and values of each row, all layers."""
    return [torch.cat([part.flatten() for layers in bench.cache(row).values() for part in layers]) for row in rows]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_s001_14_any_order_of_rows_and_slots_gives_every_row_the_same_bits(bench, seed):
    rows = bench.rows(LENGTHS)
    logits = bench.call(rows)
    before = state(bench, rows)
    drawn = np.random.default_rng(seed)
    order = drawn.permutation(len(rows)).tolist()
    slots = drawn.permutation(bench.module.KEY_VALUE_BLOCKS)[: len(rows)].tolist()
    again = bench.call([rows[index] for index in order], slots=slots)
    assert torch.equal(again, logits[order])
    assert same(state(bench, rows), before)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_blocks_give_the_same_bits(bench, seed):
    rows = bench.rows(LENGTHS)
    logits = bench.call(rows)
    before = state(bench, rows)
    blocks = np.random.default_rng(seed).permutation(bench.module.KEY_VALUE_BLOCKS)
    moved = [replace(row, pages=tuple(int(blocks[page]) for page in row.pages)) for row in rows]
    assert torch.equal(bench.call(moved), logits)
    assert same(state(bench, moved), before)


def test_b52_blocks_of_other_sequences_keep_every_bit(bench):
    bench.fill(3.5)
    rows = bench.rows(LENGTHS)
    owned = {page for row in rows for page in row.pages}
    foreign = [page for page in range(bench.module.KEY_VALUE_BLOCKS) if page not in owned]
    stale = [replace(row, pages=row.pages + tuple(foreign[:3])) for row in rows]  # a scheduler's leftovers
    bench.call(stale)
    stores = bench.everything()
    assert (stores[:, foreign] == 3.5).all()
    assert (stores[:, sorted(owned)] != 3.5).any()


def test_s003_23_blocks_of_a_cached_prefix_keep_every_bit(bench):
    (row,) = bench.rows([300])
    bench.fill(3.5)  # not what the prefix would give, so that writing it again shows
    bench.call([row], starts=[96])  # computed again from 64, the alignment
    stores = bench.everything()
    assert (stores[:, list(row.pages[:3])] == 3.5).all()
    assert (stores[:, list(row.pages[3:])] != 3.5).any()


@pytest.mark.parametrize("value", [HUGE, -HUGE])
def test_what_padding_tokens_embed_to_changes_no_bit(bench, value):
    rows = bench.rows(LENGTHS)  # without token 0, which is what padding holds
    logits = bench.call(rows)
    before = state(bench, rows)
    tensors = dict(bench.peer.tensors)
    embedding = tensors["model.embed_tokens.weight"].clone()
    embedding[0] = value * (-1.0) ** torch.arange(embedding.shape[1])
    other = Bench(bench.family, bench.device.precision)
    other.load(tensors | {"model.embed_tokens.weight": embedding})
    assert torch.equal(other.call(rows), logits)
    assert same(state(other, rows), before)


@pytest.mark.parametrize("value", [HUGE, -HUGE])
def test_s003_40_what_foreign_blocks_and_block_tails_hold_changes_no_bit(bench, value):
    rows = bench.rows(LENGTHS)
    bench.fill(0.0)
    logits = bench.call(rows)
    before = state(bench, rows)
    bench.fill(value)
    assert torch.equal(bench.call(rows), logits)
    assert same(state(bench, rows), before)


def test_s003_40_what_a_cached_blocks_masked_positions_hold_changes_no_bit(bench):
    """Every position past a chunk's own is masked, whatever an earlier, longer sequence left there."""
    (row,) = bench.rows([300])
    longer = Row(0, row.tokens[:128] + bench.rows([172], seed=8)[0].tokens, row.pages)
    bench.fill(0.0)
    bench.call([row], ends=[128])
    logits = bench.call([row], starts=[128])
    bench.call([longer])
    assert torch.equal(bench.call([row], starts=[128]), logits)


def test_s002_13_a_later_token_changes_no_bit_of_an_earlier_position(bench):
    (row,) = bench.rows([300])
    bench.call([row])
    before = bench.cache(row)
    changed = replace(row, tokens=row.tokens[:200] + tuple(token % 255 + 1 for token in row.tokens[200:]))
    bench.call([changed])
    after = bench.cache(row)
    for name in before:
        for one, other in zip(before[name], after[name]):
            assert torch.equal(one[:, :200], other[:, :200])
            assert not torch.equal(one[:, 200:], other[:, 200:])


@pytest.mark.parametrize("cuts", [(), (64,), (128,), (64, 128, 192, 256), (192, 256)])
def test_s002_10_any_aligned_cuts_equal_token_by_token(exact, cuts):
    """S002-15: only the residual stream has a row for each token, and no scratch of one cut shows in the next."""
    (row,) = exact.rows([300])
    wanted, cache = token_by_token(exact.geometry, exact.peer.tensors, row.tokens)
    for start, end in zip((0, *cuts), cuts):
        exact.call([row], ends=[end], starts=[start], final=False)
    logits = exact.call([row], starts=[cuts[-1] if cuts else 0])
    assert relative_error(logits[0], wanted[-1]) <= 1e-5
    ours = exact.cache(row)
    assert relative_error(torch.stack(ours["keys"]), torch.stack(cache.keys)) <= 1e-5
    assert relative_error(torch.stack(ours["values"]), torch.stack(cache.values)) <= 1e-5


def test_b15_a_row_alone_equals_the_same_row_in_a_wave(exact):
    rows = exact.rows([90, 128, 70, 101, 66], seed=2)
    together = exact.call(rows)
    state_together = state(exact, rows)
    for row, logits, cache in zip(rows, together, state_together):
        assert relative_error(exact.call([row])[0], logits) <= 1e-5
        assert relative_error(state(exact, [row])[0], cache) <= 1e-5

"""Attention and the paged cache: the mathematics, what may not be read, and what the library would let pass."""

from __future__ import annotations

import math

import pytest
import torch

import runtime.emulator as ttnn
from tests.support.emulated import attention_program, bits, drawn, open_checked, rows, tiles

SCALE = 0.125


@pytest.fixture
def device() -> ttnn.Device:
    return open_checked("float32")


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, start: int = 0) -> torch.Tensor:
    """Softmax attention written out: query i stands at position start + i."""
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-1, -2) * SCALE
    positions = torch.arange(query.shape[2])[:, None] + start
    scores = scores.masked_fill(torch.arange(key.shape[2]) > positions, -math.inf)
    return scores.softmax(-1) @ value


def attend(query: ttnn.Tensor, key: ttnn.Tensor, value: ttnn.Tensor, **options) -> ttnn.Tensor:
    options.setdefault("program_config", attention_program())
    return ttnn.transformer.scaled_dot_product_attention(query, key, value, is_causal=True, scale=SCALE, **options)


def close(found: ttnn.Tensor, expected: torch.Tensor) -> bool:
    return bool((ttnn.to_torch(found) - expected).abs().max() <= 1e-5 * expected.abs().max())


@pytest.mark.parametrize("tokens", (32, 96, 100))
def test_causal_attention(device: ttnn.Device, tokens: int) -> None:
    values = drawn(2, 4, tokens, 64), drawn(2, 2, tokens, 64, seed=1), drawn(2, 2, tokens, 64, seed=2)
    tensors = [tiles(device, part) for part in values]

    assert close(attend(*tensors), reference(*values))
    joined = attend(*tensors, output_concat_heads=True)
    assert torch.equal(ttnn.to_torch(joined), ttnn.to_torch(ttnn.experimental.nlp_concat_heads(attend(*tensors))))


@pytest.mark.parametrize(
    "bounds", ([0, 64, 128], [0, 32, 128], [0, 1, 33, 100, 128], [0, 128], [0, 64, 64, 128], [0, 0, 96, 128, 128, 128])
)
def test_windows_are_attended_apart(device: ttnn.Device, bounds: list[int]) -> None:
    values = drawn(1, 4, 128, 64), drawn(1, 2, 128, 64, seed=1), drawn(1, 2, 128, 64, seed=2)
    found = attend(*[tiles(device, part) for part in values], cu_window_seqlens=rows(device, bounds, ttnn.int32))
    windows = [
        reference(*[part[:, :, low:high] for part in values]) for low, high in zip(bounds, bounds[1:]) if low < high
    ]

    assert close(found, torch.cat(windows, 2))


@pytest.mark.parametrize("bounds", ([0, 64], [1, 128], [0, 96, 64, 128], [0, 160]))
def test_window_bounds_must_rise_from_zero_to_the_end(device: ttnn.Device, bounds: list[int]) -> None:
    tensors = (
        tiles(device, drawn(1, 4, 128, 64)),
        tiles(device, drawn(1, 2, 128, 64)),
        tiles(device, drawn(1, 2, 128, 64)),
    )
    with pytest.raises(ttnn.EmulatorError, match="must rise from 0 to 128"):
        attend(*tensors, cu_window_seqlens=rows(device, bounds, ttnn.int32))


def test_a_window_does_not_depend_on_its_neighbours(device: ttnn.Device) -> None:
    values = [drawn(1, 4, 128, 64), drawn(1, 2, 128, 64, seed=1), drawn(1, 2, 128, 64, seed=2)]
    bounds = rows(device, [0, 64, 128], ttnn.int32)
    before = bits(attend(*[tiles(device, part) for part in values], cu_window_seqlens=bounds))
    others = [torch.cat((torch.full_like(part[:, :, :64], 1e4), part[:, :, 64:]), 2) for part in values]
    after = bits(attend(*[tiles(device, part) for part in others], cu_window_seqlens=bounds))
    swapped = [torch.cat((part[:, :, 64:], part[:, :, :64]), 2) for part in values]
    exchanged = bits(attend(*[tiles(device, part) for part in swapped], cu_window_seqlens=bounds))

    assert torch.equal(before[:, :, 64:], after[:, :, 64:])
    assert torch.equal(before, torch.cat((exchanged[:, :, 64:], exchanged[:, :, :64]), 2))


class Paged:
    """A sequence of keys and values laid into a shuffled paged cache of 32-token blocks."""

    def __init__(self, device: ttnn.Device, tokens: int, seed: int = 5, filler: float = 0.0):
        self.device, self.tokens = device, tokens
        self.key, self.value = drawn(1, 2, tokens, 64, seed=1), drawn(1, 2, tokens, 64, seed=2)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
        self.table = order[:16].clone()
        self.used = order[: tokens // 32]
        self.table[tokens // 32 :] = order[0]
        self.caches = [tiles(device, torch.full((24, 2, 32, 64), filler)) for _ in range(2)]
        fill = rows(device, self.used[None], ttnn.int32)
        for cache, part in zip(self.caches, (self.key, self.value)):
            ttnn.experimental.paged_fill_cache(cache, tiles(device, part), fill)

    def attend(self, query: torch.Tensor, start: int, chunks: tuple[int, int] = (32, 32), table=None, by_tensor=True):
        where = (
            {"chunk_start_idx_tensor": rows(self.device, [start], ttnn.int32)}
            if by_tensor
            else {"chunk_start_idx": start}
        )
        return ttnn.transformer.chunked_scaled_dot_product_attention(
            tiles(self.device, query),
            *self.caches,
            rows(self.device, (self.table if table is None else table)[None], ttnn.int32),
            scale=SCALE,
            program_config=attention_program(*chunks),
            **where,
        )


@pytest.mark.parametrize("start", (0, 64, 128))
@pytest.mark.parametrize("by_tensor", (True, False))
def test_a_chunk_attends_to_the_cache_up_to_itself(device: ttnn.Device, start: int, by_tensor: bool) -> None:
    paged, query = Paged(device, 256), drawn(1, 4, 128, 64)
    expected = reference(query, paged.key[:, :, : start + 128], paged.value[:, :, : start + 128], start)

    assert close(paged.attend(query, start, (64, 64), by_tensor=by_tensor), expected)


def test_pages_may_lie_anywhere(device: ttnn.Device) -> None:
    query = drawn(1, 4, 96, 64)

    assert torch.equal(*[bits(Paged(device, 256, seed=seed).attend(query, 128)) for seed in (5, 6)])


def test_finite_garbage_behind_the_mask_changes_no_bit(device: ttnn.Device) -> None:
    """Positions behind the last query, in its own key chunk and in blocks behind that, are masked by an addition."""
    paged, query = Paged(device, 256), drawn(1, 4, 64, 64)
    before = bits(paged.attend(query, 0, (64, 128)))
    for block in paged.used[2:]:
        for cache in paged.caches:
            spoilt = tiles(device, torch.full((1, 2, 32, 64), -1e4))
            ttnn.experimental.paged_fill_cache(cache, spoilt, rows(device, [[int(block)]], ttnn.int32))

    assert torch.equal(before, bits(paged.attend(query, 0, (64, 128))))


@pytest.mark.parametrize(("poisoned", "reached"), ((1, True), (3, True), (4, False)))
@pytest.mark.parametrize("part", (0, 1))
def test_nan_passes_through_the_mask_as_far_as_key_chunks_are_visited(
    device: ttnn.Device, poisoned: int, reached: bool, part: int
) -> None:
    paged, query = Paged(device, 256), drawn(1, 4, 64, 64)
    before = bits(paged.attend(query, 0, (64, 128)))
    spoilt = tiles(device, torch.full((1, 2, 32, 64), math.nan))
    ttnn.experimental.paged_fill_cache(
        paged.caches[part], spoilt, rows(device, [[int(paged.used[poisoned])]], ttnn.int32)
    )
    after = paged.attend(query, 0, (64, 128))

    assert ttnn.to_torch(after).isnan().all() if reached else torch.equal(bits(after), before)


def test_nan_does_not_reach_query_chunks_that_do_not_visit_it(device: ttnn.Device) -> None:
    paged, query = Paged(device, 256), drawn(1, 4, 64, 64)
    spoilt = tiles(device, torch.full((1, 2, 32, 64), math.nan))
    ttnn.experimental.paged_fill_cache(paged.caches[0], spoilt, rows(device, [[int(paged.used[1])]], ttnn.int32))
    found = ttnn.to_torch(paged.attend(query, 0, (32, 32)))

    assert not found[:, :, :32].isnan().any() and found[:, :, 32:].isnan().all()


def test_nan_passes_through_the_causal_mask_inside_a_key_chunk(device: ttnn.Device) -> None:
    query, key, value = drawn(1, 4, 128, 64), drawn(1, 2, 128, 64, seed=1), drawn(1, 2, 128, 64, seed=2)
    value[0, 0, 100] = math.nan
    found = ttnn.to_torch(attend(tiles(device, query), tiles(device, key), tiles(device, value)))

    assert not found[:, :, :96].isnan().any()
    assert (
        found[0, :2, 96:].isnan().all() and not found[0, 2:].isnan().any()
    )  # all rows of the chunk, of this head only


def test_chunks_agree_with_one_pass(device: ttnn.Device) -> None:
    paged, query = Paged(device, 256), drawn(1, 4, 256, 64)
    whole = ttnn.to_torch(attend(*[tiles(device, part) for part in (query, paged.key, paged.value)]))
    parts = [ttnn.to_torch(paged.attend(query[:, :, at : at + 64], at, (64, 64))) for at in range(0, 256, 64)]

    assert (torch.cat(parts, 2) - whole).abs().max() <= 1e-5 * whole.abs().max()


def test_a_batch_reads_its_own_rows_of_the_page_table(device: ttnn.Device) -> None:
    paged, query = Paged(device, 256), drawn(2, 4, 64, 64)
    tables = torch.stack((paged.table, paged.table.roll(-2)))
    both = ttnn.transformer.chunked_scaled_dot_product_attention(
        tiles(device, query),
        *paged.caches,
        rows(device, tables, ttnn.int32),
        64,
        scale=SCALE,
        program_config=attention_program(),
    )
    alone = [paged.attend(query[row : row + 1], 64, table=tables[row]) for row in (0, 1)]

    assert torch.equal(ttnn.to_torch(both), torch.cat([ttnn.to_torch(part) for part in alone]))


@pytest.mark.parametrize(
    ("start", "chunks", "rule"),
    (
        (16, (32, 32), "start 16 must be a multiple"),
        (32, (64, 32), "start 32 must be a multiple"),
        (32, (32, 64), "start 32 must be a multiple"),
        (-32, (32, 32), "start -32 must be a multiple"),
        (480, (32, 32), "go beyond the 512 tokens"),
    ),
)
@pytest.mark.parametrize("by_tensor", (True, False))
def test_a_start_is_checked_also_when_it_is_on_the_device(
    device: ttnn.Device, start, chunks, rule: str, by_tensor: bool
) -> None:
    paged = Paged(device, 256)
    with pytest.raises(ttnn.EmulatorError, match=rule):
        paged.attend(drawn(1, 4, 64, 64), start, chunks, by_tensor=by_tensor)


@pytest.mark.parametrize("entry", (-1, 24, 0x7FC07FC0))
def test_a_page_that_is_read_must_exist(device: ttnn.Device, entry: int) -> None:
    paged, query = Paged(device, 256), drawn(1, 4, 64, 64)
    unread = paged.table.clone()
    unread[4:] = entry
    assert torch.equal(bits(paged.attend(query, 0, (64, 128), table=unread)), bits(paged.attend(query, 0, (64, 128))))
    unread[3] = entry  # in the key chunk of 128 that the last query visits
    with pytest.raises(ttnn.EmulatorError, match=f"entry {entry} is outside the cache of 24 blocks"):
        paged.attend(query, 0, (64, 128), table=unread)


def test_a_scale_must_be_a_float32(device: ttnn.Device) -> None:
    paged = Paged(device, 64)
    with pytest.raises(TypeError, match="float32"):
        ttnn.transformer.chunked_scaled_dot_product_attention(
            tiles(device, drawn(1, 4, 64, 64)),
            *paged.caches,
            rows(device, paged.table[None], ttnn.int32),
            0,
            scale=96**-0.5,
        )


def test_filling_writes_the_named_blocks_and_no_others() -> None:
    device = open_checked()
    cache, new = tiles(device, torch.full((8, 2, 32, 64), 7.0), ttnn.bfloat8_b), tiles(
        device, drawn(1, 2, 128, 64), ttnn.bfloat8_b
    )
    returned = ttnn.experimental.paged_fill_cache(
        cache, new, rows(device, [[0] * 4, [5, -1, 2, -1]], ttnn.int32), batch_idx=1
    )
    found, written = ttnn.to_torch(cache), ttnn.to_torch(new)

    assert returned.buffer_address() == cache.buffer_address()
    assert torch.equal(found[5], written[0, :, :32]) and torch.equal(found[2], written[0, :, 64:96])
    assert (found[[0, 1, 3, 4, 6, 7]] == 7).all()


@pytest.mark.parametrize(
    ("table", "rule"),
    (([0, 8], "entry 8 is outside"), ([0, -2], "entry -2 is outside"), ([3, 3], "block 3 is written 2 times")),
)
def test_filling_a_wrong_block_is_refused_and_writes_nothing(table: list[int], rule: str) -> None:
    device = open_checked()
    cache = tiles(device, torch.zeros(8, 2, 32, 64))
    with pytest.raises(ttnn.EmulatorError, match=rule):
        ttnn.experimental.paged_fill_cache(cache, tiles(device, drawn(1, 2, 64, 64)), rows(device, [table], ttnn.int32))

    assert (ttnn.to_torch(cache) == 0).all()

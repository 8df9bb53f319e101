"""Sliding windows and sinks in attention: the mathematics, what is visited and must exist, what may change no bit."""

from __future__ import annotations

import math

import pytest
import torch

import runtime.emulator as ttnn
from tests.support.emulated import attention_program, bits, drawn, open_checked, rows, tiles

SCALE = 0.125
STREAMING = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)
ACCUMULATING = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2, fp32_dest_acc_en=True)


@pytest.fixture
def device() -> ttnn.Device:
    return open_checked("float32")


def reference(query, key, value, *, window: int = 0, sink: torch.Tensor | None = None, start: int = 0) -> torch.Tensor:
    """Written out: each row of scores selected by position, the sink as one more column that has no value."""
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-1, -2) * SCALE
    at, seen = torch.arange(query.shape[2])[:, None] + start, torch.arange(key.shape[2])
    hidden = (seen > at) | (seen <= at - window if window else torch.zeros(()).bool())
    weights = scores.masked_fill(hidden, -math.inf).exp()
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink * SCALE).exp()
    return weights / total @ value


def inputs(tokens: int, heads: int = 4) -> list[torch.Tensor]:
    return [drawn(1, count, tokens, 64, seed=seed) for seed, count in enumerate((heads, 2, 2))]


def attend(device: ttnn.Device, values, chunks=(32, 32), sink=None, window=None, compute=ACCUMULATING) -> ttnn.Tensor:
    return ttnn.transformer.scaled_dot_product_attention(
        *[tiles(device, part) for part in values],
        is_causal=True,
        scale=SCALE,
        program_config=attention_program(*chunks),
        compute_kernel_config=compute,
        sliding_window_size=window,
        attention_sink=None if sink is None else tiles(device, sink),
    )


def close(found: ttnn.Tensor, expected: torch.Tensor) -> bool:
    return bool((ttnn.to_torch(found) - expected).abs().max() <= 1e-5 * expected.abs().max())


class Paged:
    """160 tokens of keys and values in a shuffled cache of blocks of 32, all its blocks filled with `filler` before."""

    def __init__(self, device: ttnn.Device, filler: float = 0.0, block: int = 32):
        self.device, self.values = device, inputs(192)
        order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
        self.table = order[: 192 // block].clone()
        self.table = torch.cat((self.table, order[:1].expand(8 - len(self.table))))
        self.caches = [tiles(device, torch.full((16, 2, block, 64), filler)) for _ in range(2)]
        for cache, part in zip(self.caches, self.values[1:]):
            table = rows(device, self.table[None, : 192 // block], ttnn.int32)
            ttnn.experimental.paged_fill_cache(cache, tiles(device, part), table)

    def spoil(self, page: int, with_value: float) -> None:
        for cache in self.caches:
            block = tiles(self.device, torch.full((1, 2, 32, 64), with_value))
            ttnn.experimental.paged_fill_cache(cache, block, rows(self.device, [[int(self.table[page])]], ttnn.int32))

    def attend(
        self, start: int, tokens: int, window=None, sink=None, table=None, chunks=(32, 32), compute=ACCUMULATING
    ):
        return ttnn.transformer.chunked_scaled_dot_product_attention(
            tiles(self.device, self.values[0][:, :, start : start + tokens]),
            *self.caches,
            rows(self.device, (self.table if table is None else table)[None], ttnn.int32),
            chunk_start_idx_tensor=rows(self.device, [start], ttnn.int32),
            scale=SCALE,
            program_config=attention_program(*chunks),
            compute_kernel_config=compute,
            sliding_window_size=window,
            attention_sink=None if sink is None else tiles(self.device, sink),
        )


@pytest.mark.parametrize("window", (1, 2, 31, 32, 33, 64, 95, 96, 97, 1000))
@pytest.mark.parametrize("sunk", (False, True))
@pytest.mark.parametrize("compute", (STREAMING, ACCUMULATING))
def test_a_token_sees_its_window_and_no_more(device: ttnn.Device, window: int, sunk: bool, compute) -> None:
    values, sink = inputs(96), drawn(1, 4, 1, 1, seed=9) * 8 if sunk else None

    assert close(attend(device, values, (64, 32), sink, window, compute), reference(*values, window=window, sink=sink))


def test_a_window_of_zero_or_none_is_no_window(device: ttnn.Device) -> None:
    values = inputs(96)

    assert torch.equal(bits(attend(device, values, window=0)), bits(attend(device, values)))


@pytest.mark.parametrize("heads", (2, 8))
def test_the_sink_is_scaled_as_scores_are_and_takes_its_share(device: ttnn.Device, heads: int) -> None:
    values, sink = inputs(64, heads), drawn(1, heads, 1, 1, seed=9) * 20
    found = attend(device, values, sink=sink)

    assert close(found, reference(*values, sink=sink))
    assert not close(found, reference(*values, sink=sink / SCALE)) and not close(found, reference(*values))


def test_a_batch_shares_windows_and_sinks(device: ttnn.Device) -> None:
    values, others, sink = inputs(96), inputs(96), drawn(1, 4, 1, 1)
    others = [part.flip(2) for part in others]
    both = attend(device, [torch.cat(pair) for pair in zip(values, others)], sink=sink, window=40)
    alone = [ttnn.to_torch(attend(device, part, sink=sink, window=40)) for part in (values, others)]

    assert (ttnn.to_torch(both) - torch.cat(alone)).abs().max() <= 1e-6


@pytest.mark.parametrize("window", (1, 32, 33, 64, 150))
@pytest.mark.parametrize("chunks", ((32, 32), (32, 64), (64, 32)))
def test_chunks_agree_with_one_pass(device: ttnn.Device, window: int, chunks: tuple[int, int]) -> None:
    paged, sink = Paged(device), drawn(1, 4, 1, 1, seed=9) * 8
    parts = [ttnn.to_torch(paged.attend(at, 64, window, sink, chunks=chunks)) for at in (0, 64, 128)]
    expected = reference(*paged.values, window=window, sink=sink)

    assert (torch.cat(parts, 2) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("compute", (STREAMING, ACCUMULATING))
def test_finite_garbage_in_front_of_a_window_changes_no_bit(device: ttnn.Device, compute) -> None:
    paged = Paged(device)
    before = bits(paged.attend(128, 64, 33, compute=compute))
    for page in (0, 1, 2):
        paged.spoil(page, 1e4)

    assert torch.equal(before, bits(paged.attend(128, 64, 33, compute=compute)))


@pytest.mark.parametrize(("page", "streamed", "accumulated"), ((0, False, True), (2, False, True), (3, True, True)))
def test_nan_in_front_of_a_window_passes_where_its_chunk_is_visited(
    device: ttnn.Device, page: int, streamed: bool, accumulated: bool
) -> None:
    """With a window of 32 and less, the first of the queries at 128 reaches back into page 3."""
    for compute, reached in ((STREAMING, streamed), (ACCUMULATING, accumulated)):
        paged = Paged(device)
        before = paged.attend(128, 32, 2, compute=compute)
        paged.spoil(page, math.nan)
        after = paged.attend(128, 32, 2, compute=compute)

        assert ttnn.to_torch(after).isnan().all() if reached else torch.equal(bits(before), bits(after))


@pytest.mark.parametrize("entry", (-1, 16))
def test_pages_must_exist_as_far_back_as_chunks_are_visited(device: ttnn.Device, entry: int) -> None:
    paged = Paged(device)
    missing = paged.table.clone()
    missing[:3] = entry
    expected = reference(*paged.values, window=33)[:, :, 128:160]

    assert close(paged.attend(128, 32, 33, table=missing, compute=STREAMING), expected)
    with pytest.raises(ttnn.EmulatorError, match=f"entry {entry} is outside"):
        paged.attend(128, 32, 33, table=missing, compute=ACCUMULATING)
    with pytest.raises(ttnn.EmulatorError, match=f"entry {entry} is outside"):
        paged.attend(128, 32, 34, table=missing, compute=STREAMING)


def test_nothing_is_selected_a_mask_is_added(device: ttnn.Device) -> None:
    values = inputs(96)
    values[2][0, 0, 0] = math.inf  # in front of all windows of the last tile, but in its visited chunks
    found = ttnn.to_torch(attend(device, values, (32, 32), window=8))

    assert found[0, :2, 64:].isnan().all() and found[0, 2:].isfinite().all()


@pytest.mark.parametrize(
    ("options", "rule"),
    (
        ({"sink": torch.zeros(1, 2, 1, 1)}, r"a sink must be \[1, 4, 1, 1\]"),
        ({"sink": torch.zeros(1, 4, 1, 32)}, r"a sink must be \[1, 4, 1, 1\]"),
        ({"window": 2**31}, "less than 2\\^31 tokens"),
    ),
)
def test_wrong_sinks_and_windows_are_refused(device: ttnn.Device, options: dict, rule: str) -> None:
    with pytest.raises(ttnn.EmulatorError, match=rule):
        attend(device, inputs(64), **options)


def test_packed_windows_exclude_both(device: ttnn.Device) -> None:
    tensors = [tiles(device, part) for part in inputs(64)]
    for option in ({"sliding_window_size": 32}, {"attention_sink": tiles(device, torch.zeros(1, 4, 1, 1))}):
        with pytest.raises(ttnn.EmulatorError, match="packed windows exclude"):
            ttnn.transformer.scaled_dot_product_attention(
                *tensors, is_causal=True, cu_window_seqlens=rows(device, [0, 64], ttnn.int32), **option
            )

"""The policy that plans are compared with: every number that the contract gives for the runtime it stands for."""

from __future__ import annotations

import pytest

from generator.choosing import power_of_two
from generator.choosing.power_of_two import UNSET, Limits, Pass, chunk_size, padded_length, padded_rows, plan

LIMITS = Limits(context=8192, chunk=2048)


def table(lengths, cached=None, limits=LIMITS, **options):
    return plan(lengths, cached or [0] * len(lengths), limits, **options)


def waves(lengths, cached=None, limits=LIMITS, **options):
    return [(p.variant, len(p.source_rows), p.rows) for p in table(lengths, cached, limits, **options).passes]


@pytest.mark.parametrize("cached", [0, 32, 64])
@pytest.mark.parametrize(
    ("tokens", "padded"),
    [(n, 128) for n in (1, 31, 32, 33, 127, 128)]
    + [(129, 1024), (1024, 1024), (1025, 2048), (2048, 2048), (2049, 4096), (4097, 8192)],
)
def test_s000_09_lengths_are_128_1024_and_powers_of_two_of_what_is_not_cached(tokens, padded, cached):
    limits = Limits(context=1 << 14, chunk=1 << 13)
    assert padded_length(tokens) == padded
    assert table([cached + tokens], [cached], limits).passes == (
        Pass("chunked" if cached else "single", (0,), 1, padded, cached),
    )


@pytest.mark.parametrize(
    ("rows", "padded"), [(1, 1), (2, 2), (3, 4), (15, 16), (16, 16), (30, 32), (32, 32), (33, None)]
)
def test_s000_10_rows_are_padded_to_a_power_of_two(rows, padded):
    assert padded_rows(rows) == padded


def test_s000_10_a_bucket_is_one_wave_or_singles_and_is_never_split():
    assert waves([100] * 3) == [("batched", 3, 4)]
    assert waves([100] * 15) == [("batched", 15, 16)]
    assert waves([100] * 30) == [("batched", 30, 32)]
    assert waves([100] * 33) == [("single", 1, 1)] * 33
    assert waves([100] * 9, limits=Limits(8192, 2048, lane_rows=12)) == [("single", 1, 1)] * 9
    assert waves([100] * 32, limits=Limits(8192, 2048, model_rows=8)) == [("single", 1, 1)] * 32


def test_s000_11_what_makes_a_bucket_singles():
    long = Limits(context=8192, chunk=4096)
    assert waves([2000] * 32, limits=long) == [("batched", 32, 32)]
    assert waves([4000] * 32, limits=long) == [("single", 1, 1)] * 32  # 32 x 4096 = 131072
    assert waves([4000] * 16, limits=long) == [("batched", 16, 16)]
    assert waves([4000] * 2) == [("chunked", 1, 1)] * 4  # over the chunk limit of 2048
    assert waves([100, 100], batching=False) == [("single", 1, 1)] * 2
    assert waves([100, 132], cached=[0, 32]) == [("single", 1, 1), ("chunked", 1, 1)]
    no_output = Limits(8192, 2048, batched_output=False)
    assert waves([100, 100], limits=no_output, sampling=True) == [("single", 1, 1)] * 2
    assert waves([100, 100], limits=no_output) == [("batched", 2, 2)]


def test_s000_12_and_14_source_rows_name_the_rows_in_their_order():
    assert table([33, 128, 129]).passes == (Pass("batched", (0, 1), 2, 128, 0), Pass("single", (2,), 1, 1024, 0))
    assert table([100, 90, 80]).passes == (Pass("batched", (0, 1, 2), 4, 128, 0),)


def test_s000_13_waves_are_switched_off_for_one_call():
    assert [waves([9, 9], batching=on)[0][0] for on in (True, False, True)] == ["batched", "single", "batched"]


def test_s000_15_and_16_blocks_past_a_prompt_and_of_padding_rows_are_unset():
    lengths = [33, 128, 1]
    (wave,) = table(lengths).passes
    filled = [wave.fill_blocks(row, lengths, 32) for row in range(wave.rows)]
    assert filled == [(0, 1, UNSET, UNSET), (0, 1, 2, 3), (0, UNSET, UNSET, UNSET), (UNSET,) * 4]


def test_s000_17_and_21_a_cached_prompt_of_4129_runs_two_chunks_at_absolute_positions():
    first, second = table([4129], [96]).passes
    assert (first.start, second.start) == (96, 2144)
    assert first.fill_blocks(0, [4129], 32) == tuple(range(3, 67))
    assert second.fill_blocks(0, [4129], 32) == (*range(67, 130), UNSET)
    assert (first.last_token(0, [4129]), second.last_token(0, [4129])) == (None, 4128 - 2144)


def test_s000_18_chunks_stop_at_the_one_that_holds_the_last_token():
    assert [(p.tokens, p.start) for p in table([4097]).passes] == [(2048, 0), (2048, 2048), (2048, 4096)]
    assert chunk_size(8192, 4096) == 4096 and chunk_size(8192, 6144) == 4096 and chunk_size(2048, 1024) is None


def test_b05_today_a_chunk_of_1024_fails_when_1100_tokens_arrive():
    with pytest.raises(power_of_two.NoChunk, match="row 0: no multiple of 2048 up to 1024 divides .* 2048"):
        table([1100], limits=Limits(8192, 1024))


@pytest.mark.parametrize("length", [2049, 4095, 4096, 4097, 6144, 8192])
def test_s000_19_exactly_the_last_chunk_holds_the_last_token(length):
    held = [chunk.last_token(0, [length]) is not None for chunk in table([length]).passes]
    assert held == [False] * (len(held) - 1) + [True]


def test_s000_20_a_cached_prefix_is_chunked_even_in_one_chunk():
    assert table([160], [32]).passes == (Pass("chunked", (0,), 1, 128, 32),)


def test_s000_22_widths_of_the_schedulers_table():
    assert table([160], table_width=256) == table([160], table_width=5)
    for refusal, lengths, cached, width in (
        (power_of_two.TableTooNarrow, [160], [0], 4),
        (power_of_two.OverCapacity, [8193], [0], 300),
        (power_of_two.PaddedRowTooWide, [8192], [4064], 256),
    ):
        with pytest.raises(refusal, match="row 0: "):
            table(lengths, cached, table_width=width)
    assert Limits(context=8192, chunk=2048).table_width == 264


def test_s000_23_today_a_fully_cached_row_has_no_pass():
    made = table([32, 40], [32, 0])
    assert made.empty == (0,) and made.passes == (Pass("single", (1,), 1, 128, 0),)


def test_s000_24_equal_numbers_give_equal_plans():
    assert table([33, 4129, 128], [0, 96, 0]) == table([33, 4129, 128], [0, 96, 0])


@pytest.mark.parametrize(
    ("context", "chunk", "length", "cached"),
    [(40960, 4096, 33000, 0), (5120, 2048, 5000, 0), (8192, 2048, 8192, 4064), (131072, 4096, 131072, 65504)],
)
def test_b01_today_four_requests_that_fit_are_refused_with_their_whole_call(context, chunk, length, cached):
    with pytest.raises(power_of_two.PaddedRowTooWide) as caught:
        plan([7, length], [0, cached], Limits(context, chunk))
    assert caught.value.row == 1


def test_b02_today_9_33_and_32_wide_rows_are_singles():
    assert len(waves([128] * 9, limits=Limits(8192, 4096, model_rows=8))) == 9
    assert len(waves([128] * 33)) == 33
    assert len(waves([4096] * 32, limits=Limits(8192, 4096))) == 32


def test_b03_today_rows_of_a_common_prefix_run_alone():
    assert waves([100] * 8, cached=[64] * 8) == [("chunked", 1, 1)] * 8


def test_b04_today_129_tokens_run_as_1024():
    assert table([129]).passes[0].computed == 1024

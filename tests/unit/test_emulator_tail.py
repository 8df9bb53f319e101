"""Numbers of the operations that follow the body, and of the views of chunked waves."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import runtime.emulator as ttnn
from runtime.emulator.errors import EmulatorError
from runtime.tables import Board

BOARD = Board("n150", "wormhole_b0", (8, 8), 12, 1072693184, 32, 1393312, 1499136)
ROWS = 32


@pytest.fixture
def device() -> Any:
    device = ttnn.open_device(board=BOARD)
    device.check_representable = True
    return device


def tiles(device: Any, values: torch.Tensor, dtype: Any = ttnn.bfloat16) -> Any:
    return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=device)


def rows(device: Any, values: torch.Tensor, dtype: Any) -> Any:
    return ttnn.from_torch(values, dtype, device=device)


def draw(
    device: Any, scores: Any, k: Any = 32, p: Any = 1.0, inverse_temperature: Any = 1.0, **options: Any
) -> list[int]:
    """Tokens (100 + place) drawn from scores [rows, candidates]; the choices are for all rows or one for each."""
    values = torch.as_tensor(scores, dtype=torch.float32)
    count, width = values.shape
    indices = torch.arange(100, 100 + width).expand(1, 1, count, width)
    choice = [torch.as_tensor(value).expand(count) for value in (k, p, inverse_temperature)]
    types = (ttnn.uint32, ttnn.bfloat16, ttnn.bfloat16)
    tokens = ttnn.sampling(
        tiles(device, values[None, None]),
        rows(device, indices, ttnn.uint32),
        *[rows(device, value, dtype) for value, dtype in zip(choice, types)],
        **options,
    )
    return ttnn.to_torch(tokens).flatten().tolist()


def random_scores(count: int = ROWS, width: int = 32, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


# --- candidates ------------------------------------------------------------------------------------------------------


def test_topk_gives_equal_scores_by_ascending_index_also_at_its_last_place(device: Any) -> None:
    scores = torch.zeros(1, 1, 32, 320)
    scores[..., 100:300:7] = 1.0  # 29 of them, so 3 of the 291 zeros are taken

    values, indices = (ttnn.to_torch(tensor) for tensor in ttnn.topk(tiles(device, scores), k=32, dim=-1))

    expected = [*range(100, 300, 7), 0, 1, 2]
    assert indices[0, 0].tolist() == [expected] * 32
    assert values[0, 0].float().tolist() == [[1.0] * 29 + [0.0] * 3] * 32


@pytest.mark.parametrize(("width", "dtype"), [(308, torch.uint16), (65536, torch.uint16), (65537, torch.uint32)])
def test_topk_is_the_start_of_a_stable_descending_sort(device: Any, width: int, dtype: torch.dtype) -> None:
    scores = random_scores(2, width).round(decimals=1).bfloat16().float()[None, None]
    expected = scores.sort(dim=-1, descending=True, stable=True)

    values, indices = (ttnn.to_torch(tensor) for tensor in ttnn.topk(tiles(device, scores), k=32))

    assert torch.equal(values.float(), expected.values[..., :32])
    assert torch.equal(indices.long(), expected.indices[..., :32]) and indices.dtype is dtype


def test_topk_puts_nan_first_and_the_rest_in_order(device: Any) -> None:
    scores = torch.arange(64.0).repeat(1, 1, 32, 1)
    scores[..., 5] = math.nan

    _, indices = ttnn.topk(tiles(device, scores), k=4)

    assert ttnn.to_torch(indices)[0, 0, 0].tolist() == [5, 63, 62, 61]


def test_the_first_candidate_is_what_argmax_finds(device: Any) -> None:
    scores = random_scores(ROWS, 49152).round()[None, None]
    _, indices = ttnn.topk(tiles(device, scores), k=32)
    found = ttnn.argmax(rows(device, scores, ttnn.bfloat16), dim=-1)

    assert torch.equal(ttnn.to_torch(indices)[..., 0].long(), ttnn.to_torch(found).long())


@pytest.mark.parametrize(
    ("value", "source", "target", "message"),
    [
        (65536, ttnn.uint32, ttnn.uint16, "65536 does not fit UINT16"),
        (-1, ttnn.int32, ttnn.uint32, "-1 does not fit UINT32"),
        (2**31, ttnn.uint32, ttnn.int32, "2147483648 does not fit INT32"),
    ],
)
def test_a_cast_between_integers_keeps_every_value_or_is_refused(
    device: Any, value: int, source: Any, target: Any, message: str
) -> None:
    kept = ttnn.typecast(tiles(device, torch.tensor([[7, 9]]), source), target)
    assert ttnn.to_torch(kept).tolist() == [[7, 9]] and kept.dtype is target

    with pytest.raises(EmulatorError, match=message):
        ttnn.typecast(tiles(device, torch.tensor([[7, value]]), source), target)


# --- draws -----------------------------------------------------------------------------------------------------------


def test_b61_k_of_one_is_the_exact_argmax_whatever_p_and_temperature(device: Any) -> None:
    scores = random_scores()
    scores[3] = 2.0  # all equal: the first
    likeliest = [100 + place for place in scores.argmax(-1).tolist()]

    for seed in range(5):
        assert draw(device, scores, k=1, p=1.0, inverse_temperature=0.01, seed=seed) == likeliest
        assert draw(device, scores, k=32, p=0.0, inverse_temperature=0.01, seed=seed) == likeliest


def test_b61_each_row_draws_by_its_own_k_p_and_temperature(device: Any) -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.0] + [-100.0] * 28]).repeat(4, 1)
    k, p, cold = (
        torch.tensor([1, 2, 32, 32]),
        torch.tensor([1.0, 1.0, 0.75, 1.0]),
        torch.tensor([1.0, 0.0078125, 1.0, 64.0]),
    )
    seen: list[set[int]] = [set() for _ in range(4)]
    for _ in range(60):
        for row, token in enumerate(draw(device, scores, k, p, cold)):
            seen[row].add(token)

    # The likeliest two have 0.64 and 0.24, which reach 0.75 together; a temperature of 1/64 leaves one.
    assert seen == [{100}, {100, 102}, {100, 102}, {100}]


def test_p_keeps_the_fewest_of_the_likeliest_that_reach_it(device: Any) -> None:
    scores = torch.full((ROWS, 32), -100.0)
    scores[:, 7], scores[:, 2], scores[:, 30] = math.log(4.0), math.log(2.0), math.log(2.0)  # shares 0.5, 0.25, 0.25
    seen = {
        p: set(draw(device, scores, p=p, seed=1) + draw(device, scores, p=p)) for p in (0.25, 0.484375, 0.515625, 0.875)
    }

    assert seen == {0.25: {107}, 0.484375: {107}, 0.515625: {102, 107}, 0.875: {102, 107, 130}}


def test_draws_follow_the_softmax_of_the_values_over_the_temperature(device: Any) -> None:
    scores = torch.full((ROWS, 32), -100.0)
    scores[:, 0], scores[:, 1] = 1.0, 0.0
    for inverse in (0.5, 1.0, 2.0):
        tokens = torch.tensor([draw(device, scores, inverse_temperature=inverse) for _ in range(100)])
        found, expected = float((tokens == 100).float().mean()), 1 / (1 + math.exp(-inverse))
        assert abs(found - expected) < 0.03, (inverse, found, expected)  # 3200 draws: 3.4 standard deviations


def test_a_seed_repeats_its_draws_and_every_draw_moves_on(device: Any) -> None:
    scores = random_scores()
    ttnn.manual_seed(5, device=device)
    first, second = draw(device, scores), draw(device, scores)
    ttnn.manual_seed(5, device=device)

    assert (draw(device, scores), draw(device, scores)) == (first, second)
    assert first != second
    assert draw(device, scores, seed=5) == first and draw(device, scores) == second
    assert draw(device, scores, seed=6) != first


def seed_rows(device: Any, seeds: list[int], users: list[int]) -> None:
    ttnn.manual_seed(
        rows(device, torch.tensor(seeds), ttnn.uint32),
        device=device,
        user_ids=rows(device, torch.tensor(users), ttnn.uint32),
    )


def test_b61_a_row_with_a_seed_of_its_own_draws_the_same_whatever_the_others_do(device: Any) -> None:
    scores = random_scores(4)
    ttnn.manual_seed(1, device=device)
    unseeded = draw(device, scores), draw(device, scores), draw(device, scores)
    histories = []
    for state in (1, 2):
        ttnn.manual_seed(state, device=device)
        seed_rows(device, [7, 9], [2, 0])
        histories.append([draw(device, scores) for _ in range(20)])

    first, second = histories
    assert [tokens[::2] for tokens in first] == [tokens[::2] for tokens in second]
    assert [tokens[1::2] for tokens in first] != [tokens[1::2] for tokens in second]
    seed_rows(device, [8, 9], [2, 0])
    other = [draw(device, scores) for _ in range(20)]
    assert [tokens[2] for tokens in other] != [tokens[2] for tokens in first]
    assert [tokens[0] for tokens in other] == [tokens[0] for tokens in first]
    ttnn.manual_seed(1, device=device)
    assert (draw(device, scores), draw(device, scores), draw(device, scores)) == unseeded, "a number seeds all rows"


def test_seeds_for_rows_are_one_program_whatever_they_are(device: Any) -> None:
    seed_rows(device, [7, 9], [2, 0])
    programs = device.num_program_cache_entries()
    seed_rows(device, [8, 3], [0, 31])

    assert device.num_program_cache_entries() == programs
    with pytest.raises(EmulatorError, match="0 to 31: 32"):
        seed_rows(device, [1], [32])


def test_a_replayed_draw_moves_on_as_well(device: Any) -> None:
    scores = random_scores()[None, None]
    device.trace_region_size = 2**20
    ones = torch.ones(ROWS)
    inputs = (
        tiles(device, scores),
        rows(device, torch.arange(32).expand(1, 1, ROWS, 32), ttnn.int32),
        rows(device, torch.full((ROWS,), 32), ttnn.uint32),
        rows(device, ones, ttnn.bfloat16),
        rows(device, ones, ttnn.bfloat16),
    )
    ttnn.manual_seed(1, device=device)
    eager = [ttnn.to_torch(ttnn.sampling(*inputs)).tolist() for _ in range(2)]
    ttnn.manual_seed(1, device=device)
    trace = ttnn.begin_trace_capture(device)
    tokens = ttnn.sampling(*inputs)
    ttnn.end_trace_capture(device, trace)

    for expected in eager:
        ttnn.execute_trace(device, trace)
        assert ttnn.to_torch(tokens).tolist() == expected


def test_as_in_the_library_a_seed_not_set_before_compiles_and_live_traces_forbid_it(device: Any) -> None:
    device.trace_region_size = 2**20
    tensor = tiles(device, torch.ones(1, 1, 32, 32))
    ttnn.exp(tensor)
    ttnn.manual_seed(1, device=device)
    trace = ttnn.begin_trace_capture(device)
    with pytest.raises(EmulatorError, match="manual_seed: a seed in a recording"):
        ttnn.manual_seed(1, device=device)
    output = ttnn.exp(tensor)
    ttnn.end_trace_capture(device, trace)

    ttnn.manual_seed(1, device=device)
    with pytest.raises(EmulatorError, match="manual_seed: a new program may not be compiled"):
        ttnn.manual_seed(2, device=device)
    assert output.is_allocated()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"k": torch.tensor([1, 0])}, "k of row 1 must be between 1 and the 32 candidates, got 0"),
        ({"k": 33}, "k of row 0 .* got 33"),
        ({"p": -0.5}, "p of row 0 must be between 0 and 1, got -0.5"),
        ({"p": torch.tensor([1.0, 1.5])}, "p of row 1"),
        ({"p": math.nan}, "p of row 0"),
        ({"inverse_temperature": 0.0}, "inverse of the temperature, must be above 0 and finite, got 0.0"),
        ({"inverse_temperature": torch.tensor([1.0, math.inf])}, "temp of row 1"),
        ({"inverse_temperature": math.nan}, "temp of row 0"),
    ],
)
def test_choices_that_the_kernel_would_take_in_silence_are_refused(
    device: Any, choice: dict[str, Any], message: str
) -> None:
    state = device.random.get_state()
    with pytest.raises(EmulatorError, match=message):
        draw(device, random_scores(2), **choice)
    assert torch.equal(device.random.get_state(), state), "a refused draw moves nothing on"


# --- log-probabilities -----------------------------------------------------------------------------------------------


def test_log_probabilities_by_parts_are_those_of_torch(device: Any) -> None:
    scores = random_scores(ROWS, 308) * 4
    tokens = torch.arange(ROWS) * 9
    wide = ttnn.typecast(tiles(device, scores[None, None]), ttnn.float32)
    shifted = ttnn.subtract(wide, ttnn.max(wide, dim=-1, keepdim=True), dtype=ttnn.float32)
    total = ttnn.sum(ttnn.exp(shifted), dim=-1, keepdim=True)
    index = ttnn.to_layout(
        ttnn.reshape(rows(device, tokens[None, None, None], ttnn.uint32), (1, 1, ROWS, 1)), ttnn.TILE_LAYOUT
    )
    found = ttnn.to_torch(ttnn.subtract(ttnn.gather(shifted, -1, index), ttnn.log(total), dtype=ttnn.float32))

    expected = scores.log_softmax(-1).gather(-1, tokens[:, None])
    torch.testing.assert_close(found[0, 0], expected, rtol=0, atol=1e-5)


def test_results_are_rounded_to_their_declared_type(device: Any) -> None:
    values = (random_scores()[None, None].abs() + 0.5).bfloat16().float()
    for result, exact in (
        (ttnn.exp(tiles(device, values)), values.exp()),
        (ttnn.log(tiles(device, values)), values.log()),
        (ttnn.sum(tiles(device, values), dim=-1), values.sum(-1)),
        (ttnn.max(tiles(device, -values), dim=-1), (-values).max(-1).values),
        (ttnn.subtract(tiles(device, values), tiles(device, values[..., :1])), values - values[..., :1]),
    ):
        assert torch.equal(ttnn.to_torch(result), exact.bfloat16())


def test_a_column_outside_the_row_is_refused(device: Any) -> None:
    with pytest.raises(EmulatorError, match="index 64 is outside the row of 64 values"):
        ttnn.gather(
            tiles(device, torch.zeros(1, 1, 32, 64)), -1, tiles(device, torch.full((1, 1, 32, 1), 64), ttnn.uint32)
        )


# --- chunked waves ---------------------------------------------------------------------------------------------------


def test_packed_heads_become_a_batch_by_a_free_view_and_one_move(device: Any) -> None:
    heads, count, tokens, dim = 3, 4, 64, 32
    packed = torch.randn(1, heads, count * tokens, dim, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    tensor = tiles(device, packed)

    split = ttnn.reshape(tensor, (heads, count, tokens, dim))
    assert split.buffer_address() == tensor.buffer_address() and device.counters.operations == 0
    batch = ttnn.to_torch(ttnn.transpose(split, 0, 1)).float()

    assert device.counters.operations == 1 and batch.shape == (count, heads, tokens, dim)
    for row in range(count):
        assert torch.equal(batch[row], packed[0, :, row * tokens : (row + 1) * tokens])


def test_a_reshape_that_moves_values_is_an_operation_on_memory_of_its_own(device: Any) -> None:
    values = torch.arange(32)[None, None, None]
    tensor = rows(device, values, ttnn.uint32)

    column = ttnn.reshape(tensor, (1, 1, 32, 1))
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(values + 1, ttnn.uint32), tensor)

    assert column.buffer_address() != tensor.buffer_address() and device.counters.operations == 1
    assert ttnn.to_torch(column).flatten().tolist() == list(range(32))


def test_fault_b09_rows_of_a_chunked_batch_read_their_own_pages_only() -> None:
    device = ttnn.open_device(board=BOARD, precision="float32")
    count, heads, key_value_heads, tokens, dim, block, start, pages = 3, 4, 2, 32, 32, 32, 64, 8
    random = torch.Generator().manual_seed(0)
    query = torch.randn(count, heads, tokens, dim, generator=random)
    cache = [torch.randn(32, key_value_heads, block, dim, generator=random) for _ in range(2)]
    table = torch.randperm(31, generator=random)[: count * pages].reshape(count, pages) + 1
    program = ttnn.SDPAProgramConfig(compute_with_storage_grid_size=(8, 8), q_chunk_size=32, k_chunk_size=32)

    def run(chosen: list[int], caches: list[torch.Tensor]) -> torch.Tensor:
        attended = ttnn.transformer.chunked_scaled_dot_product_attention(
            tiles(device, query[chosen]),
            *[tiles(device, values) for values in caches],
            rows(device, table[chosen], ttnn.int32),
            chunk_start_idx_tensor=rows(device, torch.tensor([start]), ttnn.int32),
            program_config=program,
        )
        return ttnn.to_torch(attended)

    together = run([0, 1, 2], cache)
    for row in range(count):
        key, value = (values[table[row]].transpose(0, 1).flatten(1, 2) for values in cache)
        mask = torch.arange(pages * block) <= start + torch.arange(tokens)[:, None]
        key, value = key.repeat_interleave(2, 0), value.repeat_interleave(2, 0)
        expected = torch.nn.functional.scaled_dot_product_attention(query[row], key, value, attn_mask=mask)
        torch.testing.assert_close(together[row], expected, rtol=0, atol=1e-5)

    foreign = [values.clone() for values in cache]
    for values in foreign:
        values[table[1]] = 1e4
    assert torch.equal(run([0, 1, 2], foreign)[[0, 2]], together[[0, 2]])
    permuted = run([2, 0, 1], cache)
    assert torch.equal(permuted, together[[2, 0, 1]])

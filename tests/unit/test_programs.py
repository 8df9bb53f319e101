"""Program configurations: byte sums as the library reports them, legal by its rules, cheapest among the legal ones."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import catalog, targets
from generator.attentions import ATTENTION_CHUNKS, Attention, attention_bytes, choose_attention
from generator.matmuls import (
    PAIRS,
    RESIDUAL,
    Matmul,
    MinimalMatmul,
    NoProgram,
    choose_matmul,
    choose_minimal_matmul,
    divisors,
    fidelity,
    matmul_bytes,
    minimal_matmul_bytes,
    program_cycles,
)

BASE = 105824  # bytes of L1 below the buffers of a program on Wormhole: 1499136 limit - 1393312 bank
CORE = targets.load_board(catalog.BUILT_IN, "n150").rates.core
N150, P150 = ((8, 8), 1393312), ((11, 10), 1461120)


def matmul(form: str, inner: int, block_rows: int, block_columns: int, core_rows: int, core_columns: int) -> Matmul:
    return Matmul(form, 8, 8, inner, 1, 1, block_rows, block_columns, core_rows, core_columns)


@pytest.mark.parametrize(
    ("choice", "weights", "output", "bias", "reported"),
    [
        (matmul("multicast_2d", 8, 8, 56, 8, 56), "bfloat16", "bfloat16", None, 4955488),
        (matmul("multicast_2d", 8, 8, 56, 8, 56), "bfloat8_b", "bfloat16", None, 4095328),
        (matmul("multicast_2d", 16, 8, 28, 8, 56), "bfloat16", "bfloat16", None, 3841376),
        (matmul("multicast_2d", 8, 8, 56, 8, 56), "bfloat16", "bfloat16", "bfloat16", 5070176),
        (matmul("multicast_2d", 8, 8, 56, 8, 56), "bfloat8_b", "bfloat8_b", None, 3665248),
        (matmul("multicast_2d", 8, 4, 56, 8, 56), "bfloat16", "bfloat16", None, 3448160),
        (matmul("multicast_1d", 8, 1, 63, 1, 63), "bfloat8_b", "bfloat16", None, 1622368),
    ],
)
def test_matmul_buffers_are_those_that_the_library_reports(choice, weights, output, bias, reported) -> None:
    """Sizes from the messages of ttnn 0.81.1 on a mock device, where the buffers of a matmul were too large for a core."""
    assert matmul_bytes(choice, weights, output, bias) + BASE == reported


@pytest.mark.parametrize(
    ("choice", "head_dim", "dtype", "reported"),
    [
        (Attention(512, 512), 128, "bfloat16", 2571616),
        (Attention(512, 512), 128, "bfloat8_b", 2325856),
        (Attention(256, 512), 256, "bfloat16", 2456928),
        (Attention(128, 512), 256, "bfloat16", 1809760),
    ],
)
def test_attention_buffers_are_those_that_the_library_reports(choice, head_dim, dtype, reported) -> None:
    assert attention_bytes(choice, head_dim, dtype) + BASE == reported


sizes = st.tuples(st.integers(1, 300), st.integers(1, 600), st.integers(1, 4800))
boards = st.sampled_from([N150, P150])
weight_dtypes = st.sampled_from(["bfloat16", "bfloat8_b", "bfloat4_b"])


@settings(max_examples=150, deadline=None)
@given(sizes, boards, weight_dtypes, st.sampled_from([None, "bfloat16"]))
def test_a_matmul_of_any_size_gets_a_legal_configuration(sizes, board, weights, bias) -> None:
    (tokens, inner, outputs), ((columns, rows), l1) = sizes, board
    choice = choose_matmul(CORE, tokens, inner, outputs, (columns, rows), l1, weights, "bfloat16", bias)
    assert inner % choice.inner_block == 0
    assert choice.core_rows % choice.block_rows == 0 and choice.core_columns % choice.block_columns == 0
    assert choice.block_rows % choice.subblock_rows == 0 and choice.block_columns % choice.subblock_columns == 0
    assert choice.subblock_rows * choice.subblock_columns <= 4  # registers in float32 accumulation
    assert choice.subblock_rows == 1 or choice.subblock_columns == choice.block_columns
    assert choice.grid_columns <= columns and choice.grid_rows <= rows
    assert matmul_bytes(choice, weights, "bfloat16", bias) <= l1
    if choice.form == "multicast_1d":
        assert choice.core_rows == tokens
        assert choice.core_columns * choice.grid_columns * choice.grid_rows >= outputs
    else:
        assert 0 <= choice.core_rows * choice.grid_rows - tokens < choice.core_rows
        assert choice.core_columns * choice.grid_columns >= outputs


def cycles(tokens: int, columns: int, inner: int, steps: int, blocks: tuple[int, int], subblock: int) -> float:
    """The model written out for bfloat16: four passes of sixteen cycles a product, 64 a packed tile, 32 fetched bytes, and a
    thousand a step. `tokens` and `columns` are a core's own; `blocks` how many there are down and across."""
    down, across = blocks
    multiply = tokens * columns * inner * 64 / {1: 0.5, 2: 0.75, 3: 0.9, 4: 1.0}[subblock]
    pack = 64 * tokens * columns * steps
    fetch = inner * 2048 * (tokens * across + columns * down) / 32
    return max(multiply, pack, fetch) + 1000 * down * across * steps


def least_cycles(tokens: int, inner: int, outputs: int, grid: tuple[int, int], l1: int) -> float:
    """Least modelled cycles of the busiest core over every legal configuration, written out as plain loops."""
    columns, rows = grid
    shares = [(-(-tokens // rows), share) for share in range(-(-outputs // columns), outputs + 4)]
    shares += [(tokens, share) for share in range(-(-outputs // (columns * rows)), outputs + 4)] if tokens <= 8 else []
    best = float("inf")
    for core_rows, core_columns in shares:
        for block_rows, block_columns in product(divisors(core_rows), divisors(core_columns)):
            for inner_block in (part for part in divisors(inner) if part <= 8):
                choice = matmul("", inner_block, block_rows, block_columns, core_rows, core_columns)
                if matmul_bytes(choice, "bfloat16", "bfloat16", None) > l1:
                    continue
                blocks = (core_rows // block_rows, core_columns // block_columns)
                for high, wide in product(divisors(block_rows), divisors(block_columns)):
                    if high * wide <= 4 and (high == 1 or wide == block_columns):
                        steps = inner // inner_block
                        best = min(best, cycles(core_rows, core_columns, inner, steps, blocks, high * wide))
    return best


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 24), st.integers(1, 40), boards, st.sampled_from([1.0, 0.1]))
def test_no_legal_configuration_is_quicker_on_the_busiest_core(tokens, inner, outputs, board, room) -> None:
    grid, l1 = board
    l1 = int(l1 * room)
    choice = choose_matmul(CORE, tokens, inner, outputs, grid, l1, "bfloat16", "bfloat16")
    found = program_cycles(CORE, choice, tokens, inner, outputs, "bfloat16")
    assert found == pytest.approx(least_cycles(tokens, inner, outputs, grid, l1))


def test_equal_work_is_done_in_the_fewest_steps() -> None:
    """Of [8, 64] x [64, 8] tiles on 8 x 8 cores every core makes one tile: the widest inner block needs the fewest steps."""
    choice = choose_matmul(CORE, 64, 64, 64, *N150, "bfloat16", "bfloat16")
    assert (choice.core_rows, choice.core_columns, choice.block_rows, choice.block_columns) == (8, 8, 8, 8)
    assert choice.inner_block == 8


def blocks(rows: int, inner: int, columns: int) -> MinimalMatmul:
    return MinimalMatmul(8, 8, rows, inner, columns, 1, 4)


@pytest.mark.parametrize(
    ("choice", "weights", "output", "bias", "fused", "reported"),
    [
        (blocks(32, 16, 24), "bfloat16", "bfloat16", None, "", 10067296),
        (blocks(24, 8, 40), "bfloat8_b", "bfloat8_b", "bfloat16", "", 7691616),
        (blocks(16, 32, 32), "bfloat8_b", "bfloat16", None, PAIRS, 7576928),
        (blocks(16, 32, 32), "bfloat16", "bfloat16", None, RESIDUAL, 11705696),
        (blocks(32, 16, 24), "bfloat4_b", "bfloat16", None, RESIDUAL, 9428320),
    ],
)
def test_minimal_matmul_buffers_are_those_that_the_library_reports(
    choice, weights, output, bias, fused, reported
) -> None:
    """Sizes from the messages of ttnn 0.81.1 on a mock device, as above."""
    assert minimal_matmul_bytes(choice, weights, output, bias, fused) + BASE == reported


@settings(max_examples=150, deadline=None)
@given(sizes, boards, weight_dtypes, st.sampled_from(["", PAIRS, RESIDUAL]))
def test_a_minimal_matmul_of_any_size_gets_legal_blocks(sizes, board, weights, fused) -> None:
    (tokens, inner, outputs), (grid, l1) = sizes, board
    outputs *= 2 if fused == PAIRS else 1
    choice = choose_minimal_matmul(CORE, tokens, inner, outputs, grid, l1, weights, "bfloat16", fused)
    assert inner % choice.inner_block == 0
    assert choice.block_rows % choice.subblock_rows == 0 and choice.block_columns % choice.subblock_columns == 0
    assert choice.subblock_rows * choice.subblock_columns <= 4
    assert fused != PAIRS or (choice.block_columns % 2 == 0 and choice.subblock_columns % 2 == 0)
    assert (choice.grid_columns, choice.grid_rows) == grid
    assert minimal_matmul_bytes(choice, weights, "bfloat16", None, fused) <= l1


def test_a_core_too_small_for_one_tile_is_refused_with_the_numbers() -> None:
    with pytest.raises(NoProgram, match="no matmul of 4 x 8 x 16 tiles fits 10000 bytes"):
        choose_matmul(CORE, 4, 8, 16, (8, 8), 10000, "bfloat16", "bfloat16")
    with pytest.raises(NoProgram, match="no minimal matmul of 4 x 8 x 16 tiles fits 10000 bytes"):
        choose_minimal_matmul(CORE, 4, 8, 16, (8, 8), 10000, "bfloat16", "bfloat16", PAIRS)
    with pytest.raises(NoProgram, match="no attention over 128 tokens of 64 fits 10000 bytes"):
        choose_attention(128, 1, 8, 64, (8, 8), 10000, "bfloat16")


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 128).map(lambda tiles: tiles * 32),
    st.integers(1, 32),
    st.integers(1, 64),
    st.sampled_from([32, 64, 96, 128, 256]),
    boards,
    st.sampled_from(["bfloat16", "bfloat8_b"]),
    st.sampled_from([None, 32, 64, 128, 512]),
)
def test_attention_of_any_size_gets_chunks_that_divide_and_fit(
    tokens, rows, heads, head_dim, board, dtype, starts
) -> None:
    grid, l1 = board
    choice = choose_attention(tokens, rows, heads, head_dim, grid, l1, dtype, start_multiple=starts)
    assert tokens % choice.query_chunk == 0
    assert attention_bytes(choice, head_dim, dtype) <= l1
    if starts is None:
        assert tokens % choice.key_chunk == 0
    else:
        assert starts % choice.query_chunk == 0 and starts % choice.key_chunk == 0

    def cost(query: int) -> int:
        units = rows * heads * (tokens // query)
        return -(-units // (grid[0] * grid[1])) * (query + 32)

    legal = [
        query
        for query, key in product(ATTENTION_CHUNKS, repeat=2)
        if tokens % query == 0
        and (starts or tokens) % key == 0
        and (starts or tokens) % query == 0
        and attention_bytes(Attention(query, key), head_dim, dtype) <= l1
    ]
    assert cost(choice.query_chunk) == min(map(cost, legal))


@pytest.mark.parametrize(("dtype", "passes"), [("bfloat16", "HiFi4"), ("bfloat8_b", "HiFi2"), ("bfloat4_b", "LoFi")])
def test_fidelity_keeps_the_mantissa_of_the_stored_dtype(dtype: str, passes: str) -> None:
    assert fidelity(dtype) == passes


def every_matmul(token_tiles: int, inner_tiles: int, output_tiles: int, grid: tuple[int, int]):
    """Every configuration that may be chosen, said in one loop."""
    columns, rows = grid
    core_rows = -(-token_tiles // rows)
    shapes = [("multicast_2d", columns, -(-token_tiles // core_rows), core_rows, -(-output_tiles // columns))]
    if token_tiles <= 8:
        shapes.append(("multicast_1d", columns, rows, token_tiles, -(-output_tiles // (columns * rows))))
    for form, grid_columns, grid_rows, high, least in shapes:
        for wide in range(least, least + 4):
            for block_rows, block_columns, inner in product(divisors(high), divisors(wide), divisors(inner_tiles)):
                for sub_rows, sub_columns in product(divisors(block_rows), divisors(block_columns)):
                    if inner <= 8 and sub_rows * sub_columns <= 4 and (sub_rows == 1 or sub_columns == block_columns):
                        blocks = (inner, sub_rows, sub_columns, block_rows, block_columns, high, wide)
                        yield Matmul(form, grid_columns, grid_rows, *blocks)


@pytest.mark.parametrize("inner_block", [None, 2])
@pytest.mark.parametrize("bank", [1393312, 300000, 60000])
@pytest.mark.parametrize(
    ("token_tiles", "inner_tiles", "output_tiles"), [(4, 64, 96), (8, 18, 18), (64, 160, 128), (13, 96, 30)]
)
def test_no_legal_matmul_is_cheaper_than_the_chosen_one(
    token_tiles, inner_tiles, output_tiles, bank, inner_block
) -> None:
    sizes, dtypes = (token_tiles, inner_tiles, output_tiles), ("bfloat8_b", "bfloat16", None)

    def cost(choice: Matmul) -> tuple[float, int]:
        return program_cycles(CORE, choice, *sizes, "bfloat8_b"), matmul_bytes(choice, *dtypes)

    legal = [choice for choice in every_matmul(*sizes, (8, 8)) if matmul_bytes(choice, *dtypes) <= bank]
    costs = [cost(choice) for choice in legal if inner_block in (None, choice.inner_block)]
    assert cost(choose_matmul(CORE, *sizes, (8, 8), bank, *dtypes, inner_block=inner_block)) == min(costs)


@pytest.mark.parametrize("fused", [PAIRS, RESIDUAL])
@pytest.mark.parametrize("bank", [1393312, 200000])
@pytest.mark.parametrize(("token_tiles", "inner_tiles", "output_tiles"), [(4, 64, 96), (16, 18, 36), (64, 160, 128)])
def test_no_legal_minimal_matmul_is_cheaper_than_the_chosen_one(
    token_tiles, inner_tiles, output_tiles, bank, fused
) -> None:
    sizes, dtypes = (token_tiles, inner_tiles, output_tiles), ("bfloat8_b", "bfloat16")
    step = 2 if fused == PAIRS else 1

    def cost(choice: MinimalMatmul) -> tuple[float, int]:
        return program_cycles(CORE, choice, *sizes, "bfloat8_b", fused), minimal_matmul_bytes(
            choice, *dtypes, None, fused
        )

    legal = [
        choice
        for rows, columns, inner in product(range(1, 9), range(step, 17, step), divisors(inner_tiles))
        for sub_rows, sub_columns in product(divisors(rows), divisors(columns))
        if inner <= 8 and sub_rows * sub_columns <= 4 and sub_columns % step == 0
        for choice in [MinimalMatmul(8, 8, rows, inner, columns, sub_rows, sub_columns)]
        if minimal_matmul_bytes(choice, *dtypes, None, fused) <= bank
    ]
    assert cost(choose_minimal_matmul(CORE, *sizes, (8, 8), bank, *dtypes, fused)) <= min(map(cost, legal))

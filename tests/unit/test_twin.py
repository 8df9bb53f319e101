"""Twins: small, and of the same kind as the model in everything that the templates look at."""

from __future__ import annotations

import pytest

from generator import catalog
from generator.geometry import resolve
from generator.manifest import LONGEST_NAME, load
from generator.targets import load_board
from generator.twin import twin
from tests.support.manifests import read

BOARDS = [load_board(catalog.BUILT_IN, name) for name in catalog.names(catalog.BUILT_IN, catalog.TARGETS)]
SHIPPED = [
    (name, board)
    for name in catalog.names(catalog.BUILT_IN)
    for board in BOARDS
    if board.name in load(catalog.BUILT_IN, name).manifest.target
]
SAME = (
    "family",
    "query_key_value_bias",
    "query_key_norm",
    "fused_projections",
    "rotary_style",
    "tied_embeddings",
    "norm_epsilon",
    "activation",
    "dtypes",
    "block_size",
    "board",
    "placement",
)


@pytest.mark.parametrize(("name", "board"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_a_twin_is_small_and_of_the_same_kind(name: str, board) -> None:  # type: ignore[no-untyped-def]
    file = load(catalog.BUILT_IN, name)
    large, small = resolve(file, board), resolve(twin(file), board)
    assert {key: getattr(small, key) for key in SAME} == {key: getattr(large, key) for key in SAME}
    assert small.query_heads // small.key_value_heads == large.query_heads // large.key_value_heads
    assert small.key_value_heads == min(2, large.key_value_heads)
    assert (small.hidden == small.device_query_width) == (large.hidden == large.device_query_width)
    assert (small.rope.kind, small.rope.theta, small.rope.factor) == (
        large.rope.kind,
        large.rope.theta,
        large.rope.factor,
    )
    assert small.rope.dimensions * large.head_dim == large.rope.dimensions * small.head_dim
    assert (0 < small.rotary_switch < small.context - small.prefill_chunk) == (large.rotary_switch > 0)
    assert small.layers == 2 and small.vocabulary == 256 and small.hidden <= 512 and small.intermediate <= 1024
    assert small.waves == tuple(wave for wave in large.waves if wave <= 8) and small.packaged_weights is None
    assert small.context >= (1 if large.attention_soft_cap else 5) * small.prefill_chunk
    assert small.alignment > small.block_size
    assert small.module == f"{large.module}_twin"


@pytest.mark.parametrize(("head_dim", "small"), [(32, 32), (64, 32), (96, 96), (160, 96)])
def test_a_twin_keeps_the_rotary_style(head_dim: int, small: int) -> None:
    file = read(("query_heads = 9", f"query_heads = 9\nhead_dim = {head_dim}"))
    assert resolve(twin(file), BOARDS[0]).head_dim == small


def test_a_twin_turns_the_same_part_of_its_heads_by_factors_of_the_model() -> None:
    pairs = [f"{1 + index / 10}" for index in range(48)]
    file = read(
        ('"llama"', '"phi3"'),
        ("query_heads = 9", "query_heads = 9\nhead_dim = 128\nrotary_dimensions = 96"),
        (
            'kind = "default"',
            f'kind = "longrope"\noriginal_context = 2048\nattention_factor = 1.1\n'
            f"short_factors = [{', '.join(pairs)}]\nlong_factors = [{', '.join(pairs)}]",
        ),
    )
    small = resolve(twin(file), BOARDS[0])
    assert (small.head_dim, small.rope.dimensions) == (32, 24)
    assert (
        small.rope.short_factors == small.rope.long_factors == tuple(float(pairs[index]) for index in range(0, 48, 4))
    )
    assert small.rotary_switch == small.context // 2


@pytest.mark.parametrize("block_size", [32, 64, 128])
def test_a_twin_keeps_the_block_size_and_scales_its_lengths(block_size: int) -> None:
    small = twin(read(("block_size = 32", f"block_size = {block_size}"))).manifest.target["n150"]
    assert small.lengths == (block_size, 2 * block_size, 4 * block_size)


def test_a_query_width_other_than_hidden_stays_other() -> None:
    file = read(("query_heads = 9", "query_heads = 9\nhead_dim = 64"), ("hidden = 576", "hidden = 608"))
    small = resolve(twin(file), BOARDS[0])
    assert small.hidden != small.device_query_width


def test_the_longest_name_has_a_twin() -> None:
    name = "a" * 58 + ".b-c-d"
    assert len(name) == LONGEST_NAME
    assert twin(read(('name = "m"', f'name = "{name}"'))).manifest.name == "a" * 58 + "-twin"

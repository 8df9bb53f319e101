"""The bytes that the generator counts for attention are never fewer than the emulator's, which are the library's."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generator import catalog
from generator.attentions import ATTENTION_CHUNKS, Attention, attention_bytes, choose_attention
from generator.targets import load_board
from runtime import emulator
from runtime.emulator.operations.attention_programs import program_bytes
from runtime.emulator.storage import TensorSpec, tensor_spec

BOARDS = {name: load_board(catalog.BUILT_IN, name) for name in ("n150", "p150")}
TOKENS = 512
COMPUTE = emulator.WormholeComputeKernelConfig(
    math_fidelity=emulator.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True, packer_l1_acc=True
)


def tiled(shape: tuple[int, ...], dtype: emulator.DataType) -> TensorSpec:
    return tensor_spec(shape, dtype, emulator.TILE_LAYOUT, emulator.DRAM_MEMORY_CONFIG)


def taken(
    board: str, kind: str, choice: Attention, head_dim: int, dtype: str, rows: int, pages: int, sinks: bool
) -> int:
    """What the emulator takes for `rows` rows, packed or as a batch, over themselves or over `pages` pages each."""
    stored = emulator.DataType[dtype.upper()]
    batch, tokens = (1, rows * TOKENS) if kind == "packed" else (rows, TOKENS)
    query = tiled((batch, 4, tokens, head_dim), stored)
    program = emulator.SDPAProgramConfig(
        compute_with_storage_grid_size=emulator.CoreCoord(*BOARDS[board].grid),
        q_chunk_size=choice.query_chunk,
        k_chunk_size=choice.key_chunk,
        exp_approx_mode=False,
    )
    table = None
    if pages:
        table = tensor_spec(
            (rows, pages), emulator.DataType.INT32, emulator.ROW_MAJOR_LAYOUT, emulator.DRAM_MEMORY_CONFIG
        )
    return program_bytes(
        BOARDS[board],
        query,
        tiled((64, 4, 32, head_dim), stored) if pages else query,
        program,
        COMPUTE,
        bounded=kind == "packed",
        window=100 if kind == "sliding" else 0,
        sink=sinks,
        table=table,
        started=bool(pages),
    )


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    ("kind", "sinks"), [("sliding", False), ("sliding", True), ("full", False), ("full", True), ("packed", False)]
)
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.sampled_from(ATTENTION_CHUNKS),
    key=st.sampled_from(ATTENTION_CHUNKS),
    head_dim=st.sampled_from([32, 64, 96, 128, 256]),
    dtype=st.sampled_from(["bfloat16", "bfloat8_b"]),
    pages=st.sampled_from([0, 16, 24, 1000, 4096]),
    rows=st.integers(1, 8),
)
def test_attention_takes_no_more_than_is_counted(board, kind, sinks, query, key, head_dim, dtype, pages, rows) -> None:
    pages = 0 if kind == "packed" else pages
    choice = Attention(query, key)
    counted = attention_bytes(
        choice,
        head_dim,
        dtype,
        dtype,
        rows + 1 if kind == "packed" else 0,
        pages,
        board == "p150" and kind == "full" and not pages,
        kind == "sliding",
        sinks,
    )
    found = taken(board, kind, choice, head_dim, dtype, rows, pages, sinks)
    assert found <= counted <= 1.3 * found + 4096


@pytest.mark.parametrize("kinds", [("sliding",), ("sliding", "full"), ("full",)])
@pytest.mark.parametrize("sinks", [False, True])
def test_a_choice_fits_every_kind_of_layers_however_small_a_core_is(kinds: tuple[str, ...], sinks: bool) -> None:
    names = ["sliding" if kind == "sliding" else "full" if sinks else "packed" for kind in kinds]
    bounds = 0 if sinks else 5
    chosen = set()
    for room in range(200_000, 1_200_000, 4_000):
        choice = choose_attention(
            512, 4, 4, 128, (8, 8), room, "bfloat16", "bfloat16", bounds, kinds=kinds, sinks=sinks
        )
        assert all(taken("n150", name, choice, 128, "bfloat16", 4, 0, sinks) <= room for name in names)
        chosen.add(choice)
    assert len(chosen) >= 4

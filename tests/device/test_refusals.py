"""The check can fail: an altered module is refused, with the line of the emitted file and the library's own message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.device.emitted import smallest_module
from tests.device.mock import describe

BOARDS = ("n150", "p150")
VARIANTS = {"single", "batched", "chunked", "chunked_batched"}


def refusals_of(device: Any, source: str) -> tuple[list[dict[str, Any]], str]:
    report = device.run(smallest_module(device.name), source)
    return report["refusals"], describe(report)


def altered(board: str, old: str, new: str) -> str:
    source = smallest_module(board).read_text()
    assert old in source, f"nothing to alter: the module has no {old!r}"
    return source.replace(old, new)


def appended(board: str, statements: str) -> str:
    """The module with its tables changed at its end, before anything runs."""
    return f"{smallest_module(board).read_text()}\n\n{statements}\n"


@pytest.mark.parametrize("board", BOARDS)
def test_a_subblock_that_does_not_divide_its_block_is_refused(mock_device, board: str) -> None:
    source = appended(board, "for program in MATMULS.values():\n    program.out_subblock_w = 5")
    refusals, text = refusals_of(mock_device(board), source)

    assert {refusal["function"] for refusal in refusals} == {"attention"}
    assert "ttnn.linear" in refusals[0]["code"] and "subblock" in refusals[0]["message"], text


@pytest.mark.parametrize("board", BOARDS)
def test_a_page_table_nine_entries_wide_is_refused(mock_device, board: str) -> None:
    source = appended(
        board,
        "import dataclasses\n"
        "chunks = [shape for shape in TRACES if shape.variant == 'chunked']\n"
        "TRACES = (dataclasses.replace(min(chunks, key=lambda shape: shape.tokens), read_pages=9),)",
    )
    refusals, text = refusals_of(mock_device(board), source)

    assert [refusal["function"] for refusal in refusals] == ["attend_chunked"], text
    assert "page" in refusals[0]["message"].lower(), text


@pytest.mark.parametrize("board", BOARDS)
def test_an_argument_that_the_library_does_not_have_is_refused_with_its_line(mock_device, board: str) -> None:
    source = altered(board, "is_decode_mode=False", "decode=False")
    refusals, text = refusals_of(mock_device(board), source)

    assert {refusal["shape"].split()[0] for refusal in refusals} == VARIANTS, text
    for refusal in refusals:
        place = f"generated/smollm2_135m/{board}.py:{refusal['line']} in {refusal['function']}, pass {refusal['shape']}"
        assert "incompatible function arguments" in refusal["message"] and place in text, text
        assert "rotary_embedding_hf" in source.splitlines()[refusal["line"] - 1]


@pytest.mark.parametrize("board", BOARDS)
def test_attention_chunks_that_overflow_a_core_are_refused_at_the_stated_limit(mock_device, board: str) -> None:
    device = mock_device(board)
    limit = device.run(smallest_module(board))["stated_board"]["l1_limit"]
    source = appended(
        board, "for program in ATTENTION.values():\n    program.q_chunk_size, program.k_chunk_size = 512, 1024"
    )
    refusals, text = refusals_of(device, source)

    assert {refusal["shape"].split()[0] for refusal in refusals} == VARIANTS, text
    for refusal in refusals:
        assert f"beyond max L1 size of {limit} B" in refusal["message"], text


@pytest.mark.parametrize("board", BOARDS)
def test_a_store_that_does_not_fit_the_board_is_refused(mock_device, board: str) -> None:
    source = appended(
        board,
        "import dataclasses\n"
        "STORES = tuple(dataclasses.replace(store, shape=(1 << 22, *store.shape[1:])) for store in STORES)",
    )
    refusals, text = refusals_of(mock_device(board), source)

    assert [refusal["shape"] for refusal in refusals] == ["allocation"], text
    assert "keys (4194304, " in text and "Out of Memory" in text


@pytest.mark.parametrize("board", BOARDS)
def test_a_tensor_used_after_its_release_is_refused(mock_device, board: str) -> None:
    source = altered(board, "ttnn.deallocate(normed)", "ttnn.deallocate(query_key_value)")
    refusals, text = refusals_of(mock_device(board), source)

    assert refusals and all("nlp_create_qkv_heads" in refusal["code"] for refusal in refusals), text


def test_a_module_that_cannot_be_imported_is_refused_and_named(mock_device) -> None:
    source = altered("n150", "math_approx_mode=False", "approximate=False")
    refusals, text = refusals_of(mock_device("n150"), source)

    assert [refusal["shape"] for refusal in refusals] == ["import"]
    assert "incompatible function arguments" in text and "WormholeComputeKernelConfig" in text

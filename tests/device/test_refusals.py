"""The check can fail: an altered module is refused, with the line of the emitted file and the library's own message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.device.emitted import WRONG_SUBBLOCKS, appended, checked, described, module_of, smallest_module

BOARDS = ("n150", "p150")
VARIANTS = {"single", "ragged", "chunked", "chunked_batched"}
FIRST_OF_EACH = "{shape.variant: shape for shape in reversed(TRACES)}.values()"
LARGEST = "TRACES[-1:]"
ONE = "TRACES[:1]"


def refusals_of(
    device: Any, model: str, statements: str, passes: str = FIRST_OF_EACH
) -> tuple[list[dict[str, Any]], str]:
    path = module_of(model, device.board)
    source = appended(path, statements, passes=passes)
    verdict = checked(device, path, source)
    assert not verdict["passed"]
    for one in verdict["refusals"]:
        if one["line"]:
            assert source.splitlines()[one["line"] - 1].split()[0] in one["code"]
    return verdict["refusals"], described(verdict["refusals"])


@pytest.mark.parametrize("board", BOARDS)
def test_an_oversized_block_is_refused_at_the_stated_limit(mock_device, board: str) -> None:
    device = mock_device(board)
    refusals, text = refusals_of(
        device,
        "llama_3_1_8b",
        "for program in MATMULS.values():\n"
        "    if hasattr(program, 'out_block_w'):\n"
        "        program.in0_block_w = 64\n"
        "        program.out_block_h, program.out_block_w = program.per_core_M, program.per_core_N",
        LARGEST,
    )
    limit = device.opened["l1_bank_bytes"]

    assert len(refusals) == 1 and "ttnn.linear(" in refusals[0]["code"], text
    reached, most = (int(word) for word in refusals[0]["message"].split() if word.isdecimal() and int(word) > limit)
    assert reached > most and "beyond max L1 size" in refusals[0]["message"], text


@pytest.mark.parametrize("board", BOARDS)
def test_a_subblock_that_does_not_divide_its_block_is_refused(mock_device, board: str) -> None:
    refusals, text = refusals_of(
        mock_device(board),
        "smollm2_135m",
        WRONG_SUBBLOCKS,
    )

    assert "MATMULS[" in refusals[0]["code"] and "subblock" in refusals[0]["message"], text


@pytest.mark.parametrize("board", BOARDS)
def test_a_double_precision_attention_scale_is_refused_by_every_pass(mock_device, board: str) -> None:
    """One operation refuses it with types alone; the others take it without a word."""
    refusals, text = refusals_of(mock_device(board), "llama_3_1_8b", "ATTENTION_SCALE = 128**-0.5")
    own = [one for one in refusals if one["by"] == "codegen"]

    assert {one["shape"].split()[0] for one in own} == VARIANTS, text
    assert {one["shape"].split()[0] for one in refusals if one["by"] == "ttnn"} == {"chunked", "chunked_batched"}, text
    for one in own:
        assert "scaled_dot_product_attention(" in one["code"] and "scale=ATTENTION_SCALE" in one["code"], text
        assert one["message"].startswith("scale is 0.08838834764831845, which is no float32"), text


@pytest.mark.parametrize("board", BOARDS)
def test_a_transposed_weight_is_refused(mock_device, board: str) -> None:
    refusals, text = refusals_of(
        mock_device(board),
        "smollm2_135m",
        "import dataclasses\n"
        "LAYER_WEIGHTS = tuple(\n"
        "    dataclasses.replace(one, shape=one.shape[::-1]) if one.name == 'down' else one for one in LAYER_WEIGHTS\n"
        ")",
    )

    assert {one["shape"].split()[0] for one in refusals} == VARIANTS, text
    assert all("layer.down" in one["code"] and one["by"] == "ttnn" for one in refusals), text
    assert all("576" in one["message"] and "1536" in one["message"] for one in refusals), text


BODY = """
_body = body


def body(inputs, weights, stores, shape):
    hidden = _body(inputs, weights, stores, shape)
    {statement}
    return hidden
"""


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ttnn.full((32, 32), 1.0, dtype=ACTIVATION_DTYPE, layout=TILED, device=hidden.device())", "Tensor::to_device"),
        ("ttnn.to_torch(inputs.tokens)", "Tensor::cpu"),
        ("inputs.tokens.cpu()", "Tensor::cpu"),
    ],
)
def test_a_transfer_inside_the_body_that_a_trace_records_is_refused(mock_device, statement: str, name: str) -> None:
    refusals, text = refusals_of(mock_device("n150"), "smollm2_135m", BODY.format(statement=statement), ONE)

    assert [one["code"] for one in refusals] == [statement], text
    assert name in refusals[0]["message"] and "inside the body that a trace records" in refusals[0]["message"], text


def test_a_transfer_after_the_body_is_none_of_a_trace(mock_device) -> None:
    path = smallest_module("n150")
    source = appended(
        path, "_logits = logits\n\n\ndef logits(*args):\n    args[1].cpu()\n    return _logits(*args)", passes=ONE
    )

    assert checked(mock_device("n150"), path, source)["passed"]


@pytest.mark.parametrize("board", BOARDS)
def test_a_page_table_seventeen_entries_wide_is_refused(mock_device, board: str) -> None:
    refusals, text = refusals_of(
        mock_device(board),
        "smollm2_135m",
        "import dataclasses",
        "[dataclasses.replace(one, read_pages=17) for one in TRACES if one.variant == 'chunked'][:1]",
    )

    assert "page_table" in refusals[0]["code"] or "read_table" in refusals[0]["code"], text
    assert "page" in refusals[0]["message"].lower(), text


@pytest.mark.parametrize("board", BOARDS)
def test_an_argument_that_the_library_does_not_have_is_refused_with_its_line(mock_device, board: str) -> None:
    path = smallest_module(board)
    source = appended(path, "", passes=FIRST_OF_EACH).replace("is_decode_mode=False", "decode=False")
    verdict = checked(mock_device(board), path, source)
    text = described(verdict["refusals"])

    assert {one["shape"].split()[0] for one in verdict["refusals"]} == VARIANTS, text
    for one in verdict["refusals"]:
        assert (
            one["file"] == f"generated/smollm2_135m/{board}.py" and "incompatible function arguments" in one["message"]
        )
        assert "decode=False" in one["code"] and "rotary_embedding" in source.splitlines()[one["line"] - 1], text


@pytest.mark.parametrize("board", BOARDS)
def test_attention_chunks_that_overflow_a_core_are_refused_at_the_stated_limit(mock_device, board: str) -> None:
    refusals, text = refusals_of(
        mock_device(board),
        "smollm2_135m",
        "for program in ATTENTION.values():\n    program.q_chunk_size, program.k_chunk_size = 512, 1024",
    )
    by_library = [one for one in refusals if one["by"] == "ttnn"]

    assert {one["shape"].split()[0] for one in by_library} == VARIANTS, text
    assert all("beyond max L1 size of" in one["message"] for one in by_library), text


@pytest.mark.parametrize("board", BOARDS)
def test_a_store_that_does_not_fit_the_board_is_refused_at_the_line_that_states_it(mock_device, board: str) -> None:
    refusals, text = refusals_of(
        mock_device(board),
        "smollm2_135m",
        "import dataclasses\n"
        "STORES = tuple(dataclasses.replace(store, shape=(1 << 22, *store.shape[1:])) for store in STORES)",
    )

    assert [one["shape"] for one in refusals] == ["allocation"], text
    assert "keys (4194304, " in text and "Out of Memory" in text and 'Store("keys"' in refusals[0]["code"]


@pytest.mark.parametrize("board", BOARDS)
def test_a_tensor_used_after_its_release_is_refused(mock_device, board: str) -> None:
    path = smallest_module(board)
    source = appended(path, "", passes=FIRST_OF_EACH)
    assert "ttnn.deallocate(normed)" in source, "nothing to alter"
    verdict = checked(
        mock_device(board), path, source.replace("ttnn.deallocate(normed)", "ttnn.deallocate(query_key_value)")
    )

    assert verdict["refusals"] and any("nlp_create_qkv_heads" in one["code"] for one in verdict["refusals"])


def test_a_body_that_returns_another_size_is_refused(mock_device) -> None:
    refusals, text = refusals_of(
        mock_device("n150"), "smollm2_135m", BODY.format(statement="hidden = ttnn.concat([hidden, hidden], dim=2)"), ONE
    )

    assert [(one["function"], one["by"]) for one in refusals] == [("body", "codegen")], text
    assert "returns (1, 1, 448, 576) for single 1x224, where (1, 1, 224, 576) belongs" in text


def test_a_module_that_keeps_device_memory_is_refused(mock_device) -> None:
    path = smallest_module("n150")
    source = appended(path, BODY.format(statement="BOARD.__class__.kept = hidden"), passes=ONE)
    refusals = checked(mock_device("n150"), path, source)["refusals"]

    assert [one["shape"] for one in refusals] == ["after the last pass"] and "stay allocated" in refusals[0]["message"]


def test_a_module_that_cannot_be_imported_is_refused_and_named(mock_device) -> None:
    path = smallest_module("n150")
    source = path.read_text().replace("math_approx_mode=False", "approximate=False")
    refusals = checked(mock_device("n150"), path, source)["refusals"]
    text = described(refusals)

    assert [one["shape"] for one in refusals] == ["import"], text
    assert "incompatible function arguments" in text and "WormholeComputeKernelConfig" in refusals[0]["code"], text


def test_a_module_that_does_not_parse_is_refused_at_its_line(mock_device) -> None:
    path = smallest_module("n150")
    source = path.read_text() + "\nbody = (\n"
    refusals = checked(mock_device("n150"), path, source)["refusals"]

    assert [(one["shape"], one["line"], one["code"]) for one in refusals] == [
        ("import", source.count("\n"), "body = (")
    ]

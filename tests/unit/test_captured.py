"""Modelled time of a captured pass, on reports small enough to compute by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from generator.captured import _program, modelled
from generator.geometry import Resolved
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from runtime.legality.programs import described
from tests.support.building import resolved

TILE_BYTES = {"bfloat16": 2048, "bfloat8_b": 1088}
PEAK = {"lofi": 8e12, "hifi2": 4e12, "hifi3": 3e12, "hifi4": 2e12}
MATMUL = "2d 2x2 k2 sub 1x2 block 2x2 core 2x4"


def numbers(layers: int = 2) -> Resolved:
    """SmolLM2 (9 heads of 64, context 8192) on 64 cores with round rates: 1e9 cycles, 1e11 bytes of DRAM a second."""
    model = resolved("smollm2-135m", "n150")
    rates = replace(
        model.board.rates,
        dram_bytes_per_second=1e11,
        clock_hertz=1e9,
        network_bytes_per_cycle=32,
        peak_flops=PEAK,
        traced_launch_seconds=1e-6,
    )
    return replace(model, layers=layers, board=replace(model.board, rates=rates))


def tensor(*shape: int, dtype: str = "bfloat16", buffer: str = "DRAM") -> dict[str, Any]:
    rows = shape[-2] * (shape[0] * shape[1] if len(shape) == 4 else 1)
    size = rows * shape[-1] // 1024 * TILE_BYTES[dtype]
    return {"shape": list(shape), "dtype": dtype, "layout": "TILE", "buffer": buffer, "bytes": size}


def call(
    name: str,
    operation: str,
    inputs: list,
    outputs: list,
    layer: int | None = 0,
    cores: int = 64,
    program: str = "",
    function: str = "attention",
):
    return {
        "call": f"ttnn.{name}",
        "function": function,
        "operation": operation,
        "layer": layer,
        "inputs": inputs,
        "outputs": outputs,
        "cores": cores,
        "program": program,
    }


def of(
    *calls: dict[str, Any], layers: int = 2, variant: str = "single", rows: int = 1, tokens: int = 128
) -> dict[str, Any]:
    report = {"shape": {"variant": variant, "rows": rows, "tokens": tokens}, "calls": list(calls)}
    return modelled(report, numbers(layers))


def matmul(
    dtype: str = "bfloat16", buffer: str = "DRAM", program: str = MATMUL, layer: int | None = None
) -> dict[str, Any]:
    """[4, 8] x [8, 8] tiles."""
    weight = tensor(256, 256, dtype=dtype)
    inputs, outputs = [tensor(1, 1, 128, 256, buffer=buffer), weight], [tensor(1, 1, 128, 256, buffer=buffer)]
    return call("linear", "MatmulDeviceOperation", inputs, outputs, layer, program=program)


def added(*calls: dict[str, Any], layers: int = 2) -> dict[str, float]:
    """What the calls add to a pass that has a matmul, as every pass has."""
    alone, all_of_them = (of(*some, matmul(buffer="L1"), layers=layers) for some in ((), calls))
    return {name: all_of_them[name] - alone[name] for name in ("seconds", "dram_bytes")}


def test_a_matmul_takes_the_cycles_of_its_configuration() -> None:
    """A core's 2x4 tiles over 8 inner: 64 products of 4 x 16 cycles at 3/4 for pairs are 5461; packing
    8 x 4 steps x 64 = 2048, fetching 8 x (2 x 2 + 4 x 1) x 2048 / 32 = 4096; and 1000 for each of 4 steps of 2 blocks.
    """
    seconds = (64 * 64 / 0.75 + 8000) * 1e-9
    result = of(matmul(buffer="L1"))
    assert result["seconds"] == pytest.approx(seconds + 1e-6)
    assert result["bound"] == {"dram": 0.0, "network": 0.0, "compute": 1.0}
    assert result["dram_bytes"] == 64 * 2048  # the weight alone
    assert of(matmul())["dram_bytes"] == (64 + 32 + 32) * 2048
    assert result["roofline_seconds"] == pytest.approx(
        2 * 128 * 256 * 256 / 2e12
    )  # longer than the weight's 1.3 microseconds
    assert result["over_roofline"] == pytest.approx(result["seconds"] / result["roofline_seconds"])
    assert result["busy_cores"] == 1.0


def test_a_weight_in_block_floats_takes_half_the_passes_and_half_the_bytes() -> None:
    """Two passes, 2731 cycles of products; fetching 8 x (4 x 2048 + 4 x 1088) / 32 = 3136 is more."""
    result = of(matmul("bfloat8_b", "L1"))
    assert result["seconds"] == pytest.approx((3136 + 8000) * 1e-9 + 1e-6)
    assert result["dram_bytes"] == 64 * 1088
    assert result["roofline_seconds"] == pytest.approx(2 * 128 * 256 * 256 / 4e12)


def test_a_bias_is_read_too() -> None:
    with_bias = matmul(buffer="L1")
    with_bias["inputs"].append(tensor(1, 1, 32, 256))
    assert of(with_bias)["dram_bytes"] == (64 + 8) * 2048


def test_a_matmul_in_little_time_waits_for_its_weight() -> None:
    """Through a DRAM a hundred times slower: 131072 bytes at 1e9 a second."""
    report = {"shape": {"variant": "single", "rows": 1, "tokens": 128}, "calls": [matmul(buffer="L1")]}
    model = numbers()
    slow = replace(model, board=replace(model.board, rates=replace(model.board.rates, dram_bytes_per_second=1e9)))
    result = modelled(report, slow)
    assert result["seconds"] == pytest.approx(131072e-9 + 1e-6) and result["bound"]["dram"] == 1.0
    assert result["roofline_seconds"] == pytest.approx(131072e-9)


def test_gated_pairs_keep_a_cores_columns_even() -> None:
    """[4, 8] x [8, 24] tiles on 8 x 8: tokens over 8 rows of cores, 1 each; 12 pairs over 8 columns, 4 tiles each.
    4 x 8 products of 64 cycles at 3/4, and 1000 for each of 4 steps of one block."""
    inputs = [tensor(1, 1, 128, 256, buffer="L1"), tensor(256, 768)]
    outputs = [tensor(1, 1, 128, 384, buffer="L1")]
    program = "minimal 8x8 blocks 1x2x4 sub 1x2"
    result = of(call("experimental.minimal_matmul", "MinimalMatmulDeviceOperation", inputs, outputs, None, 64, program))
    fetch = 8 * (1 + 4) * 2048 / 32  # 2560
    assert fetch < 32 * 64 / 0.75
    assert result["seconds"] == pytest.approx((32 * 64 / 0.75 + 4000) * 1e-9 + 1e-6)
    assert result["dram_bytes"] == 8 * 24 * 2048
    assert result["roofline_seconds"] == pytest.approx(2 * 128 * 256 * 768 / 2e12)


def test_a_fused_residual_is_read_beside_the_product() -> None:
    """[4, 8] x [8, 12] tiles: a core makes 1 x 2, for which it fetches 8 x (1 + 2) tiles at 32 bytes a cycle:
    longer than 16 products. Residual, factors, weight and output go through DRAM."""
    residual, ones = tensor(1, 1, 128, 384), tensor(1, 1, 32, 384)
    inputs = [tensor(1, 1, 128, 256, buffer="L1"), tensor(256, 384), residual, ones]
    outputs = [tensor(1, 1, 128, 384)]
    program = "minimal 8x8 blocks 1x2x2 sub 1x2"
    name = "experimental.dit_minimal_matmul_addcmul_fused"
    result = of(call(name, "MinimalMatmulDeviceOperation", inputs, outputs, None, 64, program))
    assert result["seconds"] == pytest.approx((24 * 2048 / 32 + 4000) * 1e-9 + 1e-6)
    assert result["dram_bytes"] == (8 * 12 + 4 * 12 + 12 + 4 * 12) * 2048


def attention(name: str, inputs: list, outputs: list, program: str = "chunks q128 k128 on 8x8") -> dict[str, Any]:
    return call(f"transformer.{name}scaled_dot_product_attention", "SDPAOperation", inputs, outputs, None, 64, program)


def test_attention_sees_half_of_its_own_row() -> None:
    """9 heads in one chunk of 4 tile rows: one each for 9 cores, over (4 + 4) / 2 tiles of keys; 2 x 2 products of 64
    cycles and 300 of softmax a tile of scores."""
    query, keys = tensor(1, 9, 128, 64), tensor(1, 3, 128, 64)
    result = of(attention("", [query, keys, keys], [tensor(1, 1, 128, 576)]))
    assert result["seconds"] == pytest.approx(4 * 4 * (256 + 300) * 1e-9 + 1e-6)
    assert result["dram_bytes"] == (36 + 12 + 12 + 72 // 2) * 2048 * 2  # 9 heads of 4 x 2 tiles are 72: both ways
    assert result["roofline_seconds"] == pytest.approx(4 * 128 * 64.5 * 9 * 64 / 2e12)


def test_a_wave_is_as_much_attention_as_its_rows_one_by_one() -> None:
    """8 rows of 128: 72 units over 64 cores are two turns."""
    query, keys = tensor(1, 9, 1024, 64, buffer="L1"), tensor(1, 3, 1024, 64, buffer="L1")
    inputs = [query, keys, keys, {"shape": [9], "dtype": "int32", "layout": "ROW_MAJOR", "buffer": "DRAM", "bytes": 36}]
    result = of(attention("", inputs, [tensor(1, 1, 1024, 576, buffer="L1")]), variant="batched", rows=8)
    assert result["seconds"] == pytest.approx(2 * 4 * 4 * (256 + 300) * 1e-9 + 1e-6)
    assert result["dram_bytes"] == 36
    assert result["roofline_seconds"] == pytest.approx(8 * 4 * 128 * 64.5 * 9 * 64 / 2e12)


@pytest.mark.parametrize(("variant", "rows"), [("chunked", 1), ("chunked_batched", 4)])
def test_a_chunk_reads_its_rows_up_to_the_middle_of_the_context(variant: str, rows: int) -> None:
    """4096 tokens behind it, 128 tile rows, all seen: of both caches 4224 tokens a row, 3 heads of 2 tiles each."""
    query = tensor(rows, 9, 128, 64, buffer="L1")
    caches = tensor(1024, 3, 32, 64)
    output = tensor(rows, 9, 128, 64, buffer="L1")
    table = {"shape": [rows, 264], "dtype": "int32", "layout": "ROW_MAJOR", "buffer": "DRAM", "bytes": 1056}
    result = of(attention("chunked_", [query, caches, caches, table], [output]), variant=variant, rows=rows)
    read = 2 * rows * 132 * 3 * 2 * 2048
    assert result["dram_bytes"] == read
    compute = 4 * (128 + 4) * (256 + 300) * 1e-9  # up to 36 units: one for a core
    assert result["seconds"] == pytest.approx(max(compute, read / 1e11) + 1e-6)
    flops = 4 * rows * 128 * (4096 + 64.5) * 9 * 64
    assert result["roofline_seconds"] == pytest.approx(max(flops / 2e12, read / 1e11))


def test_an_embedding_reads_the_rows_that_it_returns_and_not_the_table() -> None:
    tokens = {"shape": [1, 128], "dtype": "uint32", "layout": "ROW_MAJOR", "buffer": "DRAM", "bytes": 512}
    table = {"shape": [49152, 576], "dtype": "bfloat16", "layout": "ROW_MAJOR", "buffer": "DRAM", "bytes": 56623104}
    rows = tensor(1, 1, 128, 576, buffer="L1")
    result = added(call("embedding", "EmbeddingsDeviceOperation", [tokens, table], [rows], None, 4))
    assert result["dram_bytes"] == 512 + 128 * 576 * 2
    assert result["seconds"] == pytest.approx(
        (512 + 2 * 147456) / 4 / 32 * 1e-9 + 1e-6
    )  # four cores are bound by their network


def test_a_cache_write_moves_the_tokens_and_not_the_cache() -> None:
    cache, source = tensor(1024, 3, 32, 64), tensor(1, 3, 128, 64, buffer="L1")
    table = {"shape": [1, 4], "dtype": "int32", "layout": "ROW_MAJOR", "buffer": "DRAM", "bytes": 16}
    result = added(
        call("experimental.paged_fill_cache", "PagedFillCacheDeviceOperation", [cache, source, table], [cache], None, 2)
    )
    assert result["dram_bytes"] == 24 * 2048
    assert result["seconds"] == pytest.approx(2 * 24 * 2048 / 2 / 32 * 1e-9 + 1e-6)


@pytest.mark.parametrize(("buffer", "dram"), [("DRAM", 3), ("L1", 0)])
def test_what_lies_in_l1_crosses_the_network_and_no_dram(buffer: str, dram: int) -> None:
    one = tensor(1, 1, 128, 576, buffer=buffer)
    result = added(call("add", "BinaryNgDeviceOperation", [one, one], [one], None))
    assert result["dram_bytes"] == dram * 72 * 2048
    assert result["seconds"] == pytest.approx(max(dram * 147456 / 1e11, 3 * 147456 / 64 / 32 / 1e9) + 1e-6)


def test_the_second_layer_stands_for_all_later_ones_and_what_is_outside_counts_once() -> None:
    def sized(width: int, layer: int | None) -> dict[str, Any]:
        one = tensor(1, 1, 128, width)
        return call("add", "BinaryNgDeviceOperation", [one, one], [one], layer)

    calls = [sized(32, None), sized(64, 0), sized(128, 1), sized(256, None)]
    for layers in (2, 30):
        tiles = 3 * (4 + 8 + 16 * (layers - 1) + 32)
        result = added(*calls, layers=layers)
        assert result["dram_bytes"] == tiles * 2048
        assert result["seconds"] == pytest.approx(tiles * 2048 / 1e11 + (3 + layers - 1) * 1e-6)
    only = added(sized(32, None), sized(64, 0), layers=1)
    assert only["dram_bytes"] == 3 * 12 * 2048


def test_shares_of_time_and_cores_are_weighted_by_seconds() -> None:
    """A sum through DRAM on all cores, one in L1 on two of them, and a matmul on 16, each with its launch."""
    outside, inside = (tensor(1, 1, 128, 64, buffer=buffer) for buffer in ("DRAM", "L1"))
    through_dram = call("add", "BinaryNgDeviceOperation", [outside, outside], [outside], None)
    in_l1 = call("add", "BinaryNgDeviceOperation", [inside, inside], [inside], None, cores=2)
    product = {**matmul(buffer="L1"), "cores": 16}
    moved = 3 * 8 * 2048
    dram, network, compute = moved / 1e11 + 1e-6, moved / 2 / 32e9 + 1e-6, (64 * 64 / 0.75 + 8000) * 1e-9 + 1e-6
    result = of(through_dram, in_l1, product)
    assert result["seconds"] == pytest.approx(dram + network + compute)
    for name, seconds in (("dram", dram), ("network", network), ("compute", compute)):
        assert result["bound"][name] == pytest.approx(seconds / result["seconds"])
    assert result["busy_cores"] == pytest.approx((dram + network * 2 / 64 + compute / 4) / result["seconds"])


@pytest.mark.parametrize("text", ["", "reuse 8x8 k2", "2d 8x8 k2 sub 1x1", "minimal 8x8 blocks 1x2x4"])
def test_an_unknown_matmul_configuration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no matmul configuration that the model knows"):
        of(matmul(program=text))


@pytest.mark.parametrize("text", ["", "chunks q128 on 8x8", "chunks q128 k128 on 8x8 and more"])
def test_an_unknown_attention_configuration_is_refused(text: str) -> None:
    one = tensor(1, 9, 128, 64)
    with pytest.raises(ValueError, match="is no attention configuration that the model knows"):
        of(attention("", [one, one, one], [one], program=text))


class Printed:
    """A configuration that prints as the library's own do; tests/device holds the real ones to the same."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


BLOCKS = (
    "compute_with_storage_grid_size={0}-{1},in0_block_w={2},out_subblock_h={3},out_subblock_w={4},out_block_h={5},"
    "out_block_w={6},per_core_M={7},per_core_N={8}"
)
PRINTED = {
    "multicast_2d": f"MatmulMultiCoreReuseMultiCastProgramConfig({BLOCKS},transpose_mcast=0,"
    "fused_activation=std::nullopt,fuse_batch=1,allowed_worker_cores=std::nullopt)",
    "multicast_1d": f"MatmulMultiCoreReuseMultiCast1DProgramConfig({BLOCKS},fuse_batch=1,fused_activation=std::nullopt,"
    "mcast_in0=1,gather_in0=0,hop_cores={{}},num_global_cb_receivers=1,untilize_out=0)",
    "minimal": "MinimalMatmulConfig(M_block_size={2},K_block_size={3},N_block_size={4},subblock_h={5},subblock_w={6},"
    "compute_with_storage_grid_size={0}-{1})",
}


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize(("model", "target"), [("llama-3.1-8b", "n150"), ("smollm2-135m", "p150")])
def test_the_text_of_every_program_is_read_back_as_the_program(model: str, target: str, invariant: bool) -> None:
    build = replace(resolved(model, target), batch_invariant=invariant)
    chosen = choose_programs(build, enumerate_shapes(build)).matmuls
    for program in chosen.values():
        assert _program(described(Printed(PRINTED[program.form].format(*program.numbers)))) == program
    assert {program.form for program in chosen.values()} >= {"multicast_2d", "multicast_1d" if invariant else "minimal"}


def test_the_text_of_attention_chunks_is_read_back() -> None:
    """18 units of two tile rows, one for a core, over (4 + 2) / 2 tiles of keys."""
    text = (
        "SDPAProgramConfig(compute_with_storage_grid_size=8-8, sub_core_grids=std::nullopt, q_chunk_size=64, "
        "k_chunk_size=128, exp_approx_mode=std::nullopt, max_cores_per_head_batch=16)"
    )
    query, keys = tensor(1, 9, 128, 64, buffer="L1"), tensor(1, 3, 128, 64, buffer="L1")
    result = of(attention("", [query, keys, keys], [query], described(Printed(text))))
    assert result["seconds"] == pytest.approx(2 * 3 * (256 + 300) * 1e-9 + 1e-6)


def test_the_selection_of_tails_is_work_that_a_roofline_does_not_count() -> None:
    """It is a product of a table of ones and zeros; what it moves is the module's own doing, not the model's."""
    chosen, product = matmul(), matmul()
    chosen["function"] = "advance_tails"
    assert of(chosen, matmul())["seconds"] == of(product, matmul())["seconds"]
    assert of(chosen, matmul())["roofline_seconds"] == of(matmul())["roofline_seconds"]
    assert of(product, matmul())["roofline_seconds"] == pytest.approx(2 * of(matmul())["roofline_seconds"])

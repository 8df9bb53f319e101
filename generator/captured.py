"""The modelled time of a pass from what was captured of it: tensors, core ranges and configurations of every operation.

Input is one report of `codegen legal` as plain data; see `runtime.legality.measure`. Operations of the two captured layers
stand for all: what lies outside of layers counts once, a layer as often as the model has layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from generator import recurrences
from generator.attentions import Attention, attention_cycles
from generator.cost import Work, time_of
from generator.experts import expected_tiles, expert_bytes, expert_cycles, scatter_cycles
from generator.geometry import Resolved, resolve
from generator.kinds.experts import cut
from generator.manifest import load
from generator.matmuls import Matmul, MinimalMatmul, fidelity, program_cycles
from generator.targets import load_board
from generator.tiles import TILE, TILE_BYTES, tiles

_MULTICAST = re.compile(r"(1d|2d) (\d+)x(\d+) k(\d+) sub (\d+)x(\d+) block (\d+)x(\d+) core (\d+)x(\d+)")
_MINIMAL = re.compile(r"minimal (\d+)x(\d+) blocks (\d+)x(\d+)x(\d+) sub (\d+)x(\d+)")
_CHUNKS = re.compile(r"chunks q(\d+) k(\d+) on (\d+)x(\d+)")
MATMULS = ("ttnn.linear", "ttnn.experimental.minimal_matmul", "ttnn.experimental.dit_minimal_matmul_addcmul_fused")
EXPERTS = "ttnn.experimental.deepseek_prefill.moe_fused_swiglu"

SELECTION = "advance_tails"  # whose product reads no weight
DELTA_RULE = {
    "ChunkGdnPrepOperation": recurrences.PREPARE,
    "ChunkGdnScanOperation": recurrences.SCAN,
    "ChunkGdnDeviceOperation": recurrences.FUSED,
}

Call = Mapping[str, Any]


@dataclass(frozen=True)
class Ideal:
    """What an operation cannot do without: bytes that have to come out of DRAM, and seconds of all matrix units at full rate."""

    dram_bytes: float = 0.0
    compute_seconds: float = 0.0


def add_modelled_time(verdict: dict[str, Any], manifests: Path) -> None:
    """Fill `modelled` of every pass that was captured, for the verdict on one module of `codegen legal`."""
    resolved = resolve(load(manifests, verdict["model"]), load_board(manifests, verdict["target"]))
    for report in verdict["shapes"]:
        report["modelled"] = modelled(report, resolved) if report["calls"] else None


def modelled(report: Mapping[str, Any], resolved: Resolved) -> dict[str, Any]:
    """Seconds of a pass up to its likeliest token by the model and by the roofline of the board, and where they go.

    `roofline_seconds`: weights and caches once through DRAM, or all products at the peak rate of their fidelity, whichever
    is longer, with no launch, no intermediate and no idle core. `bound`: share of the seconds by what bounds an operation.
    `dram_bytes`: everything read and written. `busy_cores`: share of the cores that work, weighted by seconds. A chunk is
    taken in the middle of the context.
    """
    rates, cores = resolved.board.rates, resolved.board.cores
    seconds = dram_bytes = busy = ideal_bytes = ideal_compute = 0.0
    bound = {"dram": 0.0, "network": 0.0, "compute": 0.0}
    for call, times in _at_full_depth(report["calls"], resolved.layer_kinds):
        work, ideal = _work(call, report["shape"], resolved)
        time = time_of(work, rates)
        seconds += times * time.seconds
        bound[time.bound] += times * time.seconds
        dram_bytes += times * work.dram_bytes
        busy += times * time.seconds * min(call["cores"], cores) / cores
        ideal_bytes += times * ideal.dram_bytes
        ideal_compute += times * ideal.compute_seconds
    roofline = max(ideal_bytes / rates.dram_bytes_per_second, ideal_compute)
    return {
        "seconds": seconds,
        "roofline_seconds": roofline,
        "over_roofline": seconds / roofline,
        "bound": {name: share / seconds for name, share in bound.items()},
        "dram_bytes": round(dram_bytes),
        "busy_cores": busy / seconds,
    }


def _at_full_depth(calls: Iterable[Call], kinds: tuple[str, ...]) -> Iterable[tuple[Call, int]]:
    """Each captured call and how often a whole pass runs it: of each kind of layers, the first captured one after layer 0
    stands for all that were not captured.
    """
    last = max((call["layer"] for call in calls if call["layer"] is not None), default=0)
    captured, later = kinds[1 : last + 1], kinds[last + 1 :]
    stands_for = {captured.index(kind) + 1 if kind in captured else 0: later.count(kind) for kind in set(later)}
    for call in calls:
        yield call, 1 + stands_for.get(call["layer"], 0)


def _work(call: Call, shape: Mapping[str, Any], resolved: Resolved) -> tuple[Work, Ideal]:
    if call["call"] in MATMULS:
        return _matmul(call, resolved)
    if call["call"].endswith("scaled_dot_product_attention"):
        return _attention(call, shape, resolved)
    if call["call"] == EXPERTS:
        return _experts(shape, resolved)
    if call["operation"] in DELTA_RULE:
        return _delta_rule(call, shape, resolved)
    operands = [*call["inputs"], *call["outputs"]]
    if call["call"] == "ttnn.scatter":
        target, index = (operand["shape"] for operand in call["inputs"][:2])
        cycles = scatter_cycles(resolved.board.rates.core, prod(target[:-1]), target[-1], index[-1], call["cores"])
        return Work(_in_dram(operands), cycles=cycles), Ideal()
    if call["operation"].startswith("PagedFillCache"):  # reads the tokens, writes as many into the cache it was given
        source = call["inputs"][1]
        operands = [source, {**source, "buffer": "DRAM"}]
    elif call["operation"].startswith("Slice"):  # reads no more than it returns
        operands = [call["outputs"][0], {**call["outputs"][0], "buffer": call["inputs"][0]["buffer"]}]
    elif call["operation"].startswith("Copy"):  # writes into what it was given
        operands = [call["inputs"][0], call["outputs"][0]]
    elif call["operation"].startswith("Embeddings"):  # reads the rows that it returns and not the whole table
        operands = [call["inputs"][0], call["outputs"][0], {**call["outputs"][0], "buffer": "DRAM"}]
    moved = sum(operand["bytes"] for operand in operands)
    return Work(_in_dram(operands), moved / max(call["cores"], 1)), Ideal()


def _experts(shape: Mapping[str, Any], resolved: Resolved) -> tuple[Work, Ideal]:
    """One part of all experts, were the choice of experts uniform: weights of those that see a token, and their tile rows."""
    mixture, chosen, tokens = resolved.experts, cut(resolved), shape["rows"] * shape["tokens"]
    seen, tile_rows = expected_tiles(tokens, mixture)
    hidden, width = tiles(resolved.hidden), tiles(mixture.intermediate)
    weights = seen * expert_bytes(hidden, width, chosen, resolved.dtypes.experts)
    moved = 2 * tile_rows * hidden * TILE_BYTES["bfloat16"]
    cycles = expert_cycles(resolved.board.rates.core, hidden, width, tile_rows, chosen, resolved.dtypes.experts)
    flops = 6 * tokens * mixture.per_token * resolved.hidden * mixture.intermediate / chosen.parts
    rate = resolved.board.rates.peak_flops[fidelity(resolved.dtypes.experts).lower()]
    return Work(weights + moved, cycles=cycles), Ideal(weights, flops / rate)


def _delta_rule(call: Call, shape: Mapping[str, Any], resolved: Resolved) -> tuple[Work, Ideal]:
    """One of the operation's programs, by the heads that its outputs have; products of the rule are no ideal's, since it
    could be run otherwise.
    """
    program, heads = DELTA_RULE[call["operation"]], call["outputs"][0]["shape"][0]
    cycles = recurrences.program_cycles(program, resolved.gated_delta_net, shape["tokens"], heads, resolved.board)
    return Work(_in_dram([*call["inputs"], *call["outputs"]]), cycles=cycles), Ideal()


def _in_dram(operands: Iterable[Mapping[str, Any]]) -> int:
    return sum(operand["bytes"] for operand in operands if operand["buffer"] == "DRAM")


def _matmul(call: Call, resolved: Resolved) -> tuple[Work, Ideal]:
    left, weight = call["inputs"][:2]
    items = prod(weight["shape"][:-2])  # one after another, where each has a matrix of its own
    rows = tiles(prod(left["shape"][:-1]) // items)
    inner, columns = tiles(left["shape"][-1]), tiles(prod(weight["shape"][-2:]) // left["shape"][-1])
    cycles = items * program_cycles(
        resolved.board.rates.core, _program(call["program"]), rows, inner, columns, weight["dtype"]
    )
    flops = 2 * items * rows * inner * columns * TILE**3
    rate = resolved.board.rates.peak_flops[fidelity(weight["dtype"]).lower()]
    work = Work(_in_dram([*call["inputs"], *call["outputs"]]), cycles=cycles)
    if call["function"] == SELECTION:
        return work, Ideal()
    return work, Ideal(weight["bytes"], flops / rate)


def _program(text: str) -> Matmul | MinimalMatmul:
    if found := _MINIMAL.fullmatch(text):
        return MinimalMatmul(*map(int, found.groups()))
    found = _MULTICAST.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no matmul configuration that the model knows")
    columns, rows, inner, high, wide, block_rows, block_columns, core_rows, core_columns = map(int, found.groups()[1:])
    blocks = (inner, high, wide, block_rows, block_columns, core_rows, core_columns)
    return Matmul(f"multicast_{found[1]}", columns, rows, *blocks)


def _attention(call: Call, shape: Mapping[str, Any], resolved: Resolved) -> tuple[Work, Ideal]:
    found = _CHUNKS.fullmatch(call["program"])
    if found is None:
        raise ValueError(f"{call['program']!r} is no attention configuration that the model knows")
    query_chunk, key_chunk, columns, rows = map(int, found.groups())
    query, keys = call["inputs"][:2]
    cached = shape["variant"].startswith("chunked")
    before = resolved.context // 2 if cached else 0
    sliding = resolved.layer_kinds[call["layer"] or 0] == "sliding"
    behind = min(before, resolved.window_reach) if sliding else before
    cycles = attention_cycles(
        resolved.board.rates.core,
        Attention(query_chunk, key_chunk),
        shape["rows"] * tiles(shape["tokens"]) ** 2,
        shape["rows"] * shape["tokens"],
        behind,
        resolved.device_query_heads,
        resolved.head_dim,
        (columns, rows),
        keys["dtype"],
    )
    if cached:  # only the blocks of its own rows are read
        share = shape["rows"] * (behind + shape["tokens"]) / (keys["shape"][0] * keys["shape"][2])
        read = 2 * share * keys["bytes"]
        dram_bytes = _in_dram([query, *call["outputs"]]) + read
    else:
        read = 0.0
        dram_bytes = _in_dram([*call["inputs"], *call["outputs"]])
    seen = _keys_seen(before, shape["tokens"], resolved.sliding_window if sliding else 0)
    flops = 4 * shape["rows"] * shape["tokens"] * seen * resolved.device_query_heads * resolved.head_dim
    rate = resolved.board.rates.peak_flops[fidelity(keys["dtype"]).lower()]
    return Work(dram_bytes, cycles=cycles), Ideal(read, flops / rate)


def _keys_seen(before: int, tokens: int, window: int) -> float:
    """Keys that a token of a pass sees on average, itself among them; `window` bounds them where it is not 0."""
    growing = tokens if not window else min(max(window - before, 0), tokens)  # tokens that see all before them
    return (growing * before + growing * (growing + 1) / 2 + (tokens - growing) * window) / tokens

"""Run as a process of its own on a mock device: prints what one pass of each variant costs as scaled from two layers,
and as the library itself tells it of the whole depth. The same again with a tensor kept in L1.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from runtime.backend import ttnn
from runtime.legality import check, graph
from runtime.legality.emitted import load, name_of, run_pass

KEEP = """

_body = body


def body(inputs, weights, stores, shape):
    kept = ttnn.empty(
        (1, 1, 32 * BOARD.grid[0] * BOARD.grid[1], 200 * 32),
        dtype=ACTIVATION_DTYPE,
        layout=TILED,
        device=inputs.tokens.device(),
        memory_config=ttnn.L1_MEMORY_CONFIG,
    )
    hidden = _body(inputs, weights, stores, shape)
    ttnn.deallocate(kept)
    return hidden
"""


def captured(checked: check.Checked, shape: Any, mode: Any) -> list[dict[str, Any]]:
    inputs = checked.allocator.rows(checked.module.INPUTS[shape.variant](shape))
    ttnn.graph.begin_graph_capture(mode)
    run_pass(checked.module, inputs, checked.weights, checked.stores, shape)
    return ttnn.graph.end_graph_capture()


def pair(checked: check.Checked, with_tensor: check.Checked, shape: Any) -> dict[str, Any]:
    board, modes = checked.module.BOARD, ttnn.graph.RunMode
    report, kept = checked.run(shape)[0], with_tensor.run(shape)[0]
    normal, none = captured(checked, shape, modes.NORMAL), captured(checked, shape, modes.NO_DISPATCH)
    whole = ttnn.graph.extract_resource_usage_per_core(none)
    beside = ttnn.graph.extract_resource_usage_per_core(captured(with_tensor, shape, modes.NO_DISPATCH))
    executed = sum(node["node_type"] == "program_execution" for node in normal)
    lived = max(one.dram for one in graph.memory(normal, board.dram_banks, board.l1_limit))
    return {
        "pass": name_of(shape),
        "scaled": [report["operations"], report["dram_bytes"]["activations_peak"]],
        "full": [executed, lived],
        "l1_peak": report["l1_bytes"]["peak"],
        "library_l1_peak": whole.peak_total,
        "l1_peak_with_a_tensor": kept["l1_bytes"]["peak"],
        "library_l1_peak_with_a_tensor": beside.peak_total,
        "buffer_peak_with_a_tensor": kept["circular_buffer_bytes"]["peak"],
    }


def main(path: str) -> list[dict[str, Any]]:
    device, source = ttnn.open_device(device_id=0), open(path, encoding="utf-8").read()
    checked = check.Checked(device, path, load(path, source))
    with_tensor = check.Checked(device, f"{path} with a tensor", load(f"{path} with a tensor", source + KEEP))
    first_of = {shape.variant: shape for shape in reversed(checked.module.TRACES)}
    return [pair(checked, with_tensor, shape) for shape in first_of.values()]


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints
    print(json.dumps(main(sys.argv[1])), file=answers, flush=True)

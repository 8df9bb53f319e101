"""The runtime on a mock device of the real library: warm-up, calls of every ending, states moved between slots, capture,
refresh and cleanup of a module's narrow passes. Prints one JSON object. Nothing is computed, so it tells what is legal and
what is compiled.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import ttnn

from runtime.backend import open_device, trace_region
from runtime.expert_weights import arranged
from runtime.load import load
from runtime.prefill import Prefill
from runtime.request import Sampling
from runtime.stores import allocate
from runtime.tables import layer_kinds

REGION = 100_000_000
ENDINGS = (
    None,
    "argmax",
    Sampling(0.5, 3, 0.9, seed=7, log_probabilities=True),
    [Sampling(0.0), Sampling(2.0, seed=1)],
)


def narrow(module: Any) -> SimpleNamespace:
    """No wave above two rows."""
    narrowed = dict(vars(module))
    narrowed["TRACES"] = tuple([shape for shape in module.TRACES if shape.rows <= 2])
    narrowed["PROGRAMS"] = tuple([(shape.digest, ending) for shape in narrowed["TRACES"] for ending in module.SAMPLING])
    if "RECURRENCE" in narrowed:
        narrowed["RECURRENCE"] = {rows: form for rows, form in module.RECURRENCE.items() if rows <= 2}
    return SimpleNamespace(**narrowed)


def serve(path: str) -> dict[str, Any]:
    module = narrow(load(path))
    device = open_device(module.BOARD, trace_region_size=REGION)

    def empty(table: Any) -> dict[str, Any]:
        return {entry.name: made(entry) for entry in table}

    def made(entry: Any) -> Any:
        place = {"device": device, "memory_config": ttnn.DRAM_MEMORY_CONFIG}

        def one() -> Any:
            return ttnn.empty(entry.shape, dtype=entry.dtype, layout=entry.layout, **place)

        if not getattr(entry, "experts", 0):
            return one()
        return arranged(entry, lambda expert: [one() for _ in range(entry.parts)])

    def layer(kind: str) -> SimpleNamespace:
        return SimpleNamespace(
            **empty([entry for entry in module.LAYER_WEIGHTS if entry.kind in ("", kind)]), kind=kind
        )

    kinds = layer_kinds(module)[:4] or ("", "")  # two layers, or one of each kind and what lies before it
    weights = SimpleNamespace(**empty(module.WEIGHTS), layers=[layer(kind) for kind in kinds])
    length = module.PREFILL_CHUNK + module.ALIGNMENT
    tokens, pages = np.zeros((2, length), int), np.arange(2 * -(-length // module.BLOCK_SIZE)).reshape(2, -1)
    prefill = Prefill(module, device, weights, allocate(module, device, layers=len(kinds), blocks=pages.size))
    held = allocated(device)
    prefill.warm_up()
    compiled = device.num_program_cache_entries()
    for lengths in ([100, 90], [length, 200]):
        for sampling in ENDINGS:
            prefill.prefill_forward(tokens, pages, lengths, sampling=sampling)
    if any(kinds):
        move_states(prefill, module.PREFILL_CHUNK, tokens, pages)
    report = {
        "region": trace_region(device),
        "operations": {
            f"{s.variant} {s.rows}x{s.tokens}": prefill._bindings.registry.operations(s) for s in module.TRACES
        },
        "compiled_after_warm_up": device.num_program_cache_entries() - compiled,
        "held_after_calls": allocated(device) - held,
    }
    # A mock device records operations into a trace only where none is dispatched.
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    try:
        prefill.capture(decode_traces="none")
        report["captured"] = len(prefill.trace_bytes())
        report["refreshed"] = refresh(prefill, prefill.prepare(tokens, pages, [length, 200], sampling=ENDINGS[2]))
        prefill.cleanup()
    finally:
        ttnn.graph.end_graph_capture()
    return report | {"shapes": len(module.TRACES), "orphans": prefill.orphans}


def move_states(prefill: Prefill, first: int, tokens: Any, pages: Any) -> None:
    """A prompt in two slices: the second begins with the first one's state, which went through another slot."""
    prefill.prefill_forward(tokens[:1], pages[:1], [first], slots=[1], final=False)
    prefill.copy_state(1, 0)
    prefill.reset(1)
    prefill.restore(1, prefill.snapshot(0))
    prefill.prefill_forward(tokens[:1], pages[:1], [tokens.shape[1]], start_pos=[first], slots=[1])


def refresh(prefill: Prefill, plans: Any) -> int:
    """Everything of a traced run but the replay, which a mock device cannot do."""
    traced, chunks = prefill._traced, [(plan, chunk) for plan in plans for chunk in plan.chunks]
    for plan, chunk in chunks:
        traced.stager.refresh_pass(traced.bindings.registry.lookup(chunk.shape).inputs, plan, chunk)
    return len(chunks)


def allocated(device: Any) -> int:
    return ttnn.get_memory_view(device, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints
    print(json.dumps(serve(sys.argv[1])), file=answers, flush=True)

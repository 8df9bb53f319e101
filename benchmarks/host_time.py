"""What the host does for a call beside the device's own work: planning it, and copying its inputs before each replay.

Run on the emulator over passes of one small layer, whose inputs are as large as those of any model with these sizes. Beside the
times stand what a replay copies, and what the device allocates meanwhile, which must be nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import PROJECT, Figure, run_command, seconds_of

ROW_LIMIT_MICROSECONDS, WAVE_LIMIT_MICROSECONDS = 20, 150
CONTEXT, CHUNK, WAVE, ROW_TOKENS = 131072, 4096, 32, 128
TRACE_REGION = 1 << 30
PREPARES, COPIES = 2000, 50
RAGGED, RAGGED_TARGET, RAGGED_TOKENS = "llama-3.1-8b", "n150", 1024


def measure() -> list[Figure]:
    """Runs `main` in a process of its own: which backend a process has is decided at its first import."""
    rows = json.loads(run_command([sys.executable, "-m", "benchmarks.host_time"]).output.splitlines()[-1])
    return [Figure(name, unit, tuple(samples), limit) for name, unit, samples, limit in rows]


def emitted_module() -> Any:
    from benchmarks import planning
    from generator import inputs
    from generator.pipeline import emit
    from runtime.load import load

    file = planning.manifest(
        CONTEXT, CHUNK, WAVE * ROW_TOKENS, (ROW_TOKENS, CHUNK), WAVE * CONTEXT // planning.BLOCK // 8
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{planning.TARGET}.py"
        path.write_text(emit(planning.resolve(file), "planning.toml", inputs.TEMPLATES).text, encoding="utf-8")
        return load(path)


def calls(module: Any) -> dict[str, tuple[int, list[int]]]:
    """Name -> limit of planning it in microseconds (0: none), prompt lengths."""
    return {
        "1 row": (ROW_LIMIT_MICROSECONDS, [ROW_TOKENS]),
        f"{WAVE} rows": (WAVE_LIMIT_MICROSECONDS, [ROW_TOKENS] * WAVE),
        f"{CONTEXT // 1024}k tokens": (0, [CONTEXT]),
    }


def main() -> None:
    os.environ["PREFILL_BACKEND"] = "emulator"
    import numpy as np

    from runtime.backend import open_device
    from runtime.bindings import bind
    from runtime.prefill import Prefill
    from runtime.reference.parameters import RandomParameters
    from runtime.stores import allocate
    from runtime.traced import Traced
    from runtime.warm_up import warm_up
    from runtime.weights import load_weights

    module = emitted_module()
    device = open_device(module.BOARD, trace_region_size=TRACE_REGION)
    weights = load_weights(module, device, RandomParameters(module.GEOMETRY, 0))
    stores = allocate(module, device)
    prefill = Prefill(module, device, weights, stores)
    bindings = bind(module, device, weights, stores)
    traced = Traced(bindings)
    warm_up(bindings)
    traced.capture(TRACE_REGION)
    rows: list[tuple[str, str, tuple[float, ...], float | None]] = []
    for name, (limit, lengths) in calls(module).items():
        tokens = np.ones((len(lengths), max(lengths)), dtype=np.int32)
        width = -(-max(lengths) // module.BLOCK_SIZE)
        pages = np.arange(len(lengths) * width, dtype=np.int32).reshape(len(lengths), width)

        def prepare() -> Any:
            return prefill.prepare(tokens, pages, lengths)

        plans = prepare()
        passes = [(plan, chunk, bindings.registry.lookup(chunk.shape)) for plan in plans for chunk in plan.chunks]

        def refresh() -> None:
            for plan, chunk, trace in passes:
                bindings.stager.refresh_pass(trace.inputs, plan, chunk)

        rows.append((f"prepare {name}", "us", scaled(prepare, PREPARES), limit or None))
        rows.append((f"prepare {name} and copy its inputs", "us", scaled(lambda: (prepare(), refresh()), COPIES), None))
        counters = device.counters
        before = counters.allocations, counters.uploads, counters.upload_bytes
        refresh()
        copied = counters.uploads - before[1], counters.upload_bytes - before[2]
        for _, _, trace in passes[:1]:
            module.replay(device, trace.recording.trace)
        rows.append((f"uploads of a replay, {name}", "", (copied[0] / len(passes),), None))
        rows.append((f"bytes of a replay, {name}", "B", (copied[1] / len(passes),), None))
        rows.append((f"device allocations of refresh and replay, {name}", "", (counters.allocations - before[0],), 0))
    rows.append((f"prepare {WAVE} rows of any lengths, {RAGGED}", "us", packed(), None))
    print(json.dumps(rows))


def packed() -> tuple[float, ...]:
    """Microseconds to admit and plan rows of log-uniform lengths, which share ragged waves."""
    import numpy as np

    from generator.manifest import module_name
    from runtime.load import load
    from runtime.replay import Replay

    module = load(PROJECT / "generated" / module_name(RAGGED) / f"{RAGGED_TARGET}.py")
    replay, draws = Replay(module), np.random.default_rng(1)
    calls = [np.exp(draws.uniform(0, np.log(RAGGED_TOKENS), WAVE)).astype(int).tolist() for _ in range(PREPARES)]
    return tuple(1e6 * replay.plan(lengths, [0] * WAVE).seconds for lengths in calls)


def scaled(function: Callable[[], object], repeats: int) -> tuple[float, ...]:
    return tuple(1e6 * seconds for seconds in seconds_of(function, repeats))


if __name__ == "__main__":
    main()

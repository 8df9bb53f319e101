"""How long the emulator takes for one prompt, beside transformers on the same machine in the same process.

Both compute in float32 on the processor, with random weights of SmolLM2-135M's geometry: transformers with its fused attention and
the logits of the last token only, as a prefill needs them. The two take turns, so that other load on the machine meets both.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from benchmarks.measure import Figure, run_command

TOKENS = 512
REPEATS = 7
LIMIT_RATIO = 2
PRECISIONS = ("float32", "declared")
MODULE = "generated.smollm2_135m.n150"


def measure() -> list[Figure]:
    """Runs `main` in a process of its own: which backend a process has is decided at its first import."""
    seconds = json.loads(run_command([sys.executable, "-m", "benchmarks.prefill"]).output.splitlines()[-1])
    theirs = Figure(f"transformers, {TOKENS} tokens", "s", tuple(seconds["transformers"]))
    figures = [theirs]
    for precision in PRECISIONS:
        ours = Figure(f"emulated prefill, {TOKENS} tokens, {precision}", "s", tuple(seconds[precision]))
        ratio = ours.least / theirs.least
        figures += [ours, Figure(f"emulated prefill / transformers, {precision}", "x", (ratio,), LIMIT_RATIO)]
    return figures


def in_turn(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each function, called one after another `repeats` times, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    os.environ["PREFILL_BACKEND"] = "emulator"
    import torch

    from runtime import backend
    from runtime.load import load
    from runtime.prefill import Prefill
    from runtime.stores import allocate
    from runtime.verification.sources import Source, load_peer
    from runtime.weights import load_weights

    module = load(MODULE)
    peer = load_peer(Source("random", None), module.GEOMETRY)
    peer.model.set_attn_implementation("sdpa")
    tokens = torch.randint(module.VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    pages = torch.arange(-(-TOKENS // module.BLOCK_SIZE), dtype=torch.int32)[None]

    def transformers_prefill() -> None:
        with torch.no_grad():
            peer.model(tokens, logits_to_keep=1)

    def emulated_prefill(precision: str) -> Callable[[], object]:
        device = backend.open_device(module.BOARD, precision=precision)
        prefill = Prefill(module, device, load_weights(module, device, peer.tensors), allocate(module, device))
        return lambda: prefill.prefill_forward(tokens, pages, torch.tensor([TOKENS]))

    functions = {"transformers": transformers_prefill}
    functions.update({precision: emulated_prefill(precision) for precision in PRECISIONS})
    print(json.dumps(in_turn(functions, REPEATS)))


if __name__ == "__main__":
    main()

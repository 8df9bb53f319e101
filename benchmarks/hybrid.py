"""How long the emulator takes for one prompt of a tiny hybrid model, beside transformers' own chunked implementation in float32.

Three layers of linear attention to one of full attention, random weights, in the same process and in turns. Of transformers only
the logits of the last token are asked for, and its cache is kept, as a prefill needs it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, run_command
from benchmarks.prefill import in_turn

TOKENS = (512, 4096)
REPEATS = 5
LIMIT_RATIO = 2
EXACT = dict.fromkeys(("weights", "embedding", "head", "key_value", "activation"), "bfloat16")
MANIFEST: dict[str, Any] = {
    "name": "tiny-hybrid",
    "family": "qwen3_5",
    "source": "drawn at random",
    "model": {
        "vocabulary": 512,
        "hidden": 256,
        "intermediate": 512,
        "layers": 4,
        "query_heads": 4,
        "key_value_heads": 2,
        "head_dim": 64,
        "rotary_dimensions": 16,
        "maximum_context": 4096,
        "norm_epsilon": 1e-6,
        "activation": "silu",
        "tied_embeddings": False,
        "layer_kinds": ("gated_delta_net",) * 3 + ("full",),
        "gated_delta_net": {"key_heads": 2, "value_heads": 4, "key_dim": 64, "value_dim": 64, "kernel": 4},
        "rope": {"kind": "default", "theta": 1e6},
    },
    "target": {
        "p150": {
            "context": 4096,
            "block_size": 32,
            "key_value_blocks": 128,
            "lengths": (512, 2048),
            "waves": (1,),
            "wave_tokens": 2048,
            "prefill_chunk": 2048,
            "attention_chunk": 128,
            "state_slots": 1,
            "dtypes": EXACT,
        }
    },
}


def measure() -> list[Figure]:
    """Runs `main` in a process of its own: which backend a process has is decided at its first import."""
    seconds = json.loads(run_command([sys.executable, "-m", "benchmarks.hybrid"]).output.splitlines()[-1])
    figures = []
    for tokens in TOKENS:
        ours, theirs = (Figure(f"{who}, {tokens} tokens", "s", tuple(seconds[f"{who} {tokens}"])) for who in WHO)
        ratio = (ours.least / theirs.least,)
        figures += [theirs, ours, Figure(f"emulated hybrid / transformers, {tokens} tokens", "x", ratio, LIMIT_RATIO)]
    return figures


WHO = ("emulated hybrid", "transformers hybrid")


def build(folder: str) -> Path:
    """The emitted module of the tiny model."""
    from generator import catalog, geometry, inputs, manifest, targets
    from generator.pipeline import emit
    from generator.toml_source import scan

    file = manifest.check(MANIFEST, "tiny-hybrid.toml", scan(""), ("p150",))
    resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, "p150"))
    path = Path(folder) / "p150.py"
    path.write_text(emit(resolved, "tiny-hybrid.toml", inputs.TEMPLATES).text, encoding="utf-8")
    return path


def main() -> None:
    os.environ["PREFILL_BACKEND"] = "emulator"
    import torch

    from runtime import backend
    from runtime.load import load
    from runtime.prefill import Prefill
    from runtime.stores import allocate
    from runtime.verification.sources import Source, load_peer
    from runtime.weights import load_weights

    with tempfile.TemporaryDirectory() as folder:
        module = load(build(folder))
    peer = load_peer(Source("random", None), module.GEOMETRY)
    peer.model.set_attn_implementation("sdpa")
    device = backend.open_device(module.BOARD, precision="float32")
    prefill = Prefill(module, device, load_weights(module, device, peer.tensors), allocate(module, device))
    prompt = torch.randint(module.VOCABULARY, (1, max(TOKENS)), generator=torch.Generator().manual_seed(1))
    pages = torch.arange(module.CONTEXT // module.BLOCK_SIZE, dtype=torch.int32)[None]

    def theirs(tokens: int) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return peer.model(prompt[:, :tokens], logits_to_keep=1, use_cache=True).logits

        return run

    def ours(tokens: int) -> Callable[[], object]:
        return lambda: prefill.prefill_forward(prompt[:, :tokens], pages, torch.tensor([tokens]))

    functions = {}
    for tokens in TOKENS:
        functions |= {f"{WHO[0]} {tokens}": ours(tokens), f"{WHO[1]} {tokens}": theirs(tokens)}
    print(json.dumps(in_turn(functions, REPEATS)))


if __name__ == "__main__":
    main()

"""Compare an emitted module, run as an engine would run it, with the torch reference and with transformers."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from runtime.backend import ttnn
from runtime.errors import WeightError
from runtime.prefill import Prefill
from runtime.stores import allocate
from runtime.verification.comparison import Agreement, agreement, likeliest, relative_error
from runtime.verification.expected import Expected, expect, peer_logits
from runtime.verification.measure import caches, layer_outputs
from runtime.verification.prompts import PROMPTS
from runtime.verification.report import PEERS, Case, Gate, LayerRow, Report
from runtime.verification.routes import ROUTES, Outcome, assign_pages
from runtime.verification.sources import load_peer, locate
from runtime.weights import load_weights

PRECISIONS = ("float32", "declared")
FLOAT32_ERROR = 1e-4
PCC = 0.99
PCC_BFLOAT16_WEIGHTS = 0.999
PEER_ERROR = 1e-4  # the reference's own distance from transformers, both in float32
LIKELIEST = 5
LENGTHS_WITHOUT_TOKENIZER = (1, 31, 32, 33, 127, 129, 300, 600)
SEED = 7

Progress = Callable[[str], None]


def main_verification(
    module: ModuleType,
    *,
    weights: str = "auto",
    prompts: Sequence[str] | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
    package_file: tuple[str, str] | None = None,
) -> Report:
    """Verify `module` with the weights of `weights`: "auto" (the file that `package_file` names in an installed package), "random"
    or a path. `prompts` default to eight and more of this project's own; `precision` to both of PRECISIONS where the backend has
    both. `progress` is told each step in words.

    The peers run one after another, and the transformers model is gone before the reference runs on its parameters, so that one
    copy of the weights is held beside the device's. Raises WeightError, and PrefillError where a prompt cannot be served.
    """
    say = progress or (lambda text: None)
    precisions = _precisions(precision)
    source = locate(weights, package_file)
    say(f"loading {source} into transformers")
    peer = load_peer(source, module.GEOMETRY)
    texts, tokens = _tokenize(module, peer.tokenizer, prompts)
    say(f"transformers answers {len(tokens)} prompts")
    peer_rows, peer_seconds = peer_logits(peer.model, tokens)
    tensors, tokenizer = peer.tensors, peer.tokenizer
    del peer
    gc.collect()  # a model is a knot of references that only the collector unties
    say("the reference answers")
    expected = [
        expect(module.GEOMETRY, tensors, ids, logits, seconds, keep_hidden=len(ids) == max(map(len, tokens)))
        for ids, logits, seconds in zip(tokens, peer_rows, peer_seconds)
    ]
    cases: list[Case] = []
    layers: list[LayerRow] = []
    gates = tuple(gate(module, name) for name in precisions)
    for rule in gates:
        say(f"loading weights onto the device, {rule.precision} precision")
        device = open_device(module, rule.precision)
        try:
            on_device = load_weights(module, tensors, device)
            bench = Bench(module, device, on_device, allocate(module, device), tokenizer)
            found, rows = bench.compare(expected, rule, say)
            cases += found
            layers += rows
        finally:
            ttnn.close_device(device)
    return Report(
        module.MODEL, module.TARGET, BACKEND, str(source), texts, gates, tuple(cases), tuple(layers), _peak_memory()
    )

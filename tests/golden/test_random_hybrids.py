"""Random legal geometries of hybrid models, emitted and run on the emulator against the reference, with random requests that go
on where others ended.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runtime.backend import open_device, ttnn
from runtime.prefill import Prefill
from runtime.reference.dense import Cache, forward
from runtime.reference.parameters import RandomParameters
from runtime.stores import allocate
from runtime.verification.comparison import relative_error
from runtime.weights import load_weights
from tests.support.golden import EXACT, build_module

GEOMETRIES_A_FAMILY = 6
REQUESTS = 4
LIMIT = 1e-4
FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_moe")


def multiples(unit: int, least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most).map(lambda count: unit * count)


@st.composite
def manifests(draw: st.DrawFn, family: str) -> dict[str, Any]:
    """Heads of any number and width, kinds of layers in any order, and a target of any lengths that they allow."""
    key_heads, key_dim = draw(st.integers(1, 3)), draw(st.sampled_from([32, 64]))
    net = {
        "key_heads": key_heads,
        "value_heads": key_heads * draw(st.sampled_from([1, 2, 3, 12])),
        "key_dim": key_dim,
        "value_dim": draw(st.sampled_from([key_dim, key_dim, 32, 64])),
        "kernel": 4,
    }
    chunk = 32 if net["key_dim"] == net["value_dim"] else 64
    kinds = draw(st.lists(st.sampled_from(["gated_delta_net", "full"]), min_size=0, max_size=2))
    key_value_heads, head_dim = draw(st.integers(1, 2)), draw(st.sampled_from([64, 128]))
    model: dict[str, Any] = {
        "vocabulary": draw(st.integers(33, 300)),
        "hidden": draw(multiples(32, 1, 4)),
        "layers": len(kinds) + 2,
        "layer_kinds": tuple(draw(st.permutations(["gated_delta_net", "full", *kinds]))),
        "query_heads": key_value_heads * draw(st.integers(1, 3)),
        "key_value_heads": key_value_heads,
        "head_dim": head_dim,
        "maximum_context": 1 << 20,
        "norm_epsilon": 1e-6,
        "activation": "silu",
        "tied_embeddings": draw(st.booleans()),
        "rope": {"kind": "default", "theta": 1e4},
        "rotary_dimensions": head_dim // 4,
        "gated_delta_net": net,
    }
    if family == "qwen3_5":
        model["intermediate"] = draw(multiples(32, 1, 6))
    else:
        model["experts"] = {
            "count": draw(st.integers(2, 8)),
            "per_token": draw(st.integers(1, 2)),
            "intermediate": draw(multiples(32, 3, 6)),
            "shared_intermediate": draw(multiples(32, 1, 4)),
            "renormalise": True,
        }
    block, attention_chunk = draw(st.sampled_from([32, 64])), draw(st.sampled_from([32, 64, 128]))
    alignment = math.lcm(block, attention_chunk, chunk)
    largest = alignment * draw(st.integers(1, 2))
    shorter = draw(st.sets(multiples(max(block, chunk), 1, largest // max(block, chunk)), max_size=2))
    context = 3 * largest
    target = {
        "context": context,
        "block_size": block,
        "key_value_blocks": 4 * context // block,
        "lengths": tuple(sorted({*shorter, largest})),
        "waves": draw(st.sampled_from([(1,), (1, 2), (1, 4), (1, 2, 8)])),
        "wave_tokens": 8 * largest,
        "prefill_chunk": largest,
        "attention_chunk": attention_chunk,
        "state_slots": draw(st.integers(8, 9)),
        "dtypes": EXACT,
    }
    if draw(st.booleans()) and all(length % 64 == 0 for length in target["lengths"]):
        target["recurrence"] = "matmuls"
    board = draw(st.sampled_from(["n150", "p150"]))
    return {"name": "drawn", "family": family, "source": "tests", "model": model, "target": {board: target}}


class Bench:
    """One geometry with random weights, and what each slot has seen."""

    def __init__(self, data: dict[str, Any], seed: int) -> None:
        self.module = build_module(data)
        self.device = open_device(self.module.BOARD, precision="float32")
        self.parameters = RandomParameters(self.module.GEOMETRY, seed)
        self.stores = allocate(self.module, self.device)
        weights = load_weights(self.module, self.device, self.parameters)
        self.prefill = Prefill(self.module, self.device, weights, self.stores)
        self.random = np.random.default_rng(seed)
        self.pages = self.random.permutation(self.module.KEY_VALUE_BLOCKS)

    def serve(self, draw: st.DrawFn) -> float:
        """Prompts of several slots, some in two calls; the worst relative error of their logits and states."""
        module, count = self.module, draw(st.integers(1, 4))
        lengths = draw(st.lists(st.integers(1, module.CONTEXT), min_size=count, max_size=count))
        if draw(st.booleans()):
            lengths = [max(1, lengths[0] - index) for index in range(count)]
        slots = self.random.permutation(module.STATE_SLOTS)[:count].tolist()
        share = module.CONTEXT // module.BLOCK_SIZE
        pages = self.pages[: 4 * share].reshape(4, share)[self.random.permutation(4)[:count]]
        tokens = self.random.integers(0, module.VOCABULARY, (count, module.CONTEXT))
        for slot in slots:
            self.prefill.reset(slot)
        starts = [module.BLOCK_SIZE * draw(st.integers(0, length // module.BLOCK_SIZE)) for length in lengths]
        for row, (start, slot) in enumerate(zip(starts, slots)):
            if start:
                self.prefill.prefill_forward(tokens[row : row + 1], pages[row : row + 1], [start], slots=[slot])
        found = self.prefill.prefill_forward(tokens, pages, lengths, starts, slots)
        worst = 0.0
        for row, (length, slot) in enumerate(zip(lengths, slots)):
            kept = Cache()
            wanted = forward(module.GEOMETRY, self.parameters, tokens[row, :length].tolist(), rows=[-1], cache=kept)
            worst = max(worst, relative_error(found[row], wanted[0]))
            held = self.prefill.snapshot(slot)
            assert held.end == length
            for layer, state in enumerate(kept.recurrent):
                worst = max(worst, relative_error(held.at_end["states"][layer][0].float(), state.rule))
                worst = max(worst, relative_error(held.at_end["tails"][layer][0].float(), state.tail))
        return worst


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_any_legal_hybrid_serves_any_request_as_the_reference(family, record_property):
    forms: set[str] = set()
    ran = {"geometries": 0}

    @settings(
        max_examples=GEOMETRIES_A_FAMILY,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # shrinking emits hundreds of modules; the drawn manifest says enough
        suppress_health_check=list(HealthCheck),
    )
    @given(data=manifests(family), draws=st.data())
    def serve_all(data: dict[str, Any], draws: st.DataObject) -> None:
        bench = Bench(data, ran["geometries"])
        try:
            for _ in range(REQUESTS):
                error = bench.serve(draws.draw)
                assert error <= LIMIT, f"relative error {error:.2e} over {LIMIT:g}"
        finally:
            ttnn.close_device(bench.device)
        forms.update(bench.module.RECURRENCE.values())
        ran["geometries"] += 1

    serve_all()
    assert ran["geometries"] >= GEOMETRIES_A_FAMILY and {"alone", "matmuls"} <= forms
    record_property("count of random hybrid geometries served as the reference", ran["geometries"])

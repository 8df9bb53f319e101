"""Sliding windows, what Gemma adds, and sinks: against transformers at the edges of a window, and what a mistake does."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from generator.families import FAMILIES
from runtime import weights as loading
from runtime.backend import open_device
from runtime.reference.dense import forward
from runtime.reference.parameters import RandomParameters
from runtime.transforms import RULES, offset_vector, vector
from runtime.verification import bench as benches
from runtime.verification.comparison import relative_error
from runtime.verification.expected import expect, peer_logits
from runtime.verify import FLOAT32, gate
from tests.support.families import EVERY_GEOMETRY, WINDOWED
from tests.support.golden import EXACT, Bench, build_module, manifest, module_of
from tests.support.tiny.base import BASE, WINDOW

LIMIT = 1e-4
WRONG = 20 * LIMIT
EDGES = (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW)


def behind(*prefixes: int) -> list[int]:
    """Prompts whose uncached rest begins at each prefix and ends at an edge of a window after it."""
    return [prefix + edge for prefix in prefixes for edge in EDGES]


@pytest.fixture(scope="module", params=WINDOWED)
def bench(request):
    return Bench(request.param)


def holds(errors: dict[str, float]) -> bool:
    assert max(errors.values()) <= LIMIT, f"relative errors {errors} over {LIMIT:g}"
    return True


def test_edges_of_a_window_in_one_wave_equal_transformers(bench):
    rows = bench.rows(EDGES, seed=1)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("cached", [64, 128, 320])
def test_edges_of_a_window_behind_a_cached_prefix_equal_transformers(bench, cached):
    for seed, length in enumerate(behind(cached)):
        (row,) = bench.rows([length], seed)
        bench.call([row], ends=[cached], slots=[5])
        assert holds(bench.errors([row], bench.call([row], starts=[cached], slots=[6]))), length


def test_edges_of_a_window_in_chunks_of_several_rows_equal_transformers(bench):
    rows = bench.rows(behind(128), seed=2)
    bench.call(rows, ends=[128] * len(rows))
    assert holds(bench.errors(rows, bench.call(rows, starts=[128] * len(rows))))


@pytest.mark.parametrize("cut", EDGES)
def test_edges_of_a_window_before_the_end_of_a_long_prompt_equal_transformers(bench, cut):
    rows = bench.rows([256 + cut, 384 + cut], seed=cut)
    assert holds(bench.errors(rows, bench.call(rows)))


@pytest.mark.parametrize("family", ["gemma3-capped", "mistral-windowed"])
def test_traces_serve_windows(family):
    module = module_of(family)
    kept = {name: value for name, value in vars(module).items() if name not in ("TRACES", "PROGRAMS")}
    shapes = tuple([shape for shape in module.TRACES if shape.rows <= 2])
    programs = tuple([(shape.digest, ending) for shape in shapes for ending in module.SAMPLING])
    bench = Bench(family, module=SimpleNamespace(**kept, TRACES=shapes, PROGRAMS=programs))
    bench.device = open_device(module.BOARD, precision="float32", trace_region_size=1 << 28)
    bench.load(bench.peer.tensors)
    bench.prefill.warm_up()
    bench.prefill.capture(decode_traces="none")
    for seed, lengths in enumerate([(39, 101), (41, 40), (300, 101), (600, 41)]):
        rows = bench.rows(lengths, seed)
        tokens = [row.tokens + (0,) * (max(lengths) - len(row.tokens)) for row in rows]
        pages = [list(row.pages) + [-1] * (20 - len(row.pages)) for row in rows]
        logits = bench.prefill.prefill_forward(tokens, pages, list(lengths), traced=True)
        assert max(bench.errors(rows, logits).values()) <= LIMIT
    bench.prefill.cleanup()


def test_blocks_before_the_reach_of_a_window_are_not_read():
    """All layers have a window: of a prefix of 256 tokens, a chunk behind it reads the last 64."""
    bench = Bench("mistral-windowed")
    (row,) = bench.rows([300], seed=4)
    bench.call([row], ends=[256])
    wanted = bench.call([row], starts=[256])
    module, read = bench.module, 256 - bench.module.WINDOW_REACH
    assert read == 192
    for store in (*bench.stores.keys, *bench.stores.values):
        store.ownership.buffer.writable()[list(row.pages[: read // module.BLOCK_SIZE])] = float("nan")
    assert torch.equal(bench.call([row], starts=[256]), wanted)


@pytest.mark.parametrize("family", ["gemma3-capped", "qwen3-upper-layers-windowed"])
def test_verification_passes_by_every_route_and_layer_by_layer(family):
    bench = Bench(family)
    peer = bench.peer
    prompts = [list(row.tokens) for row in bench.rows([33, 41, 300], seed=6)]
    answers = zip(prompts, *peer_logits(peer.model, prompts), (33, 0, 64))
    expected = [expect(peer.geometry, peer.tensors, *answer) for answer in answers]
    verified = benches.Bench(bench.module, bench.device, bench.weights, bench.stores, "emulator")
    cases, layers = verified.compare(expected, gate(bench.module, FLOAT32))
    assert [case.name for case in cases if not case.passed] == []
    assert {case.route for case in cases if case.tokens == 300} >= {"alone", "together", "cached prefix"}
    assert len(layers) == 3
    assert all(max(layer.hidden_max_relative_error, layer.keys_max_relative_error) <= LIMIT for layer in layers)


# --- sinks: no family that is built has them without experts, so Llama is given some ---------------------------------


SUNK = replace(BASE, layers=3, attention_sinks=True, attention_output_bias=True, query_key_value_bias=True)
SINKS = {
    "full": SUNK,
    "windowed": replace(SUNK, sliding_window=WINDOW, full_attention_layers=(1,)),
}


@pytest.fixture(params=SINKS)
def sunk(request, monkeypatch):
    """A module with sinks, and its geometry."""
    geometry = SINKS[request.param]
    monkeypatch.setitem(EVERY_GEOMETRY, "llama-sunk", geometry)
    given = {"attention_sinks": True, "attention_output_bias": True, "query_key_value_bias": True}
    monkeypatch.setitem(FAMILIES, "llama", replace(FAMILIES["llama"], **given, options=("sliding_window",)))
    return build_module(manifest("llama-sunk", EXACT)), geometry


class Sunk(Bench):
    """Its parameters are drawn for the reference, which was compared with gpt-oss's attention."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.geometry = module, module.GEOMETRY
        self.device = open_device(module.BOARD, precision="float32")
        self.parameters = RandomParameters(self.geometry, 3)
        self.load(self.parameters)

    def worst(self, lengths: tuple[int, ...], **call: Any) -> float:
        rows = self.rows(lengths, seed=5)
        if "starts" in call:
            self.call(rows, ends=call["starts"])
        found = self.call(rows, **call)
        wanted = [forward(self.geometry, self.parameters, row.tokens, rows=[-1])[0] for row in rows]
        return max(relative_error(*pair) for pair in zip(found, wanted, strict=True))


def test_sinks_and_output_biases_equal_the_reference(sunk):
    module, geometry = sunk
    assert replace(module.GEOMETRY, rope=geometry.rope) == geometry
    bench = Sunk(module)
    assert bench.worst((1, 33)) <= LIMIT
    assert bench.worst(EDGES) <= LIMIT
    assert bench.worst((300, 600)) <= LIMIT
    assert bench.worst((200, 200, 256), starts=[128] * 3) <= LIMIT


def test_sinks_that_are_scaled_with_the_scores_fail_the_comparison(sunk, monkeypatch):
    monkeypatch.setitem(RULES, "sinks", lambda sources, weight, geometry: sources[0].reshape(weight.shape))
    bench = Sunk(sunk[0])
    assert bench.worst((33,)) > WRONG
    assert bench.worst((200,), starts=[128]) > WRONG


# --- the comparison notices a mistake --------------------------------------------------------------------------------


def swapped(module: ModuleType, one: str, other: str) -> ModuleType:
    """The module with the sources of two weights of its layers exchanged."""
    sources = {weight.name: weight.sources for weight in module.LAYER_WEIGHTS}
    exchanged = sources | {one: sources[other], other: sources[one]}
    rows = tuple([replace(weight, sources=exchanged[weight.name]) for weight in module.LAYER_WEIGHTS])
    return SimpleNamespace(**vars(module) | {"LAYER_WEIGHTS": rows})


def restated(family: str, **model: Any) -> ModuleType:
    """The module of a manifest with other numbers in [model]; None leaves a key out."""
    data = manifest(family, EXACT)
    data["model"] = {key: value for key, value in (data["model"] | model).items() if value is not None}
    return build_module(data)


def exchanged_ropes(family: str) -> ModuleType:
    model = manifest(family, EXACT)["model"]
    return restated(family, rope=model["local_rope"], local_rope=model["rope"])


MISTAKES = {
    "a window of one token less": lambda: restated("gemma3", sliding_window=WINDOW - 1),
    "a window of one token more": lambda: restated("gemma3", sliding_window=WINDOW + 1),
    "a window in the full layer": lambda: restated("gemma3", full_attention_layers=(2,)),
    "exchanged rotary embeddings": lambda: exchanged_ropes("gemma3"),
    "one rotary embedding": lambda: restated("gemma3", local_rope=None),
    "another query scale": lambda: restated("gemma3", query_scale=None),
    "no cap of the logits": lambda: restated("gemma3-capped", logit_soft_cap=None),
    "another cap of the logits": lambda: restated("gemma3-capped", logit_soft_cap=2.5),
    "exchanged norms behind": lambda: swapped(module_of("gemma3"), "attention_output_norm", "mlp_output_norm"),
    "exchanged norms before": lambda: swapped(module_of("gemma3"), "attention_norm", "mlp_norm"),
    "exchanged norms of attention": lambda: swapped(module_of("gemma3"), "attention_norm", "attention_output_norm"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_the_comparison(mistake):
    family = "gemma3-capped" if "cap" in mistake else "gemma3"
    bench = Bench(family, module=MISTAKES[mistake]())
    for length in (100, 300):
        rows = bench.rows([length], seed=2)
        assert bench.errors(rows, bench.call(rows))["logits"] > WRONG, length


@pytest.mark.parametrize("rule, wrong", [("offset_norm", vector), ("scaled_rows", RULES["rows"])])
def test_a_weight_as_published_fails_the_comparison(monkeypatch, rule, wrong):
    assert RULES["offset_norm"] is offset_vector and loading.RULES is RULES
    monkeypatch.setitem(RULES, rule, wrong)
    bench = Bench("gemma3")
    rows = bench.rows([100], seed=2)
    assert bench.errors(rows, bench.call(rows))["logits"] > WRONG

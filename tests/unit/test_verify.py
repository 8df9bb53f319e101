"""Verification passes a right module, and fails a wrong one on every kind of mistake that it is there to find."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from runtime import backend
from runtime.backend import ttnn
from runtime.staging import HostValues
from runtime.stores import allocate
from runtime.verification import bench as benches
from runtime.verification.comparison import Agreement, pcc, relative_error, worst_blocks
from runtime.verification.expected import expect, peer_logits
from runtime.verification.report import PEERS, Gate, Report, render
from runtime.verification.routes import Outcome
from runtime.verify import DECLARED, FLOAT32, gate, main_verification
from runtime.weights import load_weights
from tests.support.families import build_peer, random_tokens
from tests.support.golden import module_of

LENGTHS = (33, 40, 128, 200, 300)
PRECISIONS = [FLOAT32, DECLARED]


@pytest.fixture(scope="module")
def expected():
    peer = build_peer("qwen3")
    prompts = [random_tokens(length, seed=length) for length in LENGTHS]
    answers = zip(prompts, *peer_logits(peer.model, prompts))
    return [expect(peer.geometry, peer.tensors, *answer, keep_hidden=64) for answer in answers]


def compare(expected, precision, tensors=None):
    """All cases of the tiny Qwen3 with `tensors` (its own by default)."""
    module = module_of("qwen3")
    device = backend.open_device(module.BOARD, precision=precision)
    weights = load_weights(module, device, build_peer("qwen3").tensors if tensors is None else tensors)
    bench = benches.Bench(module, device, weights, allocate(module, device), backend.name)
    return bench.compare(expected, gate(module, precision))


def failed(cases):
    return {case.name for case in cases if not case.passed}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_right_module_passes_on_every_route_and_layer(expected, precision):
    cases, layers = compare(expected, precision)
    assert not failed(cases)
    assert {case.route for case in cases} == {"alone", "together", "cached prefix", "slices"}
    assert {name.split()[0] for case in cases for name in case.passes} == {"single", "batched", "chunked"}
    best, second = expected[0].logits.topk(2).values
    assert cases[0].top1_margin == pytest.approx(((best - second) / expected[0].logits.abs().max()).item())
    limit = 1e-4 if precision == FLOAT32 else 0.05
    assert [row.layer for row in layers] == [0, 1]
    assert all(row.hidden_max_relative_error <= limit and row.hidden_pcc >= 0.999 for row in layers)


WRONG_TENSORS = [
    "model.embed_tokens.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.layers.0.self_attn.v_proj.weight",
    "model.layers.1.self_attn.o_proj.weight",
    "model.layers.1.self_attn.k_norm.weight",
    "model.layers.1.post_attention_layernorm.weight",
    "model.layers.1.mlp.gate_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", WRONG_TENSORS)
def test_a_wrong_weight_fails(expected, precision, name, monkeypatch):
    monkeypatch.setattr(benches, "ROUTES", {"alone": benches.ROUTES["alone"]})
    tensors = build_peer("qwen3").tensors
    wrong = tensors | {name: tensors[name].roll(1, 0)}
    cases, _ = compare(expected, precision, wrong)
    assert failed(cases) == {case.name for case in cases}


def shifted_start(original):
    def start(self, prepared, chunk):
        return original(self, prepared, chunk) - (64 if chunk.start else 0)

    return start


def shifted_positions(original):
    def positions(self, prepared, chunk):
        return original(self, prepared, chunk) + (5 if chunk.start else 0)

    return positions


def swapped_rows(original):
    def last_rows(self, prepared, chunk):
        rows = original(self, prepared, chunk)
        if len(prepared.requests) > 1:
            rows[0, [0, 1]] = rows[0, [1, 0]]
        return rows

    return last_rows


def unwritten_chunk(original):
    def fill_table(self, prepared, chunk):
        table = original(self, prepared, chunk)
        return np.full_like(table, -1) if chunk.start == 128 else table

    return fill_table


def foreign_read(original):
    def read_table(self, prepared, chunk):
        table = original(self, prepared, chunk)
        table[0, 0] = (table[0, 0] + 1) % 120
        return table

    return read_table


def first_row_instead_of_last(original):
    def last_rows(self, prepared, chunk):
        return np.zeros_like(original(self, prepared, chunk))

    return last_rows


FAULTS = {
    "start": (shifted_start, "chunked"),
    "positions": (shifted_positions, "chunked"),
    "fill_table": (unwritten_chunk, "chunked"),
    "read_table": (foreign_read, "chunked"),
    "last_rows": (swapped_rows, "batched"),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", FAULTS)
def test_a_wrong_input_of_a_pass_fails(expected, precision, value, monkeypatch):
    """The second chunk's start or positions shifted, its keys and values not written, a block of another sequence read,
    two rows of a wave swapped: only passes of that kind are wrong, and one of those must say so."""
    fault, variant = FAULTS[value]
    monkeypatch.setattr(HostValues, value, fault(getattr(HostValues, value)))
    cases, _ = compare(expected, precision)
    touched = {case.name for case in cases if any(name.startswith(variant) for name in case.passes)}
    assert failed(cases) and failed(cases) <= touched


def unwritten_whole_passes(original):
    def fill_table(self, prepared, chunk):
        table = original(self, prepared, chunk)
        return table if chunk.shape.variant == "chunked" else np.full_like(table, -1)

    return fill_table


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_cache_that_was_not_written_fails_although_the_logits_are_right(expected, precision, monkeypatch):
    monkeypatch.setattr(benches, "ROUTES", {name: benches.ROUTES[name] for name in ("alone", "together")})
    monkeypatch.setattr(HostValues, "fill_table", unwritten_whole_passes(HostValues.fill_table))
    cases, _ = compare(expected, precision)
    assert failed(cases) == {case.name for case in cases if not case.passes[0].startswith("chunked")} != set()
    assert all(case.pcc_logits >= 0.999 and case.top1_match for case in cases)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_wrong_row_of_a_pass_fails_every_prompt(expected, precision, monkeypatch):
    monkeypatch.setattr(HostValues, "last_rows", first_row_instead_of_last(HostValues.last_rows))
    cases, _ = compare(expected, precision)
    assert failed(cases) == {case.name for case in cases}


def over_stale_blocks(module, prefill, rows):
    """A prefix counts as cached while its blocks hold another prompt's keys and values."""
    outcomes = []
    for row in rows:
        if len(row.tokens) > 128:
            benches.ROUTES["alone"](module, prefill, [replace(row, tokens=tuple(reversed(row.tokens)))])
            logits = prefill.prefill_forward([list(row.tokens)], [list(row.pages)], [len(row.tokens)], [128])
            outcomes.append(Outcome(row, logits[0], ("chunked",), 0.0))
    return outcomes


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_stale_cache_fails(expected, precision, monkeypatch):
    monkeypatch.setattr(benches, "ROUTES", {"alone": benches.ROUTES["alone"], "stale": over_stale_blocks})
    cases, _ = compare(expected, precision)
    assert failed(cases) == {case.name for case in cases if case.route == "stale"} != set()


def test_a_reference_that_differs_from_transformers_fails(expected):
    wrong = [replace(one, peer_logits=one.peer_logits.roll(1)) for one in expected]
    cases, _ = compare(wrong, FLOAT32)
    assert failed(cases) == {case.name for case in cases}


def test_gates_are_an_error_without_rounding_and_a_correlation_with_it():
    module = module_of("qwen3")
    assert gate(module, FLOAT32) == Gate(FLOAT32, relative_error=1e-4)
    assert gate(module, DECLARED) == Gate(DECLARED, pcc=0.999, cache_pcc=0.99)
    assert gate(module_of("qwen3", packed=True), DECLARED) == Gate(DECLARED, pcc=0.99, cache_pcc=0.99)
    assert gate(module_of("qwen3_moe"), DECLARED) == Gate(DECLARED, pcc=0.95, cache_pcc=0.95)
    few_bits = SimpleNamespace(GEOMETRY=module.GEOMETRY, WEIGHT_DTYPE=ttnn.bfloat4_b)
    assert gate(few_bits, DECLARED) == Gate(DECLARED, pcc=0.95, cache_pcc=0.95)
    good, exact, broken = Agreement(0.9995, 1e-2), Agreement(1.0, 1e-6), Agreement(math.nan, math.nan)
    for rule, right, wrong in (
        (gate(module, FLOAT32), exact, good),
        (gate(module, DECLARED), good, Agreement(0.9, 0.0)),
    ):
        assert rule.holds(right, [right])
        for fault in (wrong, broken):
            assert not rule.holds(fault, [right]) and not rule.holds(right, [right, fault])


def test_measures_of_what_is_not_finite_or_constant_fail():
    rising, broken = torch.arange(6.0), torch.tensor([0, 1, 2, math.nan, 4, 5])
    assert relative_error(rising, rising) == 0 and pcc(rising, rising) == pytest.approx(1)
    assert relative_error(broken, rising) == relative_error(rising, broken) == math.inf
    assert pcc(broken, rising) == pcc(torch.ones(6), rising) == 0 and pcc(-rising, rising) == pytest.approx(-1)
    assert relative_error(rising, torch.zeros(6)) == math.inf
    with pytest.raises(ValueError, match=r"\(6,\) and \(2, 3\)"):
        relative_error(rising, rising.view(2, 3))


def test_a_small_block_that_is_wrong_is_not_hidden_by_larger_ones():
    theirs = torch.cat((torch.full((1, 32, 4), 1000.0), torch.full((1, 8, 4), 0.01)), dim=1)
    ours = theirs.clone()
    ours[0, 33] = 0.02
    assert relative_error(ours, theirs) <= 1e-4
    assert worst_blocks(ours, theirs, 32).max_relative_error == pytest.approx(1.0)
    assert worst_blocks(theirs + 0.1 * torch.randn(theirs.shape), theirs, 32).pcc < 0.5


@pytest.mark.parametrize("family", ["mistral", "qwen2-heads-of-96"])
def test_main_verification_reports_every_case_as_one_json_object(family):
    said: list[str] = []
    report = main_verification(module_of(family), weights="random", progress=said.append)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert report.passed and data["passed"] is True and said
    assert (data["model"], data["target"], data["backend"]) == ("golden", "n150", "emulator")
    asked = {"name", "backend", "precision", "pcc_logits", "max_relative_error", "top1_match"}
    assert all(asked <= set(case) and len(case["likeliest"]["emitted"]) == 5 for case in data["cases"])
    assert {case["precision"] for case in data["cases"]} == {FLOAT32, DECLARED}
    assert len({case["name"] for case in data["cases"]}) == len(data["cases"]) // 2
    assert len({case["tokens"] for case in data["cases"]}) == 8
    assert 1e8 < data["peak_memory_bytes"] < 1e11


def test_a_report_without_cases_or_with_a_failed_one_has_not_passed(expected):
    cases, layers = compare(expected, FLOAT32)
    report = Report(
        "m",
        "n150",
        "emulator",
        "random",
        ("a",) * 5,
        (gate(module_of("qwen3"), FLOAT32),),
        tuple(cases),
        tuple(layers),
        1,
    )
    assert report.passed and not replace(report, cases=()).passed
    bad = replace(cases[0], passed=False, max_relative_error=math.inf)
    broken = replace(report, cases=(bad, *cases[1:]))
    assert not broken.passed and broken.to_json()["cases"][0]["max_relative_error"] is None


def test_the_rendered_report_shows_the_three_side_by_side_and_names_failures(expected):
    cases, layers = compare(expected, FLOAT32)
    bad = replace(cases[0], passed=False, likeliest_text={peer: (f"[{peer}]",) for peer in PEERS})
    rules = (gate(module_of("qwen3"), FLOAT32),)
    report = Report(
        "m", "n150", "emulator", "random", ("a prompt [b]",) * 5, rules, (bad, *cases[1:]), tuple(layers), 10**9
    )
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in render(report):
        console.print(part)
    text = console.export_text()
    for shown in (
        "a prompt [b]",
        "[emitted]",
        "[reference]",
        "[transformers]",
        "FAILED prompt 1, alone",
        "peak memory 1.00 GB",
    ):
        assert shown in text

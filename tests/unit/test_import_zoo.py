"""Published geometries: each is imported and built, or refused by name; and the manifests that ship agree with importing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from generator import catalog, geometry, inputs, manifest, targets
from generator.errors import ManifestError
from generator.importing.command import prepare
from generator.pipeline import emit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIGS = Path(os.environ.get("PREFILL_CONFIGS", Path(__file__).parents[3] / "shared" / "models" / "configs"))
pytestmark = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the published configurations are not beside the clone")

README = Path(__file__).parents[2] / "README.md"
BOTH, LARGE = ("n150", "p150"), ("p150",)
IMAGES = "image input"
OUTCOMES: dict[str, tuple[str, ...] | str] = {  # the boards that it is built for, or the words of its refusal
    "DeepSeek-R1-Distill-Llama-8B": BOTH,
    "Falcon3-7B-Instruct": BOTH,
    "Llama-3.1-70B": "target p150: does not hold the model: 70.81 weights in bfloat8_b",
    "Llama-3.1-8B": BOTH,
    "Llama-3.2-1B": BOTH,
    "Llama-3.2-3B": BOTH,
    "Mistral-7B-Instruct-v0.3": BOTH,
    "Mistral-Small-3.1-24B-Instruct-2503": LARGE,
    "Mixtral-8x7B-v0.1": LARGE,
    "Phi-3.5-mini-instruct": BOTH,
    "Qwen2.5-72B-Instruct": "target p150: does not hold the model: 73.16 weights in bfloat8_b",
    "Qwen2.5-7B-Instruct": BOTH,
    "Qwen2.5-VL-7B-Instruct": f'model_type = "qwen2_5_vl": needs {IMAGES}, which is not built',
    "Qwen3-0.6B": BOTH,
    "Qwen3-30B-A3B": LARGE,
    "Qwen3-8B": BOTH,
    "Qwen3-Next-80B-A3B-Thinking": "target p150: does not hold the model: 43.25 weights in bfloat8_b and experts in bfloat4_b",
    "Qwen3-VL-30B-A3B-Instruct": f'model_type = "qwen3_vl_moe": needs {IMAGES}, which is not built',
    "Qwen3-VL-4B-Instruct": f'model_type = "qwen3_vl": needs {IMAGES}, which is not built',
    "Qwen3.5-27B": LARGE,
    "Qwen3.5-35B-A3B": LARGE,
    "Qwen3.5-9B": BOTH,
    "gemma-2-9b": BOTH,
    "gemma-3-27b-it": "target p150: does not hold the model: 29.43 weights in bfloat8_b",
    "gpt-oss-20b": LARGE,
    "nllb-200-distilled-600M": 'model_type = "m2m_100": needs an encoder beside the decoder, which is not built',
    "phi-4": LARGE,
}
SHIPPED = {
    "llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.2-1b": "Llama-3.2-1B",
    "mistral-7b-v0.3": "Mistral-7B-Instruct-v0.3",
    "qwen2.5-7b": "Qwen2.5-7B-Instruct",
    "qwen3-0.6b": "Qwen3-0.6B",
    "qwen3-8b": "Qwen3-8B",
    "deepseek-r1-distill-llama-8b": "DeepSeek-R1-Distill-Llama-8B",
    "falcon3-7b": "Falcon3-7B-Instruct",
    "llama-3.2-3b": "Llama-3.2-3B",
    "phi-3.5-mini": "Phi-3.5-mini-instruct",
    "phi-4": "phi-4",
    "gemma-2-9b": "gemma-2-9b",
    "gpt-oss-20b": "gpt-oss-20b",
    "mixtral-8x7b-v0.1": "Mixtral-8x7B-v0.1",
    "qwen3-30b-a3b": "Qwen3-30B-A3B",
    "mistral-small-3.1-24b": "Mistral-Small-3.1-24B-Instruct-2503",
}


def test_every_published_configuration_has_an_outcome() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == OUTCOMES.keys()


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if isinstance(outcome, tuple)])
def test_it_is_imported_and_built(name: str) -> None:
    found = prepare(CONFIGS / f"{name}.json", catalog.BUILT_IN, None, ())
    file = manifest.parse(found.text, name, catalog.names(catalog.BUILT_IN, catalog.TARGETS))
    assert tuple(file.manifest.target) == OUTCOMES[name]
    for board in file.manifest.target:
        resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, board))
        compile(emit(resolved, f"models/{found.name}.toml", inputs.TEMPLATES).text, name, "exec")


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if isinstance(outcome, str)])
def test_it_is_refused_by_name(name: str) -> None:
    with pytest.raises(ManifestError) as caught:
        prepare(CONFIGS / f"{name}.json", catalog.BUILT_IN, None, ())
    assert OUTCOMES[name] in str(caught.value)


def readme_row(name: str) -> str:
    """The line of the README's table for a published configuration, from what importing it gives."""
    try:
        found = prepare(CONFIGS / f"{name}.json", catalog.BUILT_IN, None, ())
    except ManifestError as error:
        telling = [one for one in error.diagnostics if one.key == "model_type"] or error.diagnostics
        reason = telling[0].rule.split(" + ")[0]
        return f"| {name} | refused: {reason} |"
    return f"| {name} | builds for {', '.join(one.target for one in found.chosen)} |"


def test_the_readme_says_what_becomes_of_each() -> None:
    lines = README.read_text(encoding="utf-8").split("\n")
    missing = [row for name in OUTCOMES if (row := readme_row(name)) not in lines]
    assert not missing, "the README lacks these lines:\n" + "\n".join(missing)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_manifest_that_ships_has_the_imported_model(name: str) -> None:
    shipped = tomllib.loads(catalog.read(catalog.find(catalog.BUILT_IN, catalog.MODELS, name)))
    found = tomllib.loads(prepare(CONFIGS / f"{SHIPPED[name]}.json", catalog.BUILT_IN, name, ()).text)
    assert (shipped["family"], shipped["model"]) == (found["family"], found["model"])
    assert shipped["target"].keys() == found["target"].keys() and shipped.get("wrapper") == found.get("wrapper")

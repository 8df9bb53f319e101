"""Modules that nobody committed are legal and modelled as they are: rows alike in every wave, heads of 96, recurrences in the
phased program of the delta rule; and legal, with a recurrence of plain matmuls.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from generator import catalog, geometry, inputs, manifest, targets
from generator.geometry import Resolved
from generator.manifest import load, parse
from generator.pipeline import emit
from generator.toml_source import scan
from runtime.legality.boards import BOARDS
from runtime.legality.command import Job, check
from tests.device.emitted import described
from tests.device.layer_model import assert_modelled, layers

HEADS_OF_96 = """\
name = "{name}"
family = "llama"
source = "made for a test"

[model]
vocabulary = 32064
hidden = 3072
intermediate = 8192
layers = 4
query_heads = 32
key_value_heads = 32
maximum_context = 4096
norm_epsilon = 1e-05
activation = "silu"
tied_embeddings = false

[model.rope]
kind = "default"
theta = 10000.0

[target.{target}]
context = 4096
block_size = 32
key_value_blocks = 512
lengths = [128, 1024]
waves = [1, 4]
wave_tokens = 4096
prefill_chunk = 1024

[target.{target}.dtypes]
weights = "{weights}"
embedding = "bfloat16"
head = "{weights}"
key_value = "{key_value}"
activation = "bfloat16"
"""
WAVES = re.compile(r"^waves = .*$", re.MULTILINE)
RAGGED = re.compile(r"^ragged_tokens = .*$", re.MULTILINE)


def of_text(text: str, target: str) -> Resolved:
    return geometry.resolve(parse(text, "made.toml", tuple(BOARDS)), targets.load_board(catalog.BUILT_IN, target))


def batch_invariant(model: str, target: str) -> Resolved:
    text = catalog.read(catalog.find(catalog.BUILT_IN, catalog.MODELS, model))
    heading = f"[target.{target}]\n"
    assert heading in text and WAVES.search(text)
    text = RAGGED.sub("", WAVES.sub("waves = [1, 4, 8]", text))
    return of_text(text.replace(heading, f"{heading}batch_invariant = true\n"), target)


def heads_of_96(key_value: str, weights: str, target: str) -> Resolved:
    name = f"heads-of-96-{key_value.replace('_', '-')}"
    return of_text(HEADS_OF_96.format(name=name, target=target, key_value=key_value, weights=weights), target)


def hybrid(target: str, name: str, heads: int, **table: Any) -> Resolved:
    """Qwen3.5-9B at its width with four layers, another number of value heads and some keys of its table changed."""
    data = load(catalog.BUILT_IN, "qwen3.5-9b").manifest.model_dump(exclude_none=True)
    data["name"] = name
    data["model"] |= {"layers": 4, "vocabulary": 1024}
    data["model"]["gated_delta_net"] |= {"value_heads": heads}
    small = {
        "context": 2048,
        "key_value_blocks": 256,
        "lengths": (128, 1024),
        "prefill_chunk": 1024,
        "waves": (1, 2),
        "wave_tokens": 2048,
    }
    data["target"] = {target: data["target"][target] | small | {"state_slots": 2} | table}
    return geometry.resolve(
        manifest.check(data, "made.toml", scan(""), tuple(BOARDS)), targets.load_board(catalog.BUILT_IN, target)
    )


MATMULS = [hybrid(target, "delta-rule-of-matmuls", 32, recurrence="matmuls") for target in BOARDS]
BUILDS = [
    build
    for target in BOARDS
    for build in (
        batch_invariant("smollm2-135m", target),
        batch_invariant("llama-3.1-8b", target),
        heads_of_96("bfloat16", "bfloat16", target),
        heads_of_96("bfloat8_b", "bfloat8_b", target),
        hybrid(target, "phased-delta-rule", 64),
    )
]
each_build = pytest.mark.parametrize("build", BUILDS, ids=lambda build: f"{build.name}-{build.target}")


@pytest.fixture(scope="module")
def built(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    folder, jobs = tmp_path_factory.mktemp("builds"), []
    for build in (*BUILDS, *MATMULS):
        path = folder / f"{build.module}_{build.target}.py"
        path.write_text(emit(build, "made.toml", inputs.TEMPLATES).text, encoding="utf-8")
        jobs.append(Job(build.name, build.target, path, path.name))
    return {(one["model"], one["target"]): one for one in check(jobs)}


@pytest.mark.parametrize("build", (*BUILDS, *MATMULS), ids=lambda build: f"{build.name}-{build.target}")
def test_a_module_of_another_build_is_legal(built, build: Resolved) -> None:
    verdict = built[build.name, build.target]
    assert verdict["passed"] and not verdict["refusals"], described(verdict["refusals"])


@each_build
def test_a_layer_of_another_build_is_the_modelled_one(built, build: Resolved) -> None:
    for layer in layers(build, built[build.name, build.target]):
        assert_modelled(layer)


def test_the_builds_run_what_no_committed_module_does(built) -> None:
    """Else they would be legal for the reason that they are what is committed."""

    def operations(name: str, target: str) -> set[str]:
        return {call["call"].rpartition(".")[2] for one in built[name, target]["shapes"] for call in one["calls"]}

    for target in BOARDS:
        assert {"mul", "add"} <= operations("llama-3.1-8b", target)
        assert not {"minimal_matmul", "dit_minimal_matmul_addcmul_fused"} & operations("llama-3.1-8b", target)
        assert "rotary_embedding_llama" in operations("heads-of-96-bfloat16", target)
        assert {"rotary_embedding_llama", "typecast"} <= operations("heads-of-96-bfloat8-b", target)
        assert {"matmul", "cumsum", "permute", "repeat_interleave"} <= operations("delta-rule-of-matmuls", target)
        assert "chunk_gated_delta_rule" not in operations("delta-rule-of-matmuls", target)
        phases = {call["operation"] for one in built["phased-delta-rule", target]["shapes"] for call in one["calls"]}
        assert {"ChunkGdnPrepOperation", "ChunkGdnScanOperation"} <= phases

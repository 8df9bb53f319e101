"""Seed-OSS: what importing makes of its keys, the boards that are too small for the published model, and a build of a small one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from generator import catalog, geometry, inputs, manifest, targets
from generator.pipeline import emit
from tests.support.configurations import COMMON, REMOVED, changed, imported, refusal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PUBLISHED: dict[str, Any] = {  # ByteDance-Seed/Seed-OSS-36B-Instruct
    "architectures": ["SeedOssForCausalLM"],
    "model_type": "seed_oss",
    "attention_bias": True,
    "attention_dropout": 0.1,
    "attention_out_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "max_position_embeddings": 524288,
    "mlp_bias": False,
    "num_attention_heads": 80,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "residual_dropout": 0.1,
    "rms_norm_eps": 1e-6,
    "rope_scaling": {"rope_type": "default"},
    "rope_theta": 10000000.0,
    "tie_word_embeddings": False,
    "vocab_size": 155136,
}
SMALL = PUBLISHED | COMMON | {"num_attention_heads": 10}
BIASES = {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False}


def model(tmp_path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The table [model] that a configuration becomes."""
    return tomllib.loads(imported(tmp_path, config).text)["model"]


def test_the_published_model_is_refused_for_its_size_and_nothing_else(tmp_path: Path) -> None:
    told = refusal(tmp_path, PUBLISHED)
    assert len(told.splitlines()) == 2
    for board, weights in (("n150", 36.55), ("p150", 36.51)):  # GiB of 36.2e9 parameters, the embedding in bfloat16
        assert f"target {board}: does not hold the model: {weights} weights in bfloat8_b" in told


def test_a_smaller_one_builds_for_both_boards(tmp_path: Path) -> None:
    found = imported(tmp_path, SMALL)
    assert found.understood.unread == ()  # dropout is nothing that a manifest's reader has to look at
    file = manifest.parse(found.text, "made-up", catalog.names(catalog.BUILT_IN, catalog.TARGETS))
    assert tuple(file.manifest.target) == ("n150", "p150")
    for board in file.manifest.target:
        resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, board))
        text = emit(resolved, "models/made-up.toml", inputs.TEMPLATES).text
        assert "QUERY_KEY_VALUE_WIDTH = 1792  # (10 query + 2 x 2 key-value heads) x 128" in text
        assert "query_key_value_bias" in text and "output_bias" not in text


def test_the_width_of_a_head_is_its_own(tmp_path: Path) -> None:
    for head_dim, expected in ((64, 64), (REMOVED, 128), (None, 32)):
        config = changed(SMALL, num_attention_heads=16, head_dim=head_dim)
        assert model(tmp_path, config)["head_dim"] == expected


@pytest.mark.parametrize("name", BIASES)
def test_biases_are_the_published_ones(name: str, tmp_path: Path) -> None:
    stated, silent = SMALL, changed(SMALL, **{name: REMOVED})
    assert model(tmp_path, stated) == model(tmp_path, silent)
    given, built = (str(one).lower() for one in (not BIASES[name], BIASES[name]))
    told = refusal(tmp_path, changed(SMALL, **{name: not BIASES[name]}))
    assert f"{name} = {given}: must be {built}: no other SeedOssConfig models are built; write {built}" in told

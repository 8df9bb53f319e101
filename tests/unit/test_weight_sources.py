"""Where verification finds weights, and what it says of those that are missing, foreign or damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from runtime.errors import WeightError
from runtime.reference.dense import forward
from runtime.verification.comparison import relative_error
from runtime.verification.sources import Source, load_peer, locate
from runtime.verify import tokenize
from tests.support.families import CAPPED, GEOMETRIES, RECURRENT, WINDOWED, build_peer, random_tokens
from tests.support.golden import module_of

EVERY = GEOMETRIES | WINDOWED | CAPPED | RECURRENT
TOKENS = random_tokens(60, seed=1)


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed distribution "Fake-Weights" with one file."""
    info = tmp_path / "fake_weights-1.0.dist-info"
    (tmp_path / "fake_weights").mkdir()
    info.mkdir()
    (tmp_path / "fake_weights" / "m.gguf").write_bytes(b"GGUF")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Fake-Weights\nVersion: 1.0\n")
    (info / "RECORD").write_text("fake_weights/m.gguf,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_auto_finds_the_file_of_the_installed_package_that_the_manifest_names(package):
    found = locate("auto", ("fake-weights", "fake_weights/m.gguf"))
    assert found == Source("gguf", package / "fake_weights" / "m.gguf")


def test_auto_without_the_package_or_its_file_says_what_to_do(package):
    with pytest.raises(
        WeightError, match="no-such-weights, which carries m.gguf, is not installed; .*--no-deps no-such-weights"
    ):
        locate("auto", ("no-such-weights", "m.gguf"))
    with pytest.raises(WeightError, match="Fake-Weights holds no file n.gguf; reinstall it, or give a path"):
        locate("auto", ("Fake-Weights", "n.gguf"))
    with pytest.raises(WeightError, match="names no package with weights; give a path, or 'random'"):
        locate("auto", None)


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(
        WeightError, match=r"no weights at .*absent; give a safetensors file or folder, a .gguf file, or 'random'"
    ):
        locate(str(tmp_path / "absent"), None)


@pytest.mark.parametrize("family", EVERY)
def test_random_parameters_make_a_transformers_model_that_the_reference_equals(family):
    peer = load_peer(locate("random", None), EVERY[family])
    assert peer.tokenizer is None
    assert relative_error(forward(EVERY[family], peer.tensors, TOKENS), logits(peer.model)) <= 1e-5


@pytest.mark.parametrize("family", EVERY)
def test_safetensors_alone_and_a_published_folder_give_the_same_model(family, tmp_path):
    source = build_peer(family)
    save_file({name: tensor.clone() for name, tensor in source.tensors.items()}, tmp_path / "alone.safetensors")
    source.model.save_pretrained(tmp_path / "folder")
    kinds = []
    for path in (tmp_path / "alone.safetensors", tmp_path / "folder"):
        found = locate(str(path), None)
        kinds.append(found.kind)
        peer = load_peer(found, source.geometry)
        assert peer.tensors.keys() == source.tensors.keys()
        assert torch.equal(logits(peer.model), logits(source.model))
    assert kinds == ["checkpoint", "pretrained"]


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
def test_layers_for_further_tokens_are_no_part_of_a_hybrid_model_and_of_no_other(family, tmp_path):
    changes = {"mtp.fc.weight": torch.ones(2, 2), "mtp.layers.0.mlp.gate.weight": torch.ones(3)}
    peer = load_peer(saved(tmp_path, changes, family), RECURRENT[family])
    assert peer.tensors.keys() == build_peer(family).tensors.keys()
    with pytest.raises(WeightError, match="mtp.fc.weight is not a parameter of this model"):
        load_peer(saved(tmp_path, changes), GEOMETRIES["qwen2"])


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_a_hybrid_text_model_within_one_of_images_is_read_alone(family, tmp_path):
    inner = {
        name.replace("model.", "model.language_model.", 1): tensor.clone()
        for name, tensor in build_peer(family).tensors.items()
    }
    save_file(
        inner | {"model.visual.pos_embed.weight": torch.ones(2), "mtp.norm.weight": torch.ones(2)},
        tmp_path / "x.safetensors",
    )
    peer = load_peer(locate(str(tmp_path / "x.safetensors"), None), RECURRENT[family], text_model=True)
    assert torch.equal(logits(peer.model), logits(build_peer(family).model))


def saved(tmp_path, changes, family="qwen2"):
    tensors = {name: tensor.clone() for name, tensor in build_peer(family).tensors.items()}
    for name, tensor in changes.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    path = tmp_path / "changed.safetensors"
    save_file(tensors, path)
    return locate(str(path), None)


FAULTS = [
    ("model.norm.weight", None, "model.norm.weight is missing"),
    ("model.layers.1.self_attn.k_proj.bias", None, "model.layers.1.self_attn.k_proj.bias is missing"),
    ("model.extra.weight", torch.zeros(2), "model.extra.weight is not a parameter of this model"),
    ("lm_head.weight", torch.zeros(256, 64), r"lm_head.weight is \(256, 64\) and the manifest says \(256, 128\)"),
    ("model.norm.weight", torch.full((128,), torch.nan), "model.norm.weight holds values that are not finite"),
]


@pytest.mark.parametrize("name, tensor, message", FAULTS, ids=["missing", "missing bias", "extra", "misshapen", "NaN"])
def test_a_tensor_that_does_not_fit_is_named(tmp_path, name, tensor, message):
    with pytest.raises(WeightError, match=message):
        load_peer(saved(tmp_path, {name: tensor}), GEOMETRIES["qwen2"])


def test_a_published_folder_with_a_missing_tensor_is_refused_and_not_filled_in(tmp_path):
    build_peer("mistral").model.save_pretrained(tmp_path)
    tensors = {name: tensor.clone() for name, tensor in build_peer("mistral").tensors.items()}
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightError, match="model.layers.0.mlp.up_proj.weight is missing"):
        load_peer(locate(str(tmp_path), None), GEOMETRIES["mistral"])


@pytest.mark.parametrize("name", ["alone.safetensors", "folder"])
def test_a_truncated_file_is_named(tmp_path, name):
    build_peer("mistral").model.save_pretrained(tmp_path / "folder")
    whole = (tmp_path / "folder" / "model.safetensors").read_bytes()
    damaged = tmp_path / ("folder/model.safetensors" if name == "folder" else name)
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightError, match=f"{damaged.name} is truncated or no .safetensors file"):
        load_peer(locate(str(tmp_path / name), None), GEOMETRIES["mistral"])


def test_a_damaged_gguf_file_is_named(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(WeightError, match="cannot read broken.gguf in"):
        load_peer(locate(str(path), None), GEOMETRIES["mistral"])


def test_the_weights_of_another_model_are_refused(tmp_path):
    with pytest.raises(WeightError, match="does not hold this model's weights: model.layers.2"):
        load_peer(saved(tmp_path, {}), replace(GEOMETRIES["qwen2"], layers=3))


def test_prompts_need_a_tokenizer_and_without_one_ids_are_drawn():
    module = module_of("qwen3")
    with pytest.raises(WeightError, match="without a tokenizer"):
        tokenize(module, None, ["hello"])
    texts, ids = tokenize(module, None, None)
    assert texts[0] == "1 random tokens" and [len(row) for row in ids] == [1, 31, 32, 33, 127, 129, 300, 600]
    assert all(0 <= token < module.VOCABULARY for row in ids for token in row)

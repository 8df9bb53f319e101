"""The text model of a model of images and text: its tensors are found however a checkpoint spells them, and no others pass."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.backend import open_device, ttnn
from runtime.checkpoint import open_checkpoint
from runtime.errors import WeightError
from runtime.load import load
from runtime.tables import GatedDeltaNet
from runtime.verification.joined_experts import joined
from runtime.verify import main_verification
from runtime.weights import check_checkpoint, load_weights, tensors
from runtime.wrapped import alone, is_text_model, published
from tests.support.families import build_peer
from tests.support.golden import EXACT, build_module, manifest, module_of

OTHERS = {
    "visual.patch_embed.proj.weight": torch.ones(2),
    "vision_tower.patch_conv.weight": torch.ones(2),
    "multi_modal_projector.linear_1.weight": torch.ones(3),
}


@cache
def wrapped_module(tied: bool = False):
    data = manifest("mistral", EXACT) | {"wrapper": "mistral3"}
    data["model"]["tied_embeddings"] = tied
    return build_module(data)


def plain():
    return dict(build_peer("mistral").tensors)


def in_hub_form(found):
    return {f"language_model.{name}": tensor for name, tensor in found.items()} | OTHERS


def in_form_of_transformers_5(found, others=OTHERS):
    inner = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in found.items()}
    return inner | {f"model.{name}": tensor for name, tensor in others.items()}


def loaded(module, source):
    device = open_device(module.BOARD, precision="float32")
    return [ttnn.to_torch(tensor) for tensor in tensors(load_weights(module, device, source))]


def test_a_module_states_the_names_of_the_published_checkpoint_and_so_what_it_is():
    sources = [source for weight in wrapped_module().WEIGHTS for source in weight.sources]
    assert "language_model.model.embed_tokens.weight" in sources and "language_model.lm_head.weight" in sources
    assert is_text_model(wrapped_module()) and not is_text_model(module_of("mistral"))
    assert is_text_model(load("generated.mistral_small_3_1_24b.p150"))


@pytest.mark.parametrize("spelled", [dict, in_hub_form, in_form_of_transformers_5])
def test_every_spelling_gives_the_weights_of_the_text_model_by_itself(spelled, tmp_path: Path):
    expected = loaded(module_of("mistral"), plain())
    source = spelled(plain())
    save_file({name: tensor.clone() for name, tensor in source.items()}, tmp_path / "model.safetensors")
    for given in (source, tmp_path):
        found = loaded(wrapped_module(), given)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["audio_tower.x.weight", "model.audio_tower.x.weight", "language_model.model.x", "x"])
def test_a_tensor_of_no_known_part_is_refused(name: str):
    with pytest.raises(WeightError, match=r"the state dict has .*x.*, which golden does not use"):
        loaded(wrapped_module(), in_hub_form(plain()) | {name: torch.ones(1)})


def test_a_module_that_is_no_text_model_takes_nothing_of_other_parts():
    with pytest.raises(
        WeightError, match="multi_modal_projector.linear_1.weight, vision_tower.patch_conv.weight, visual"
    ):
        loaded(module_of("mistral"), plain() | OTHERS)
    with pytest.raises(WeightError, match="lacks model.embed_tokens.weight"):
        loaded(module_of("mistral"), in_hub_form(plain()))


def test_layers_for_further_tokens_are_left_out_of_hybrid_models_alone():
    """Tables of a module that says it is hybrid: nothing but its geometry decides."""
    module, further = module_of("mistral"), {
        "mtp.fc.weight": torch.ones(2),
        "mtp.layers.0.mlp.gate.weight": torch.ones(3),
    }
    with pytest.raises(WeightError, match="mtp.fc.weight, mtp.layers.0.mlp.gate.weight, which golden does not use"):
        loaded(module, plain() | further)
    net = GatedDeltaNet(2, 4, key_dim=32, value_dim=32, kernel=4, published="interleaved")
    hybrid = SimpleNamespace(**{**vars(module), "GEOMETRY": replace(module.GEOMETRY, gated_delta_net=net)})
    check_checkpoint(hybrid, open_checkpoint(plain() | further), module.LAYERS)
    with pytest.raises(WeightError, match="has model.mtp.fc.weight, mtpx.fc.weight, which golden does not use"):
        named = {name.replace("mtp.", "mtpx."): tensor for name, tensor in further.items() if "fc" in name}
        check_checkpoint(
            hybrid, open_checkpoint(plain() | named | {"model.mtp.fc.weight": torch.ones(1)}), module.LAYERS
        )


def test_two_spellings_of_one_tensor_are_refused(tmp_path: Path):
    both = in_hub_form(plain()) | {"model.language_model.norm.weight": torch.ones(128)}
    message = "are two spellings of language_model.model.norm.weight; keep one of them"
    with pytest.raises(WeightError, match=message):
        loaded(wrapped_module(), both)
    save_file({name: tensor.clone() for name, tensor in both.items()}, tmp_path / "both.safetensors")
    with pytest.raises(WeightError, match=message):
        main_verification(wrapped_module(), weights=str(tmp_path / "both.safetensors"))


def test_a_missing_and_a_misshapen_tensor_are_named_as_published():
    without = in_hub_form(plain())
    del without["language_model.model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(WeightError, match="lacks language_model.model.layers.1.mlp.up_proj.weight, which golden needs"):
        loaded(wrapped_module(), without)
    wrong = in_form_of_transformers_5(plain()) | {"lm_head.weight": torch.ones(4, 4)}
    with pytest.raises(
        WeightError, match=r"tensor language_model.lm_head.weight .* is \(4, 4\); golden needs \(256, 128\)"
    ):
        loaded(wrapped_module(), wrong)


def test_a_tied_head_may_be_carried_a_second_time_and_must_be_the_same():
    found = plain()
    same = in_hub_form(found | {"lm_head.weight": found["model.embed_tokens.weight"]})
    assert loaded(wrapped_module(tied=True), same)
    with pytest.raises(
        WeightError, match="language_model.lm_head.weight .* differs from language_model.model.embed_tokens"
    ):
        loaded(wrapped_module(tied=True), in_hub_form(found))


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("model.norm.weight", "language_model.model.norm.weight"),
        ("lm_head.weight", "language_model.lm_head.weight"),
        ("model.language_model.norm.weight", "language_model.model.norm.weight"),
        ("language_model.lm_head.weight", "language_model.lm_head.weight"),
        ("vision_tower.norm.weight", None),
        ("model.multi_modal_projector.norm.weight", None),
        ("vision_towers.norm.weight", "vision_towers.norm.weight"),
    ],
)
def test_names_by_their_spelling(name: str, stated: str | None):
    assert published(name) == stated
    assert alone(name) == (stated and stated.removeprefix("language_model."))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Mistral3 as transformers saves it, with a vision tower and the parameters of the tiny Mistral."""
    import transformers

    peer = build_peer("mistral")
    config = transformers.Mistral3Config(
        text_config=peer.model.config.to_dict(),
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 28,
            "patch_size": 14,
        },
        tie_word_embeddings=False,
    )
    model = transformers.Mistral3ForConditionalGeneration(config)
    missing, unexpected = model.load_state_dict(in_form_of_transformers_5(peer.tensors, {}), strict=False)
    assert not unexpected and all(alone(name) is None for name in missing)
    folder = tmp_path_factory.mktemp("mistral3")
    model.save_pretrained(folder)
    return folder


def test_a_folder_that_transformers_saved_is_verified_against_the_whole_model(saved: Path):
    names = load_file(saved / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"language_model", "multi_modal_projector", "vision_tower"}
    report = main_verification(wrapped_module(), weights=str(saved))
    assert report.passed and len(report.cases) == 46
    assert all(case.peer_relative_error <= 1e-5 for case in report.cases)
    expected = loaded(module_of("mistral"), plain())
    assert all(torch.equal(*pair) for pair in zip(loaded(wrapped_module(), saved), expected, strict=True))


def test_safetensors_alone_and_the_text_model_by_itself_are_verified_too(saved: Path, tmp_path: Path):
    shutil.copy(saved / "model.safetensors", tmp_path / "whole.safetensors")
    build_peer("mistral").model.save_pretrained(tmp_path / "text")
    for path in (tmp_path / "whole.safetensors", tmp_path / "text"):
        assert main_verification(wrapped_module(), weights=str(path), precisions=("float32",)).passed


def test_experts_in_one_tensor_are_read_one_by_one_from_a_checkpoint_of_the_whole_model():
    """Qwen3.5 with experts is published within a model of images, all experts of a layer in one tensor."""
    within = build_module(manifest("qwen3_5_moe", EXACT) | {"wrapper": "qwen3_5_moe"})
    found = joined(dict(build_peer("qwen3_5_moe").tensors), within.GEOMETRY)
    alone_ = loaded(module_of("qwen3_5_moe"), found)
    for source in (in_hub_form(found), in_form_of_transformers_5(found)):
        assert all(map(torch.equal, loaded(within, source), alone_))

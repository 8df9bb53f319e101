"""Checkpoints of models that also take images: the text model in them is loaded, as it is published and as transformers 5 holds it."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from runtime.checkpoint import open_checkpoint
from runtime.errors import WeightError
from runtime.weights import check_checkpoint
from tests.support.families import build_peer
from tests.support.golden import module_of

FAMILIES = ("gemma3", "mistral")


def published(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As on the hub: the text model below language_model, beside two other parts."""
    others = ("vision_tower.vision_model.post_layernorm.weight", "multi_modal_projector.linear_1.weight")
    return {f"language_model.{name}": one for name, one in tensors.items()} | dict.fromkeys(others, torch.zeros(3))


def in_transformers_5(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    named = {name.replace("model.", "model.language_model.", 1): one for name, one in tensors.items()}
    return named | {"model.vision_tower.patch.weight": torch.zeros(3), "model.multi_modal_projector.norm": torch.zeros(3)}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", [published, in_transformers_5])
def test_the_text_model_has_its_own_names_values_and_places(family, form, tmp_path):
    tensors = build_peer(family).tensors
    around = form(tensors)
    save_file({name: one.clone() for name, one in around.items()}, tmp_path / "model.safetensors")
    for source in (around, tmp_path):
        checkpoint = open_checkpoint(source)
        assert set(checkpoint.names()) == set(tensors)
        assert all(torch.equal(checkpoint.read(name), one) for name, one in tensors.items())
        assert all(checkpoint.shape(name) == tuple(one.shape) for name, one in tensors.items())
        check_checkpoint(module_of(family), checkpoint, 1)
    assert checkpoint.where("model.norm.weight").endswith("model.safetensors")


@pytest.mark.parametrize("form", [published, in_transformers_5])
def test_a_tensor_of_no_known_part_is_still_refused(form):
    checkpoint = open_checkpoint(form(build_peer("gemma3").tensors) | {"audio_tower.weight": torch.zeros(3)})
    with pytest.raises(WeightError, match="audio_tower.weight, which golden does not use"):
        check_checkpoint(module_of("gemma3"), checkpoint, 1)


def test_a_text_model_by_itself_is_left_as_it_is():
    tensors = build_peer("gemma3").tensors
    assert set(open_checkpoint(tensors).names()) == set(tensors)


def test_names_are_those_of_a_whole_model_of_transformers():
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, SiglipVisionConfig

    peer = build_peer("gemma3")
    vision = SiglipVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14
    )
    whole = Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=peer.model.config, vision_config=vision, mm_tokens_per_image=4)
    )
    names = set(open_checkpoint(whole.state_dict()).names())
    assert names - {"lm_head.weight"} == set(peer.tensors)  # a tied head is there twice

"""Checkpoints: what is read, in which form it reaches the device, and how each kind of bad tensor is named."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from runtime.backend import open_device, ttnn
from runtime.errors import ModuleError, WeightError
from runtime.reference.parameters import RandomParameters
from runtime.weights import load_weights, release, tensors
from tests.support.twins import twin_module

QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def module():
    return twin_module("smollm2-135m")


@pytest.fixture
def device(module):
    return open_device(module.BOARD, precision="float32")


@pytest.fixture
def parameters(module):
    return dict(RandomParameters(module.GEOMETRY, 0))


def values(weights):
    return [ttnn.to_torch(tensor) for tensor in tensors(weights)]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(values(one), values(other), strict=True))


def shard(parameters, folder, index=True):
    names = sorted(parameters)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: parameters[name] for name in part}, folder / file)
    if index:
        where = {name: file for file, part in parts.items() for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def test_a_file_a_folder_with_or_without_index_and_a_state_dict_load_alike(module, device, parameters, tmp_path):
    file, indexed, plain = tmp_path / "all.safetensors", tmp_path / "indexed", tmp_path / "plain"
    save_file(parameters, file)
    for folder in (indexed, plain):
        folder.mkdir()
        shard(parameters, folder, index=folder is indexed)
    expected = load_weights(module, device, parameters)
    for source in (file, str(file), indexed, plain):
        assert same(load_weights(module, device, source), expected)


def test_weights_reach_the_device_in_the_modules_form(module, device, parameters):
    weights = load_weights(module, device, parameters)
    layer = weights.layers[1]
    stacked = torch.cat([parameters[QUERY.replace("q_proj", f"{part}_proj")] for part in "qkv"]).t()
    assert torch.equal(ttnn.to_torch(layer.query_key_value), stacked)
    assert torch.equal(ttnn.to_torch(weights.embedding), parameters["model.embed_tokens.weight"])
    assert torch.equal(ttnn.to_torch(weights.head), parameters["model.embed_tokens.weight"].t())
    norm = parameters["model.layers.1.input_layernorm.weight"]
    assert torch.equal(ttnn.to_torch(layer.attention_norm).flatten(), norm)
    assert torch.equal(ttnn.to_torch(weights.rotary_cos)[0], torch.ones(module.HEAD_DIM))
    stated = {weight.name: weight for weight in (*module.WEIGHTS, *module.LAYER_WEIGHTS)}
    for name, tensor in {**vars(layer), **vars(weights)}.items():
        if name != "layers":
            assert (tuple(tensor.shape), tensor.dtype) == (stated[name].shape, stated[name].dtype)


def test_only_the_first_layers_may_be_loaded_from_a_whole_or_a_cut_checkpoint(module, device, parameters):
    whole = load_weights(module, device, parameters, layers=1)
    cut = {name: tensor for name, tensor in parameters.items() if "layers.1." not in name}
    assert len(whole.layers) == 1 and same(load_weights(module, device, cut, layers=1), whole)
    with pytest.raises(ModuleError, match="3 layers were asked for; the module has 1 to 2"):
        load_weights(module, device, parameters, layers=3)


def test_half_and_double_precision_are_taken(module, device, parameters):
    for dtype in (torch.float16, torch.float64, torch.bfloat16):
        weights = load_weights(module, device, {name: tensor.to(dtype) for name, tensor in parameters.items()})
        embedding = parameters["model.embed_tokens.weight"].to(dtype).to(torch.float32)
        assert torch.equal(ttnn.to_torch(weights.embedding), embedding)


def with_change(parameters, name, change):
    changed = dict(parameters)
    if change is None:
        del changed[name]
    else:
        changed[name] = change(parameters.get(name))
    return changed


def spoiled(value):
    def change(tensor):
        tensor = tensor.clone()
        tensor[3, 5] = value
        return tensor

    return change


BAD = {
    "missing": (QUERY, None, f"lacks {QUERY}, which smollm2-135m-twin needs"),
    "extra": (
        "model.layers.0.self_attn.sinks",
        lambda _: torch.ones(4),
        "has model.layers.0.self_attn.sinks, which .* not use",
    ),
    "layer too many": (QUERY.replace("1", "2"), lambda _: torch.ones(4), "has model.layers.2.self_attn.q_proj.weight"),
    "misshapen": (
        QUERY,
        lambda t: t[:-1].clone(),
        rf"tensor {QUERY} in .* is \(\d+, \d+\); smollm2-135m-twin needs \(\d+, \d+\)",
    ),
    "transposed": ("model.layers.0.mlp.down_proj.weight", lambda t: t.t().contiguous(), "down_proj.weight in .* needs"),
    "NaN": (QUERY, spoiled(float("nan")), f"tensor {QUERY} in .* has 1 of .* not finite"),
    "infinity": (QUERY, spoiled(-float("inf")), f"tensor {QUERY} in .* has 1 of .* not finite"),
    "integers": (QUERY, lambda t: t.to(torch.int32), f"tensor {QUERY} in .* holds torch.int32"),
    "another head": (
        "lm_head.weight",
        lambda _: torch.ones(256, 128),
        "lm_head.weight in .* differs from model.embed_tokens",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("stored", [False, True], ids=["state dict", "file"])
def test_a_bad_tensor_is_named_and_nothing_stays_on_the_device(module, device, parameters, tmp_path, name, stored):
    tensor, change, message = BAD[name]
    source = with_change(parameters, tensor, change)
    if stored:
        save_file(source, tmp_path / "bad.safetensors")
        source = tmp_path / "bad.safetensors"
        assert "bad.safetensors" in str(source)
    with pytest.raises(WeightError, match=message) as caught:
        load_weights(module, device, source)
    assert ("bad.safetensors" if stored else "the state dict") in str(caught.value)
    assert device.live_tensors() == []


def test_a_tied_head_and_rotary_buffers_are_tolerated(module, device, parameters):
    more = {
        "lm_head.weight": parameters["model.embed_tokens.weight"].clone(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16),
    }
    load_weights(module, device, parameters | more)


def test_a_truncated_file_is_named(module, device, parameters, tmp_path):
    file = tmp_path / "cut.safetensors"
    save_file(parameters, file)
    whole = file.read_bytes()
    for size in (0, 5, 200, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(WeightError, match="cut.safetensors is truncated"):
            load_weights(module, device, file)
    assert device.live_tensors() == []


def test_pickles_and_other_files_are_refused_by_name(module, device, tmp_path):
    for name, message in (
        ("model.bin", "model.bin is a pickle"),
        ("model.pt", "model.pt is a pickle"),
        ("model.gguf", "model.gguf is not a .safetensors file"),
    ):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(WeightError, match=message):
            load_weights(module, device, tmp_path / name)
    with pytest.raises(WeightError, match="only pickles .model.bin, model.pt., which are never read"):
        load_weights(module, device, tmp_path)
    with pytest.raises(WeightError, match="no checkpoint at"):
        load_weights(module, device, tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightError, match="must hold .safetensors files and has none"):
        load_weights(module, device, tmp_path / "empty")


def test_a_folder_that_contradicts_itself_is_refused(module, device, parameters, tmp_path):
    shard(parameters, tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    good = index.read_text()
    for text, message in (
        (good.replace("one.safetensors", "three.safetensors"), "names three.safetensors, which is missing"),
        (
            good.replace("one.safetensors", "../one.safetensors"),
            "names '../one.safetensors', which is not a .safetensors file",
        ),
        ("{", "has no readable weight_map"),
        ("[]", "has no readable weight_map"),
    ):
        index.write_text(text)
        with pytest.raises(WeightError, match=message):
            load_weights(module, device, tmp_path)
    index.unlink()
    (tmp_path / "two.safetensors").write_bytes((tmp_path / "one.safetensors").read_bytes())
    with pytest.raises(WeightError, match="is in .*one.safetensors and in .*two.safetensors"):
        load_weights(module, device, tmp_path)


def test_a_fault_at_any_upload_leaves_nothing(module, device, parameters):
    calls = []
    device.before_operation = calls.append
    release(load_weights(module, device, parameters))
    uploads = calls.count("from_torch")
    assert device.live_tensors() == [] and calls[:uploads] == ["from_torch"] * uploads

    for index in range(uploads):
        seen = []

        def fail(name, seen=seen, index=index):
            seen.append(name)
            if len(seen) == index + 1:
                raise RuntimeError(f"upload {index}")

        device.before_operation = fail
        with pytest.raises(RuntimeError) as held:
            load_weights(module, device, parameters)
        assert str(held.value) == f"upload {index}" and device.live_tensors() == []

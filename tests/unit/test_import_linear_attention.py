"""codegen import of models with linear attention: which layers, which sizes, what is refused, and how many states a board holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import catalog, geometry, manifest, targets
from generator.importing.linear_attention import shortest_pattern
from tests.support.configurations import (
    LLAMA,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_NEXT,
    REMOVED,
    SECTIONED,
    WRAPPED,
    changed,
    imported,
    nested,
    refusal,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ["gated_delta_net", "gated_delta_net", "gated_delta_net", "full"]
DENSE = {
    "vocabulary": 1024,
    "hidden": 512,
    "intermediate": 1024,
    "layers": 8,
    "query_heads": 8,
    "key_value_heads": 2,
    "head_dim": 128,
    "rotary_dimensions": 32,
    "maximum_context": 4096,
    "norm_epsilon": 1e-5,
    "activation": "silu",
    "tied_embeddings": False,
    "layer_kinds": KINDS,
    "rope": {"kind": "default", "theta": 50000.0},
    "gated_delta_net": {"key_heads": 2, "value_heads": 4, "key_dim": 64, "value_dim": 64, "kernel": 4},
}
EXPERTS = {key: value for key, value in DENSE.items() if key != "intermediate"} | {
    "experts": {"count": 32, "per_token": 4, "intermediate": 256, "renormalise": True, "shared_intermediate": 512}
}
BASES = {
    "qwen3_next": (QWEN3_NEXT, EXPERTS, None),
    "qwen3_5": (QWEN3_5, DENSE, "qwen3_5"),
    "qwen3_5_moe": (QWEN3_5_MOE, EXPERTS, "qwen3_5_moe"),
}
EVERY = [config for config, *_ in BASES.values()]


def tables(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    found = tomllib.loads(imported(folder, config).text)
    del found["source"]  # which has the digest of the file
    return found


def with_text(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """With keys of the text model changed, wherever they are."""
    return nested(config, **changes) if "text_config" in config else changed(config, **changes)


def alone(config: dict[str, Any]) -> dict[str, Any]:
    """The text model by itself, as transformers saves it."""
    return dict(config["text_config"])


@pytest.mark.parametrize("family", BASES)
def test_every_value_of_a_hybrid_configuration_reaches_the_manifest(family: str, tmp_path: Path) -> None:
    config, model, wrapper = BASES[family]
    found = tables(tmp_path, config)
    assert (found["family"], found.get("wrapper"), found["model"]) == (family, wrapper, model)
    for board in ("n150", "p150"):
        table = found["target"][board]
        assert (table["state_slots"], max(table["waves"]), table["dtypes"]["state"]) == (8, 8, "float32")
        file = manifest.parse(imported(tmp_path, config).text, "m.toml", (board, "n150", "p150"))
        resolved = geometry.resolve(file, targets.load_board(catalog.BUILT_IN, board))
        assert resolved.full_attention_layers == (3, 7) and resolved.gated_delta_net.published in (
            "split",
            "interleaved",
        )


@pytest.mark.parametrize("config", [QWEN3_5, QWEN3_5_MOE], ids=["dense", "experts"])
def test_the_text_model_by_itself_is_imported_alike(config: dict[str, Any], tmp_path: Path) -> None:
    around, found = tables(tmp_path, config), tables(tmp_path, alone(config))
    assert found["model"] == around["model"] and found["family"] == around["family"] and "wrapper" not in found


@pytest.mark.parametrize("config", EVERY, ids=BASES)
def test_nothing_of_a_published_configuration_is_left_unread_but_what_has_no_effect(
    config: dict[str, Any], tmp_path: Path
) -> None:
    unread = imported(tmp_path, config).understood.unread
    assert set(unread) <= {"intermediate_size"}  # of dense layers, where all have experts


@pytest.mark.parametrize("config", EVERY, ids=BASES)
def test_layers_come_from_the_list_the_interval_or_the_default(config: dict[str, Any], tmp_path: Path) -> None:
    listed = (["linear_attention"] * 3 + ["full_attention"]) * 2
    for types, interval in ((listed, 4), (listed, REMOVED), (REMOVED, 4), (REMOVED, REMOVED), (None, None)):
        assert tables(tmp_path, with_text(config, layer_types=types, full_attention_interval=interval)) == tables(
            tmp_path, config
        )
    by_default = imported(tmp_path, with_text(config, layer_types=REMOVED, full_attention_interval=REMOVED))
    assert "full_attention_interval absent: 4, as Qwen3" in by_default.text
    two = tables(tmp_path, with_text(config, layer_types=REMOVED, full_attention_interval=2))["model"]["layer_kinds"]
    assert two == ["gated_delta_net", "full"]


def test_a_pattern_that_does_not_repeat_is_written_whole(tmp_path: Path) -> None:
    types = ["linear_attention"] * 5 + ["full_attention", "linear_attention", "full_attention"]
    config = with_text(QWEN3_5, layer_types=types, full_attention_interval=REMOVED)
    kinds = ["gated_delta_net" if one == "linear_attention" else "full" for one in types]
    assert tables(tmp_path, config)["model"]["layer_kinds"] == kinds


@given(st.lists(st.sampled_from("lf"), min_size=1, max_size=6), st.integers(1, 4))
def test_the_shortest_pattern_repeats_to_the_whole_and_no_shorter_one_does(types: list[str], times: int) -> None:
    whole = types * times
    found = list(shortest_pattern(whole))
    assert found * (len(whole) // len(found)) == whole and len(found) <= len(types)
    for length in range(1, len(found)):
        assert len(whole) % length or whole[:length] * (len(whole) // length) != whole


@pytest.mark.parametrize("config", EVERY, ids=BASES)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer_types": ["mamba"] + ["full_attention"] * 7},
            'layer_types[0] = "mamba": asks for a recurrent state of another',
        ),
        (
            {"layer_types": ["sliding_attention"] + ["full_attention"] * 7},
            "asks for sliding-window attention, which models of",
        ),
        ({"layer_types": ["odd"] + ["full_attention"] * 7}, 'layer_types[0] = "odd": is no layer type that is known'),
        ({"layer_types": ["linear_attention"] * 7}, "layer_types = ["),
        ({"layer_types": ["linear_attention"] * 8}, "contradicts"),
        (
            {"layer_types": "linear_attention"},
            "must be a list of strings; one of linear_attention, full_attention for each",
        ),
        (
            {"layer_types": ["linear_attention"] * 8, "full_attention_interval": REMOVED},
            "makes no layer of 8 full_attention; models of both kinds",
        ),
        (
            {"layer_types": ["full_attention"] * 8, "full_attention_interval": REMOVED},
            "makes no layer of 8 linear_attention; models of both kinds",
        ),
        ({"layer_types": REMOVED, "full_attention_interval": 1}, "makes no layer of 8 linear_attention"),
        ({"layer_types": REMOVED, "full_attention_interval": 9}, "makes no layer of 8 full_attention"),
        ({"layer_types": REMOVED, "full_attention_interval": 0}, "full_attention_interval = 0: must be at least 1"),
        ({"layer_types": REMOVED, "full_attention_interval": "4"}, 'full_attention_interval = "4": must be an integer'),
        ({"attn_output_gate": False}, "attn_output_gate = false: must be true: no other Qwen3"),
        ({"attn_output_gate": 1}, "attn_output_gate = 1: must be true"),
        ({"output_gate_type": "sigmoid"}, 'output_gate_type = "sigmoid": must be "swish" or "silu"'),
        ({"mamba_ssm_dtype": "bfloat16"}, 'mamba_ssm_dtype = "bfloat16": must be "float32"'),
        ({"attention_bias": True}, "attention_bias = true: must be false: no other Qwen3"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads = 3: must be a multiple of the 2 key heads"),
        ({"linear_key_head_dim": 48}, "linear_key_head_dim = 48: must be a multiple of 32, a tile"),
        ({"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim = 3: must be one of 4"),
        ({"linear_num_key_heads": 0}, "linear_num_key_heads = 0: must be at least 1"),
        (
            {"linear_num_key_heads": None},
            "linear_num_key_heads = null: must be an integer; leave it out for the default 16",
        ),
        ({"hidden_act": "gelu"}, 'hidden_act = "gelu": asks for another activation'),
        ({"head_dim": None}, "head_dim = null: must be an integer; leave it out for the default 256"),
        ({"mlp_only_layers": [1]}, "mlp_only_layers = [1]: asks for "),
        ({"use_sliding_window": True}, "use_sliding_window = true: asks for sliding-window attention"),
    ],
)
def test_what_hybrid_models_do_not_have_is_refused_by_its_key(
    config: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refusal(tmp_path, with_text(config, **changes))


def test_experts_must_be_in_every_layer_and_as_the_published_code_weighs_them(tmp_path: Path) -> None:
    told = refusal(tmp_path, changed(QWEN3_NEXT, decoder_sparse_step=2))
    assert "decoder_sparse_step = 2: asks for layers without experts among those that have them" in told
    shares = tables(tmp_path, changed(QWEN3_NEXT, norm_topk_prob=False))["model"]["experts"]["renormalise"]
    assert shares is False
    assert "norm_topk_prob = false: must be true" in refusal(tmp_path, nested(QWEN3_5_MOE, norm_topk_prob=False))
    assert tables(tmp_path, nested(QWEN3_5_MOE, norm_topk_prob=True)) == tables(tmp_path, QWEN3_5_MOE)
    told = refusal(tmp_path, nested(QWEN3_5_MOE, shared_expert_intermediate_size=0))
    assert "shared_expert_intermediate_size = 0: must be at least 1" in told


def test_the_turned_part_of_a_head_is_a_quarter_unless_a_key_says_otherwise(tmp_path: Path) -> None:
    plain = {key: value for key, value in SECTIONED.items() if key in ("rope_type", "rope_theta")}
    for config in (changed(QWEN3_NEXT, partial_rotary_factor=REMOVED), nested(QWEN3_5, rope_parameters=plain)):
        found = imported(tmp_path, config).text
        assert "rotary_dimensions = 32 # partial_rotary_factor absent: 0.25, as Qwen3" in found
    half = tables(tmp_path, nested(QWEN3_5, rope_parameters={**SECTIONED, "partial_rotary_factor": 0.5}))
    assert half["model"]["rotary_dimensions"] == 64
    whole = tables(tmp_path, changed(QWEN3_NEXT, partial_rotary_factor=1.0))
    assert "rotary_dimensions" not in whole["model"]


def test_sections_of_the_embedding_change_nothing_of_text_where_the_class_has_them(tmp_path: Path) -> None:
    without = {key: value for key, value in SECTIONED.items() if not key.startswith("mrope")}
    assert tables(tmp_path, nested(QWEN3_5, rope_parameters=without))["model"] == DENSE
    told = refusal(tmp_path, nested(QWEN3_5, rope_parameters={**SECTIONED, "mrope_section": "11"}))
    assert 'text_config.rope_parameters.mrope_section = "11": must be a list of numbers of pairs' in told
    told = refusal(tmp_path, nested(QWEN3_5, rope_parameters={**SECTIONED, "mrope_interleaved": 1}))
    assert "mrope_interleaved = 1: must be true or false" in told
    told = refusal(tmp_path, changed(QWEN3_NEXT, rope_theta=REMOVED, rope_parameters={**SECTIONED}))
    assert 'mrope_section = [6, 6, 4]: changes nothing that is known of kind "default"' in told


def test_the_images_of_the_model_around_are_left_out_and_of_no_text_model(tmp_path: Path) -> None:
    assert "Only the text model of Qwen3_5ForConditionalGeneration" in imported(tmp_path, QWEN3_5).text
    told = refusal(tmp_path, nested(QWEN3_5, vision_config={"depth": 2}))
    assert "text_config.vision_config = {depth = 2}: asks for image input" in told
    assert "vision_config = {a = 1}: asks for image input" in refusal(tmp_path, {**WRAPPED, "vision_config": {"a": 1}})


def test_other_classes_say_that_they_have_no_linear_attention(tmp_path: Path) -> None:
    for key, words in (
        ("full_attention_interval", "linear attention with a recurrent state"),
        ("shared_expert_intermediate_size", "an expert that sees every token"),
        ("attn_output_gate", "a gate on the attention's output"),
    ):
        told = refusal(tmp_path, changed(LLAMA, **{key: 4}))
        assert f"{key} = 4: asks for {words}, which models of LlamaConfig do not have here" in told


def test_a_board_holds_as_many_states_as_fit_and_waves_no_more_rows_than_that(tmp_path: Path) -> None:
    """Each sequence has a state of 16 MiB in each of 18 layers, whose passes have few operations."""
    wide = {
        "linear_num_key_heads": 64,
        "linear_num_value_heads": 64,
        "linear_key_head_dim": 256,
        "num_hidden_layers": 24,
    }
    wide |= {"linear_value_head_dim": 256, "full_attention_interval": REMOVED, "layer_types": REMOVED}
    found = imported(tmp_path, with_text(QWEN3_5, **wide))
    tables_found = {one.target: one.table for one in found.chosen}
    assert (tables_found["p150"]["state_slots"], tables_found["p150"]["waves"]) == (8, [1, 2, 4, 8])
    assert (tables_found["n150"]["state_slots"], tables_found["n150"]["waves"]) == (4, [1, 2, 4])
    assert "state_slots = 4 # sequences whose recurrent state is held at a time: the memory holds no 8" in found.text
    assert "recurrent states" in found.chosen[0].summary

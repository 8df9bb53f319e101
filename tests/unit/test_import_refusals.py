"""What codegen import refuses, with the key, the value and what is supported, and that nothing is written then."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generator import catalog
from generator.cli import main
from generator.errors import shown
from generator.importing import classes, refused
from generator.importing.config_class import ConfigClass
from tests.support.configurations import (
    GEMMA3,
    LLAMA,
    LLAMA3,
    LONGROPE,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_NEXT,
    REMOVED,
    WRAPPED,
    YARN,
    changed,
    imported,
    nested,
    refusal,
    written,
)

SUPPORTED = refused.supported()
ABSENCE = "only its absence, null or false is supported"
OPTIONS = [  # a supported model with an option that is not built
    ({"vision_config": {"depth": 2}}, "vision_config = {depth = 2}: asks for image input, which is not built"),
    ({"audio_config": {"depth": 2}}, "audio_config = {depth = 2}: asks for audio input, which is not built"),
    ({"q_lora_rank": 1536}, "q_lora_rank = 1536: asks for multi-head latent attention (MLA), which is not built"),
    ({"kv_lora_rank": 512}, "kv_lora_rank = 512: asks for multi-head latent attention (MLA), which is not built"),
    (
        {"quantization_config": {"quant_method": "fp8"}},
        'quantization_config = {quant_method = "fp8"}: asks for a checkpoint that is already quantised, which is not built',
    ),
    (
        {"is_encoder_decoder": True},
        "is_encoder_decoder = true: asks for an encoder beside the decoder, which is not built",
    ),
    (
        {"add_cross_attention": True},
        "add_cross_attention = true: asks for cross-attention to another sequence, which is",
    ),
    ({"cross_attention_layers": [3]}, "cross_attention_layers = [3]: asks for cross-attention to another sequence"),
    ({"num_local_experts": 8}, "num_local_experts = 8: asks for a mixture of experts, which is not built"),
    (
        {"linear_num_key_heads": 4},
        "linear_num_key_heads = 4: asks for linear attention with a recurrent state, which models of LlamaConfig do not",
    ),
    (
        {"attn_logit_softcapping": 50.0},
        "attn_logit_softcapping = 50.0: asks for a soft cap, which models of LlamaConfig do not have here",
    ),
    (
        {"final_logit_softcapping": 30.0},
        "final_logit_softcapping = 30.0: asks for a soft cap, which models of LlamaConfig do not have here",
    ),
    (
        {"query_pre_attn_scalar": 256},
        "query_pre_attn_scalar = 256: asks for a scale of its own on attention's scores, which models of LlamaConfig do not",
    ),
    (
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention = true: asks for attention in both directions, which is not built",
    ),
    (
        {"attention_bias": True},
        "attention_bias = true: asks for a bias that the family does not fix, which is not built",
    ),
    ({"mlp_bias": True}, "mlp_bias = true: asks for a bias that the family does not fix, which is not built"),
    ({"sinks": True}, "sinks = true: asks for attention sinks, which is not built"),
    (
        {"sliding_window": 128},
        "sliding_window = 128: asks for sliding-window attention, which models of LlamaConfig do not have here",
    ),
    (
        {"embedding_multiplier": 12.0},
        "embedding_multiplier = 12.0: asks for a scale on the embedding, residual or logits",
    ),
    ({"swiglu_limit": 7.0}, "swiglu_limit = 7.0: asks for a clamped gate in the feed-forward, which is not built"),
    (
        {"no_rope_layers": [0, 1]},
        "no_rope_layers = [0, 1]: asks for layers without a rotary embedding, which is not built",
    ),
]


@pytest.mark.parametrize(("option", "message"), OPTIONS, ids=[next(iter(one)) for one, _ in OPTIONS])
def test_options_that_are_not_built_are_refused_by_name(option: dict[str, Any], message: str, tmp_path: Path) -> None:
    (name,) = option
    told = refusal(tmp_path, changed(LLAMA, **option))
    text = (tmp_path / "made-up.json").read_text().splitlines()
    number = next(index for index, one in enumerate(text, 1) if f'"{name}"' in one)
    assert told.startswith(f"FILE:{number}: {message}")
    assert told.endswith(ABSENCE)
    if name != "sliding_window":
        assert message.replace("LlamaConfig", "MistralConfig") in refusal(tmp_path, nested(WRAPPED, **option))


def test_options_without_effect_are_taken(tmp_path: Path) -> None:
    neutral = {name: None for name in refused.OPTIONS} | {
        "attention_bias": False,
        "logits_scaling": 1.0,
        "num_experts": 0,
    }
    assert imported(tmp_path, {**neutral, **LLAMA}).understood.unread == ()


MODEL_TYPES = {
    "qwen2_moe": "a mixture of experts of another kind, one of which sees every token",
    "olmoe": "a mixture of experts of another kind",
    "deepseek_v3": "multi-head latent attention (MLA) and a mixture of experts of another kind",
    "qwen2_5_vl": "image input",
    "mllama": "image input and cross-attention to another sequence",
    "m2m_100": "an encoder beside the decoder",
    "mamba2": "a recurrent state of another kind",
    "whisper": "audio input and an encoder beside the decoder",
}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_other_model_types_are_refused_by_what_they_need(name: str, tmp_path: Path) -> None:
    told = refusal(tmp_path, {"model_type": name, "vision_config": {"a": 1}})
    assert f'FILE:2: model_type = "{name}": needs {MODEL_TYPES[name]}, which is not built; {SUPPORTED}' in told
    assert "vision_config = {a = 1}: asks for image input" in told  # every reason at once


FIXED = [(one, name) for one in classes.CLASSES for name in one.fixed]


@pytest.mark.parametrize(("one", "name"), FIXED, ids=[f"{one.model_type}-{name}" for one, name in FIXED])
def test_of_some_keys_only_the_default_is_built(one: ConfigClass, name: str, tmp_path: Path) -> None:
    built = one.defaults[name]
    other = not built if isinstance(built, bool) else built + 1
    rule = (
        f"{name} = {shown(other)}: must be {shown(built)}: no other {one.name} models are built; write {shown(built)}"
    )
    assert rule in refusal(tmp_path, {"model_type": one.model_type, name: other})
    few = {"num_experts": 64} if one.model_type == "qwen3_next" else {}  # of 512, which no board routes
    imported(
        tmp_path, {"model_type": one.model_type, "num_hidden_layers": one.every or 2, name: built} | few
    )  # is taken
    kind = "true or false" if isinstance(built, bool) else "a number"
    assert f'{name} = "x": must be {kind}' in refusal(tmp_path, {"model_type": one.model_type, name: "x"})


def test_no_supported_model_type_is_also_said_to_be_unsupported() -> None:
    assert not set(classes.TABLE) & set(refused.MODEL_TYPES)
    for name in classes.TABLE:
        assert refused.model_type(name)[0] == "no model type of this name is supported"


BAD = [  # (configuration, what the message has)
    (
        changed(LLAMA, model_type="lama"),
        'FILE:5: model_type = "lama": no model type of this name is supported; did you mean "llama"?',
    ),
    (changed(LLAMA, model_type=7), f"model_type = 7: must be a string; {SUPPORTED}"),
    (changed(LLAMA, model_type=REMOVED, architectures=REMOVED), "model_type: is missing, and so is an architecture"),
    (
        changed(LLAMA, architectures=["MistralForCausalLM"]),
        'architectures = ["MistralForCausalLM"]: contradicts model_type "llama": it belongs to "mistral"; "LlamaForCausalLM"',
    ),
    (
        changed(LLAMA, architectures=["LlamaForSequenceClassification"]),
        "is no architecture of llama that gives logits for a next token",
    ),
    (
        changed(LLAMA, architectures="LlamaForCausalLM"),
        'architectures = "LlamaForCausalLM": must be a list of one name',
    ),
    # values of another type, and of no size
    (changed(LLAMA, hidden_size="512"), 'hidden_size = "512": must be an integer; leave it out for the default 4096'),
    (changed(LLAMA, hidden_size=512.0), "hidden_size = 512.0: must be an integer"),
    (changed(LLAMA, hidden_size=True), "hidden_size = true: must be an integer"),
    (changed(LLAMA, hidden_size=None), "hidden_size = null: must be an integer"),
    (changed(LLAMA, num_hidden_layers=0), "num_hidden_layers = 0: must be at least 1"),
    (changed(LLAMA, num_attention_heads=-8), "num_attention_heads = -8: must be at least 1"),
    (changed(LLAMA, vocab_size=10**17), "vocab_size = 100000000000000000: must be at most 4194304"),
    (changed(LLAMA, rms_norm_eps="x"), 'rms_norm_eps = "x": must be a number'),
    (changed(LLAMA, rms_norm_eps=0), "rms_norm_eps = 0.0: must be at least 1e-12"),
    (changed(LLAMA, tie_word_embeddings=1), "tie_word_embeddings = 1: must be true or false"),
    (changed(LLAMA, tie_word_embeddings=None), "tie_word_embeddings = null: must be true or false"),
    (changed(LLAMA, hidden_act="gelu"), 'hidden_act = "gelu": asks for another activation'),
    (changed(LLAMA, max_position_embeddings=64), "takes prompts from 128 tokens on, over maximum_context 64"),
    (changed(QWEN3, head_dim=None), "head_dim = null: must be an integer; leave it out for the default 128"),
    # sizes that contradict one another
    (
        changed(LLAMA, num_key_value_heads=3),
        "num_key_value_heads = 3: must divide the 8 query heads; nearest legal value 2",
    ),
    (
        changed(LLAMA, num_key_value_heads=REMOVED, model_type="mistral", architectures=[], num_attention_heads=12),
        "num_key_value_heads = 8: must divide the 12 query heads (absent, default 8 of MistralConfig)",
    ),
    (
        changed(LLAMA, num_attention_heads=7),
        "num_attention_heads = 7: makes head_dim 73.1429 (512 hidden / 7 query heads)",
    ),
    (changed(LLAMA, head_dim=48), "head_dim = 48: must be a multiple of 32, a tile"),
    (changed(LLAMA, hidden_size=500), "hidden_size = 500: must be a multiple of 32, a tile; nearest legal value 512"),
    # layers
    (
        changed(QWEN2, layer_types=["full_attention"]),
        "has 1 entries for 2 layers (num_hidden_layers); correct the list",
    ),
    (changed(QWEN2, layer_types="full_attention"), 'layer_types = "full_attention": must be a list of strings'),
    (
        changed(QWEN2, layer_types=["full_attention", "linear_attention"]),
        'layer_types[1] = "linear_attention": asks for linear attention with a recurrent state, which models of Qwen2Config do',
    ),
    (changed(QWEN2, layer_types=["full_attention", "odd"]), 'layer_types[1] = "odd": is no layer type that is known'),
    (
        changed(QWEN2, layer_types=["full_attention", "sliding_attention"]),
        'layer_types[1] = "sliding_attention": contradicts use_sliding_window (absent, default false of Qwen2Config)',
    ),
    (
        changed(LLAMA, layer_types=["full_attention", "sliding_attention"]),
        'layer_types[1] = "sliding_attention": asks for sliding-window attention, which LlamaConfig does not have',
    ),
    # windows
    (changed(PHI3, sliding_window=0), "sliding_window = 0: must be at least 1; write null for none"),
    (
        changed(MISTRAL, sliding_window=128, layer_types=["sliding_attention", "full_attention"]),
        'layer_types[1] = "full_attention": contradicts sliding_window (sliding_window), which is for every layer; write sli',
    ),
    (
        changed(QWEN2, use_sliding_window=True, sliding_window=128, max_window_layers=None),
        "max_window_layers = null: must be an integer; it is the first layer with a window",
    ),
    (
        changed(GEMMA3, sliding_window=None),
        "sliding_window = null: must be an integer: 5 layers have a window; write its tokens",
    ),
    (changed(GEMMA3, sliding_window_pattern=0), "sliding_window_pattern = 0: must be at least 1"),
    (changed(GEMMA3, sliding_window_pattern="a"), 'sliding_window_pattern = "a": must be an integer'),
    # what Gemma adds
    (
        changed(GEMMA3, hidden_activation="gelu"),
        'hidden_activation = "gelu": asks for another activation than Gemma3TextConfig models have here; only "gelu_pytorch_',
    ),
    (changed(GEMMA3, query_pre_attn_scalar=0), "query_pre_attn_scalar = 0: must be at least 1"),
    (changed(GEMMA3, query_pre_attn_scalar=1.5), "query_pre_attn_scalar = 1.5: must be an integer"),
    (changed(GEMMA3, final_logit_softcapping=0), "final_logit_softcapping = 0.0: must be at least 0.001"),
    (
        changed(GEMMA3, attn_logit_softcapping=50.0),
        "attn_logit_softcapping = 50.0: asks for a soft cap, which models of Gemma3TextConfig do not have here",
    ),
    (
        changed(GEMMA3, rope_scaling=REMOVED, rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        "must hold an object for each layer type; one of them full_attention, one sliding_attention",
    ),
    (
        changed(
            GEMMA3, rope_scaling=REMOVED, rope_parameters={"sliding_attention": {"rope_type": "yarn", "factor": 2.0}}
        ),
        'rope_parameters.sliding_attention.rope_type = "yarn": family gemma3 has no rotary embedding of this kind',
    ),
    (changed(GEMMA3, rope_local_base_freq="x"), 'rope_local_base_freq = "x": must be a number'),
    # rotary embeddings
    (
        changed(LLAMA, rope_scaling={"type": "dynamic", "factor": 2.0}),
        'rope_scaling.type = "dynamic": no rotary embedding of',
    ),
    (changed(LLAMA, rope_scaling=[1]), "rope_scaling = [1]: must be an object or null"),
    (changed(LLAMA, rope_scaling={"type": 3}), "rope_scaling.type = 3: must be a string"),
    (changed(LLAMA, rope_scaling={**LLAMA3, "type": "yarn"}), 'type = "yarn": contradicts rope_type "llama3"'),
    (changed(LLAMA, rope_scaling=LLAMA3, rope_parameters=YARN), "contradicts rope_parameters, which differs"),
    (
        changed(LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 1.0}),
        "rope_theta = 50000.0: contradicts rope_parameters.rope_theta 1; keep one of the two",
    ),
    (
        changed(LLAMA, rope_scaling={key: LLAMA3[key] for key in LLAMA3 if key != "factor"}),
        "rope_scaling.factor: is missing; add it",
    ),
    (changed(LLAMA, rope_scaling={**LLAMA3, "factor": "8"}), 'rope_scaling.factor = "8": must be a number'),
    (changed(LLAMA, rope_scaling={**LLAMA3, "factor": -8}), "rope_scaling.factor = -8: must be over 0"),
    (
        changed(LLAMA, rope_scaling={**LLAMA3, "facto": 8}),
        'facto = 8: changes nothing that is known of kind "llama3"; did you',
    ),
    (changed(LLAMA, rope_scaling={**LLAMA3, "low_freq_factor": 9.0}), "must be over low_frequency_factor 9"),
    (changed(LLAMA, rope_theta=0.5), "rope_theta = 0.5: must be at least 1"),
    (changed(LLAMA, rope_theta=None), "rope_theta = null: must be a number; leave it out for the default 10000.0"),
    (
        changed(LLAMA, rope_parameters={"sliding_attention": {"rope_type": "default"}}),
        "rope_parameters.full_attention: is missing, and the model has layers of this type",
    ),
    (
        changed(LLAMA, rope_parameters={"full_attention": {"rope_type": "default"}, "rope_theta": 1.0}),
        "rope_parameters.rope_theta = 1.0: stands beside objects for layer types",
    ),
    (
        changed(LLAMA, partial_rotary_factor=0.5),
        "partial_rotary_factor = 0.5: the published code of LlamaForCausalLM turns",
    ),
    (changed(PHI3, partial_rotary_factor=1.5), "partial_rotary_factor = 1.5: must be over 0 and at most 1"),
    (changed(PHI3, partial_rotary_factor=0.02), "makes 1 of 64 dimensions, which must be even and at least 2"),
    (
        changed(PHI3, rope_scaling={**LONGROPE, "short_factor": [1.0] * 31}),
        "has 31 factors, not the 32 of 64 rotary dimensions / 2; correct the list or the head width",
    ),
    (
        changed(PHI3, rope_scaling={**LONGROPE, "long_factor": [1.0] * 31 + ["a"]}),
        "must be a list of numbers; 32 of them",
    ),
    (
        changed(PHI3, rope_scaling={**LONGROPE, "long_factor": [1.0] * 31 + [0.0]}),
        "rope_scaling.long_factor[31] = 0.0: must be over 0",
    ),
    (
        changed(PHI3, rope_scaling={"type": "longrope", "long_factor": [1.0] * 32}),
        "short_factor: is missing; kind longrope",
    ),
    (
        changed(PHI3, rope_scaling={**LONGROPE, "original_max_position_embeddings": 2048}),
        "rope_scaling.original_max_position_embeddings = 2048: contradicts original_max_position_embeddings: 4096 (absent",
    ),
    (changed(QWEN2, rope_scaling={**YARN, "truncate": 1}), "rope_scaling.truncate = 1: must be true or false"),
    (changed(QWEN2, rope_scaling={**YARN, "attention_factor": 0}), "rope_scaling.attention_factor = 0: must be over 0"),
    (changed(QWEN2, rope_scaling={**YARN, "mscale": 1e308, "mscale_all_dim": 1.0}), "attention_factor"),
    (changed(QWEN2, rope_scaling={**YARN, "factor": 1e300}), "rope_scaling.factor = 1e+300: must be at most 1000000"),
    # a text model within another
    (
        nested(WRAPPED, model_type="llama"),
        'text_config.model_type = "llama": contradicts model_type "mistral3" around it',
    ),
    ({**WRAPPED, "text_config": 3}, "text_config = 3: must be an object; Mistral3Config holds the text model there"),
    (changed(WRAPPED, text_config=REMOVED), "text_config: is missing; Mistral3Config holds the text model there"),
    ({**WRAPPED, "hidden_size": 1024}, "hidden_size = 1024: contradicts text_config.hidden_size 512; make them equal"),
    (
        {**WRAPPED, "tie_word_embeddings": True},
        "tie_word_embeddings = true: contradicts text_config.tie_word_embeddings false; make them equal",
    ),
    ({**WRAPPED, "vision_config": {"a": 1}}, "vision_config = {a = 1}: asks for image input, which is not built"),
    (changed(LLAMA, text_config={"hidden_size": 64}), "contradicts the text model LlamaConfig that is its own"),
]


@pytest.mark.parametrize(("config", "message"), BAD, ids=range(len(BAD)))
def test_a_mistake_is_refused_with_key_value_and_rule(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, config)


def test_a_model_that_fits_no_board_is_refused_with_the_numbers_of_each(tmp_path: Path) -> None:
    large = changed(LLAMA, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64)
    told = refusal(tmp_path, large).splitlines()
    assert [one.partition(":")[2].partition(":")[0].strip() for one in told] == ["target n150", "target p150"]
    for one, board in zip(told, ("11.99", "31.87")):
        assert "does not hold the model: " in one and "weights in bfloat8_b + " in one and f"of {board} GiB DRAM" in one


@pytest.mark.parametrize(("layers", "hinted"), [(40, True), (80, False)])
def test_weights_in_four_bits_are_named_where_they_would_fit_and_never_chosen(
    layers: int, hinted: bool, tmp_path: Path
) -> None:
    sizes = {"hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40, "num_key_value_heads": 10}
    told = refusal(tmp_path, changed(LLAMA, **sizes, num_hidden_layers=layers), "n150")
    assert ("write its manifest by hand with weights in bfloat4_b, which fit" in told) == hinted


def test_a_board_that_was_asked_for_and_is_too_small_is_refused_though_another_is_not(tmp_path: Path) -> None:
    sizes = {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = changed(LLAMA, **sizes, num_hidden_layers=60)
    assert [one.target for one in imported(tmp_path, config).chosen] == ["p150"]
    assert refusal(tmp_path, config, "p150", "n150").startswith("FILE: target n150: does not hold the model: ")


def test_an_unknown_board_is_refused(tmp_path: Path) -> None:
    assert 'target = "n151": no target of this name in the directory; did you mean "n150"?' in refusal(
        tmp_path, LLAMA, "n151"
    )


def test_sizes_that_no_program_takes_are_refused(tmp_path: Path) -> None:
    wide = changed(LLAMA, num_attention_heads=64, num_key_value_heads=8, head_dim=256)
    assert "target n150: is too small: nlp_concat_heads takes " in refusal(tmp_path, wide)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    (manifests / "targets").mkdir(parents=True)
    board = catalog.find(catalog.BUILT_IN, catalog.TARGETS, "n150")
    (manifests / "targets" / "n150.toml").write_bytes(board.read_bytes())
    (manifests / "models").write_text("a file")
    result = CliRunner().invoke(main, ["import", str(written(tmp_path, LLAMA)), "--manifests", str(manifests)])
    assert (result.exit_code, "is a file and no folder" in result.output) == (2, True)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**19), 10**19),
    st.sampled_from([0, 1, 2, 31, 32, 64, 128, 4096, 10**9, 10**17]),
    st.floats(),
    st.sampled_from(
        ["", "silu", "yarn", "longrope", "llama3", "linear", "full_attention", "sliding_attention", "\ud800\n"]
    ),
    st.lists(st.floats(0.5, 4), min_size=31, max_size=33),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "linear_attention"]), max_size=4),
    st.dictionaries(
        st.sampled_from(["rope_type", "factor", "full_attention", "rope_theta"]), st.integers(0, 9), max_size=2
    ),
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict):
        return [at]
    return [place for key, one in value.items() for place in _places(one, (*at, key))] + [at + (key,) for key in value]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_configuration_changed_at_random_is_imported_whole_or_refused_by_name(data: st.DataObject) -> None:
    bases = [
        changed(LLAMA, rope_scaling=LLAMA3),
        MISTRAL,
        changed(QWEN2, rope_scaling=YARN, use_sliding_window=True, sliding_window=4096, max_window_layers=1),
        changed(
            QWEN3, rope_parameters={"full_attention": {"rope_type": "default"}}, layer_types=["full_attention"] * 2
        ),
        changed(PHI3, rope_scaling=LONGROPE, partial_rotary_factor=1.0),
        changed(LLAMA, rope_scaling={**LONGROPE, "factor": 2.0}),
        WRAPPED,
        GEMMA3,
        changed(GEMMA3, rope_scaling=REMOVED, rope_parameters={"full_attention": {}, "sliding_attention": {}}),
        QWEN3_NEXT,
        QWEN3_5,
        QWEN3_5_MOE,
    ]
    config = copy.deepcopy(data.draw(st.sampled_from(bases)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(_places(config) or [("model_type",)]))
        holder = config
        for key in place[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[place[-1]] = data.draw(VALUES)
        else:
            del holder[place[-1]]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), json.dumps(config))
        manifests = Path(folder) / "manifests"
        (manifests / "targets").mkdir(parents=True)
        board = catalog.find(catalog.BUILT_IN, catalog.TARGETS, "p150")
        (manifests / "targets" / "p150.toml").write_bytes(board.read_bytes())
        result = CliRunner().invoke(main, ["import", str(path), "--manifests", str(manifests)])
        written_files = [one.name for one in manifests.rglob("*") if one.is_file() and one.name != "p150.toml"]
        if result.exit_code == 0:
            assert written_files == ["made-up.toml"]
        else:
            assert result.exit_code == 2, result.exception
            assert isinstance(result.exception, SystemExit)
            assert str(path) in result.output
            assert not written_files

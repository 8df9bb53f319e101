"""codegen import: values and their origins in both forms of configurations, tables for boards, and the file that is written."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from generator import catalog, geometry, manifest, targets
from generator.cli import main
from generator.importing import boards, classes, rope
from generator.importing.config_class import ConfigClass
from tests.support.configurations import (
    COMMON,
    GEMMA3,
    LLAMA,
    LLAMA3,
    LONGROPE,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    REMOVED,
    WRAPPED,
    YARN,
    changed,
    imported,
    nested,
    written,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def tables(tmp_path: Path, config: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(imported(tmp_path, config).text)


def comment(tmp_path: Path, config: dict[str, Any], key: str) -> str:
    """What the manifest says about the origin of a key of [model] or [model.rope]."""
    text = imported(tmp_path, config).text
    lines = text.partition("\n[model.local_rope")[0].partition("\n[target")[0].splitlines()
    (line,) = [one for one in lines if one.startswith(f"{key} = ")]
    return line.partition(" # ")[2]


MODEL = {
    "vocabulary": 1024,
    "hidden": 512,
    "intermediate": 1024,
    "layers": 2,
    "query_heads": 8,
    "key_value_heads": 2,
    "maximum_context": 4096,
    "norm_epsilon": 1e-5,
    "activation": "silu",
    "tied_embeddings": False,
    "rope": {"kind": "default", "theta": 50000.0},
}


@pytest.mark.parametrize("base", [LLAMA, MISTRAL, QWEN2, PHI3, WRAPPED], ids=lambda one: one["model_type"])
def test_every_value_of_the_configuration_reaches_the_manifest(base: dict[str, Any], tmp_path: Path) -> None:
    assert tables(tmp_path, base)["model"] == MODEL


@pytest.mark.parametrize("scaling", [None, LLAMA3, {"type": "linear", "factor": 4.0}, YARN], ids=str)
def test_both_forms_of_a_configuration_make_one_manifest(scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    old = changed(QWEN2 if scaling is YARN else LLAMA, rope_scaling=scaling)
    table = {**(scaling or {"rope_type": "default"}), "rope_theta": 50000.0}
    table["rope_type"] = table.pop("type", table.get("rope_type"))
    new = changed(old, rope_theta=REMOVED, rope_scaling=REMOVED, rope_parameters=table)
    by_layer_type = changed(
        new, rope_parameters={"full_attention": table, "sliding_attention": None}, layer_types=["full_attention"] * 2
    )
    first, second, third = (tables(tmp_path, one)["model"] for one in (old, new, by_layer_type))
    assert first == second == third
    assert "transformers 4 (rope_theta" in imported(tmp_path, old).text
    assert "transformers 5 (rope_parameters)" in imported(tmp_path, new).text


@pytest.mark.parametrize("one", classes.CLASSES, ids=lambda one: one.model_type)
def test_defaults_are_those_of_the_classes_of_transformers(one: ConfigClass) -> None:
    transformers = pytest.importorskip("transformers")
    declared = {field.name: field.default for field in dataclasses.fields(getattr(transformers, one.name))}
    theirs = {key: declared.get(key) for key in one.defaults}  # an undeclared head_dim is derived, as None says
    theta = getattr(transformers, one.name).default_theta
    if one.local_rope:
        theirs |= {"rope_theta": theta["global"], "rope_local_base_freq": theta["local"]}
        types = getattr(transformers, one.name)(num_hidden_layers=50).layer_types
        theirs["sliding_window_pattern"] = types.index("full_attention") + 1
    else:
        theirs["rope_theta"] = theta
    assert dict(one.defaults) == theirs
    assert hasattr(transformers, one.architecture)


FEW_EXPERTS = {"num_experts": 64}  # of 512, which no board routes


@pytest.mark.parametrize("one", classes.CLASSES, ids=lambda one: one.model_type)
def test_an_absent_key_has_the_default_of_its_class_and_says_so(one: ConfigClass, tmp_path: Path) -> None:
    bare = {"model_type": one.model_type, "num_hidden_layers": one.every or 2}  # so that a board holds it
    bare |= {"sliding_window": None} if one.model_type == "mistral" else {}
    bare |= FEW_EXPERTS if one.model_type == "qwen3_next" else {}
    experts = one.experts
    width = experts.intermediate if experts else "intermediate_size"
    model = tables(tmp_path, bare)["model"]
    feed_forward = model if experts is None else model["experts"]
    assert (model["hidden"], feed_forward["intermediate"]) == (one.defaults["hidden_size"], one.defaults[width])
    default = f"absent, default {one.defaults['hidden_size']} of {one.name}"
    assert comment(tmp_path, bare, "hidden") == default
    assert comment(tmp_path, bare, "theta") == f"absent, default {one.defaults['rope_theta']} of {one.name}"


def test_an_absent_key_is_no_null_one(tmp_path: Path) -> None:
    absent, null = changed(MISTRAL, num_key_value_heads=REMOVED), changed(MISTRAL, num_key_value_heads=None)
    assert tables(tmp_path, absent)["model"]["key_value_heads"] == 8
    assert comment(tmp_path, absent, "key_value_heads") == "absent, default 8 of MistralConfig"
    assert tables(tmp_path, null)["model"]["key_value_heads"] == 8  # as many as query heads
    assert comment(tmp_path, null, "key_value_heads") == "num_key_value_heads = null: as many as query heads"
    wide = changed(QWEN3, head_dim=REMOVED)
    assert tables(tmp_path, wide)["model"]["head_dim"] == 128  # and not 512 hidden / 8 query heads
    assert comment(tmp_path, wide, "head_dim") == "absent, default 128 of Qwen3Config"
    narrow = imported(tmp_path, changed(LLAMA, head_dim=None)).text
    assert "# Head width 64: head_dim = null: 512 hidden / 8 query heads\n" in narrow


def test_a_value_says_its_key(tmp_path: Path) -> None:
    assert comment(tmp_path, LLAMA, "layers") == "num_hidden_layers"
    assert comment(tmp_path, WRAPPED, "layers") == "text_config.num_hidden_layers"
    parameters = changed(LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 7.0}, rope_theta=REMOVED)
    assert comment(tmp_path, parameters, "theta") == "rope_parameters.rope_theta"
    assert comment(tmp_path, LLAMA, "kind") == "rope_scaling absent, rope_parameters absent: the plain embedding"


def test_keys_that_nothing_depends_on_are_listed_and_notes_are_not(tmp_path: Path) -> None:
    found = imported(tmp_path, changed(LLAMA, unsloth="x", _source="y", bos_token_id=1, attention_bias=False))
    assert found.understood.unread == ("unsloth",)
    assert "# Keys that nothing here depends on: unsloth\n" in found.text


def test_windows_that_hold_the_whole_context_are_causal(tmp_path: Path) -> None:
    for config in (
        changed(MISTRAL, sliding_window=4096),
        changed(MISTRAL, sliding_window=REMOVED),  # the class has 4096
        changed(PHI3, sliding_window=262144),
        changed(QWEN2, sliding_window=128, use_sliding_window=False),
        changed(QWEN2, sliding_window=128, use_sliding_window=True, max_window_layers=2),
        changed(
            QWEN2, sliding_window=128, use_sliding_window=True, max_window_layers=0, layer_types=["full_attention"] * 2
        ),
        changed(QWEN3, sliding_window=4096, use_sliding_window=True, max_window_layers=0),
    ):
        assert "every layer sees all" in imported(tmp_path, config).text


WINDOWED = {
    "mistral": (changed(MISTRAL, sliding_window=1024), [0, 1]),
    "mistral by default": (changed(MISTRAL, sliding_window=REMOVED, max_position_embeddings=32768), [0, 1]),
    "phi3": (changed(PHI3, sliding_window=2047), [0, 1]),
    "qwen2 from a layer on": (
        changed(QWEN2, use_sliding_window=True, sliding_window=128, max_window_layers=1),
        [1],
    ),
    "qwen2 by default from layer 28 on": (
        changed(QWEN2, use_sliding_window=True, sliding_window=128, num_hidden_layers=30),
        [28, 29],
    ),
    "qwen3 by layer": (
        changed(
            QWEN3,
            use_sliding_window=True,
            sliding_window=128,
            layer_types=["sliding_attention", "full_attention"],
        ),
        [0],
    ),
    "gemma3": (GEMMA3, [0, 1, 3, 4, 6]),
    "gemma3 by default": (changed(GEMMA3, sliding_window_pattern=REMOVED), [0, 1, 2, 3, 4, 6]),
    "gemma3 by layer": (
        changed(GEMMA3, layer_types=["full_attention"] * 6 + ["sliding_attention"], sliding_window_pattern=REMOVED),
        [6],
    ),
    "gemma3 wider than the context": (changed(GEMMA3, sliding_window=10**6), [0, 1, 3, 4, 6]),
    "gemma3 in every layer": (changed(GEMMA3, sliding_window_pattern=50), [0, 1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("case", WINDOWED)
def test_windows_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config, sliding = WINDOWED[case]
    found = tables(tmp_path, config)["model"]
    again = getattr(transformers, classes.TABLE[config["model_type"]].name)(**json.loads(json.dumps(config)))
    assert found["sliding_window"] == again.sliding_window
    assert found["full_attention_layers"] == [layer for layer in range(found["layers"]) if layer not in sliding]
    if config["model_type"] not in ("mistral", "phi3"):  # which give every layer the window
        assert [layer for layer, one in enumerate(again.layer_types) if one == "sliding_attention"] == sliding


BY_LAYER = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 9000.0},
}


def test_both_forms_of_gemma_make_one_manifest(tmp_path: Path) -> None:
    first = tables(tmp_path, GEMMA3)["model"]
    assert first["rope"] == {"kind": "linear", "theta": 50000.0, "factor": 8.0}
    assert first["local_rope"] == {"kind": "default", "theta": 9000.0}
    assert (first["activation"], first["query_scale"], first["tied_embeddings"]) == ("gelu_tanh", 100, True)
    old = {"rope_theta": REMOVED, "rope_local_base_freq": REMOVED, "rope_scaling": REMOVED}
    assert tables(tmp_path, changed(GEMMA3, **old, rope_parameters=BY_LAYER))["model"] == first
    wrapped = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": changed(GEMMA3, architectures=REMOVED),
    }
    assert tables(tmp_path, wrapped)["model"] == first
    theta = {"full_attention": {"rope_type": "default"}}
    bare = tables(tmp_path, changed(GEMMA3, **old, rope_parameters=theta))["model"]
    assert (bare["rope"]["theta"], bare["local_rope"]["theta"]) == (1000000.0, 10000.0)


def test_the_rotary_embeddings_of_gemma_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    names = {"rope": "full_attention", "local_rope": "sliding_attention"}
    for config in (
        GEMMA3,
        changed(GEMMA3, rope_theta=REMOVED, rope_local_base_freq=REMOVED, rope_scaling=None),
        changed(
            GEMMA3, rope_theta=REMOVED, rope_local_base_freq=REMOVED, rope_scaling=REMOVED, rope_parameters=BY_LAYER
        ),
    ):
        found = tables(tmp_path, config)["model"]
        theirs = transformers.Gemma3TextConfig(**json.loads(json.dumps(config))).rope_parameters
        for ours, name in names.items():
            assert found[ours]["theta"] == theirs[name]["rope_theta"]
            assert found[ours]["kind"] == theirs[name]["rope_type"]
            assert found[ours].get("factor") == theirs[name].get("factor")


def test_gemma_without_a_full_layer_has_the_embedding_of_windows_alone(tmp_path: Path) -> None:
    found = tables(tmp_path, changed(GEMMA3, sliding_window_pattern=50))["model"]
    assert found["rope"] == {"kind": "default", "theta": 9000.0}
    assert "local_rope" not in found
    found = tables(tmp_path, changed(GEMMA3, sliding_window_pattern=1))["model"]
    assert found["rope"]["kind"] == "linear" and not {"local_rope", "sliding_window"} & found.keys()


def test_a_cap_of_logits_is_taken_and_none_leaves_no_key(tmp_path: Path) -> None:
    assert tables(tmp_path, changed(GEMMA3, final_logit_softcapping=30.0))["model"]["logit_soft_cap"] == 30.0
    assert "logit_soft_cap" not in tables(tmp_path, changed(GEMMA3, final_logit_softcapping=None))["model"]


def test_yarn_factors_are_written_out_and_reach_past_the_maximum(tmp_path: Path) -> None:
    found = tables(tmp_path, changed(QWEN2, rope_scaling=YARN))["model"]
    assert found["maximum_context"] == 16384
    assert found["rope"] == {
        "kind": "yarn",
        "theta": 50000.0,
        "factor": 4.0,
        "original_context": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": True,
        "attention_factor": pytest.approx(0.1 * math.log(4) + 1, rel=1e-15),
    }


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"attention_factor": 1.5},
        {"mscale": 0.7, "mscale_all_dim": 1.3},
        {"mscale": 0.7},
        {"factor": None},
        {"beta_fast": 16, "beta_slow": None, "truncate": False},
        {"factor": 1.0},
    ],
    ids=str,
)
def test_yarn_is_as_transformers_reads_it(more: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = changed(QWEN2, max_position_embeddings=16384, rope_scaling={**YARN, **more})
    model = tables(tmp_path, config)["model"]
    again = transformers.Qwen2Config(**json.loads(json.dumps(config)))
    theirs, factor = ROPE_INIT_FUNCTIONS["yarn"](again, None)
    assert model["rope"]["attention_factor"] == pytest.approx(factor, rel=1e-12)
    ours = {"rope_type": "yarn", "rope_theta": model["rope"]["theta"]}
    ours |= {key: model["rope"][key] for key in ("factor", "beta_fast", "beta_slow", "truncate", "attention_factor")}
    ours["original_max_position_embeddings"] = model["rope"]["original_context"]
    plain = transformers.Qwen2Config(**changed(config, rope_scaling=REMOVED, rope_theta=REMOVED, rope_parameters=ours))
    assert ROPE_INIT_FUNCTIONS["yarn"](plain, None)[0].equal(theirs)


@pytest.mark.parametrize("more", [{}, {"factor": 2.0}, {"attention_factor": 1.25}], ids=str)
def test_longrope_is_as_transformers_reads_it(more: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = changed(
        PHI3, max_position_embeddings=16384, original_max_position_embeddings=2048, rope_scaling={**LONGROPE, **more}
    )
    found = tables(tmp_path, config)["model"]
    factor = ROPE_INIT_FUNCTIONS["longrope"](transformers.Phi3Config(**json.loads(json.dumps(config))), None)[1]
    assert found["rope"] == {
        "kind": "longrope",
        "theta": 50000.0,
        "original_context": 2048,
        "short_factors": [1.0] * 32,
        "long_factors": [2.5] * 32,
        "attention_factor": pytest.approx(factor, rel=1e-12),
    }
    assert tables(tmp_path, changed(config, rope_scaling={**LONGROPE, **more, "type": "su"}))["model"] == found


def test_partial_rotary_of_phi(tmp_path: Path) -> None:
    lists = {"type": "longrope", "short_factor": [1.0] * 24, "long_factor": [2.0] * 24}
    config = changed(PHI3, partial_rotary_factor=0.75, rope_scaling=lists)
    assert tables(tmp_path, config)["model"]["rotary_dimensions"] == 48
    assert comment(tmp_path, config, "rotary_dimensions") == "partial_rotary_factor 0.75 x 64"
    assert "rotary_dimensions" not in tables(tmp_path, changed(PHI3, partial_rotary_factor=1.0))["model"]


def test_a_model_is_known_by_its_architecture_alone(tmp_path: Path) -> None:
    assert tables(tmp_path, changed(QWEN3, model_type=REMOVED))["family"] == "qwen3"
    assert tables(tmp_path, changed(QWEN3, architectures=REMOVED))["family"] == "qwen3"


def test_around_a_text_model_the_outer_key_ties_the_embeddings(tmp_path: Path) -> None:
    silent = nested(WRAPPED, tie_word_embeddings=REMOVED)
    assert not tables(tmp_path, silent)["model"]["tied_embeddings"]
    assert comment(tmp_path, silent, "tied_embeddings") == "absent, default false of MistralConfig"
    assert tables(tmp_path, {**silent, "tie_word_embeddings": True})["model"]["tied_embeddings"]


# Tables for boards


def sized(layers: int, hidden: int = 4096, maximum: int = 131072, vocabulary: int = 32000) -> dict[str, Any]:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "vocab_size": vocabulary,
    }
    return changed(LLAMA, **sizes, num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=maximum)


@pytest.mark.parametrize("layers", [2, 8, 20, 28, 36, 44])
def test_a_chosen_table_fits_with_room_and_nothing_larger_does(layers: int, tmp_path: Path) -> None:
    found = imported(tmp_path, sized(layers))
    file = manifest.parse(found.text, "made-up", ("n150", "p150"))
    for name, table in file.manifest.target.items():
        board = targets.load_board(catalog.BUILT_IN, name)
        used = geometry.resolve(file, board).memory
        usable = used.capacity * (boards.FREE_SHARE - 1) / boards.FREE_SHARE
        assert used.total <= usable
        assert table.context % table.prefill_chunk == 0
        whole = min(131072, boards.LONGEST_CONTEXT)
        if table.context < whole:
            longer = dataclasses.replace(
                geometry.resolve(file, board), context=table.context + 2048, key_value_blocks=table.context // 32 + 64
            )
            assert geometry.memory.report(longer).total > usable
            assert table.dtypes.key_value == "bfloat8_b"
        if table.dtypes.weights == "bfloat8_b":
            wide = dataclasses.replace(geometry.resolve(file, board).dtypes, weights="bfloat16")
            small = dataclasses.replace(
                geometry.resolve(file, board), dtypes=wide, context=32768, key_value_blocks=1024
            )
            assert geometry.memory.report(small).total > usable


def test_dtypes_narrow_only_as_the_model_grows(tmp_path: Path) -> None:
    found = [
        {
            name: (table["dtypes"]["weights"], table["dtypes"]["key_value"])
            for name, table in tables(tmp_path, sized(layers))["target"].items()
        }
        for layers in (2, 24, 36, 60)
    ]
    wide, narrow = "bfloat16", "bfloat8_b"
    assert found[0] == {"n150": (wide, wide), "p150": (wide, wide)}
    assert found[1] == {"n150": (wide, narrow), "p150": (wide, wide)}
    assert found[2] == {"n150": (narrow, narrow), "p150": (wide, narrow)}
    assert found[3] == {"p150": (wide, narrow)}


def test_short_contexts_have_shorter_passes(tmp_path: Path) -> None:
    table = tables(tmp_path, sized(2, maximum=1000))["target"]["n150"]
    assert (table["lengths"], table["prefill_chunk"], table["context"]) == ([128, 256, 512], 512, 512)


def test_a_board_can_be_asked_for(tmp_path: Path) -> None:
    assert list(imported(tmp_path, sized(60), "p150").chosen[0].table["lengths"]) == [320, 640, 1280, 2048]
    everywhere = imported(tmp_path, sized(60))
    assert [one.target for one in everywhere.chosen] == ["p150"]
    assert [one.target for one in everywhere.misfits] == ["n150"]
    assert "# Not for n150: does not hold the model: " in everywhere.text


# The command


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    (tmp_path / "manifests" / "targets").mkdir(parents=True)
    for name in catalog.names(catalog.BUILT_IN, catalog.TARGETS):
        board = catalog.find(catalog.BUILT_IN, catalog.TARGETS, name)
        (tmp_path / "manifests" / "targets" / board.name).write_bytes(board.read_bytes())
    return tmp_path / "manifests"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_an_imported_model_is_built_at_once(tmp_path: Path, manifests: Path) -> None:
    config = written(tmp_path, changed(LLAMA, rope_scaling=LLAMA3))
    result = run("import", config, "--manifests", manifests, "--target", "n150")
    assert result.exit_code == 0, result.output
    assert "next: codegen build made-up" in result.output
    result = run("build", "made-up", "--manifests", manifests, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "made_up" / "n150.py").is_file()


def test_a_manifest_is_overwritten_only_by_force(tmp_path: Path, manifests: Path) -> None:
    config, path = written(tmp_path, LLAMA), manifests / "models" / "mine.toml"
    assert run("import", config, "--manifests", manifests, "--name", "mine").exit_code == 0
    path.write_text("edited")
    result = run("import", config, "--manifests", manifests, "--name", "mine")
    assert result.exit_code == 2
    assert "exists and is not overwritten; import with --force" in result.output
    assert path.read_text() == "edited"
    assert run("import", config, "--manifests", manifests, "--name", "mine", "--force").exit_code == 0
    assert path.read_text().startswith("# Written by codegen import from made-up.json")
    assert [one.name for one in path.parent.iterdir()] == ["mine.toml"]


def test_json_says_what_was_decided(tmp_path: Path, manifests: Path) -> None:
    result = run("import", written(tmp_path, LLAMA), "--manifests", manifests, "--json")
    told = json.loads(result.output)
    assert (told["version"], told["model"], told["family"]) == (1, "made-up", "llama")
    assert told["values"]["hidden"] == {"value": 512, "from": "hidden_size"}
    assert told["targets"].keys() == {"n150", "p150"}
    assert Path(told["manifest"]).is_file()
    result = CliRunner().invoke(main, ["import", str(tmp_path / "no.json"), "--json"])
    assert result.exit_code == 2
    assert "cannot be read" in json.loads(result.output.splitlines()[0])["errors"][0]["rule"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Llama-3.1-8B.json", "llama-3.1-8b"),
        ("Mistral-Small-3.1-24B-Instruct-2503.json", "mistral-small-3.1-24b-instruct-2503"),
        ("phi-4.json", "phi-4"),
        ("Qwen2.5_(new)--x.json", "qwen2.5-new-x"),
        ("Some Model/config.json", "some-model"),
        ("4bit.json", "bit"),
    ],
)
def test_a_model_is_named_after_its_file_or_folder(file: str, name: str, tmp_path: Path, manifests: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(LLAMA))
    assert run("import", path, "--manifests", manifests).exit_code == 0
    assert (manifests / "models" / f"{name}.toml").is_file()


@pytest.mark.parametrize("name", ["Upper", "a b", "../up", "class", "x" * 65, ""])
def test_names_follow_the_rules_of_manifests(name: str, tmp_path: Path, manifests: Path) -> None:
    result = run("import", written(tmp_path, LLAMA), "--manifests", manifests, "--name", name)
    assert result.exit_code == 2
    assert "--name: " in result.output
    assert not (manifests / "models").exists()


def test_a_name_whose_folder_another_model_has_is_refused(tmp_path: Path, manifests: Path) -> None:
    config = written(tmp_path, LLAMA)
    assert run("import", config, "--manifests", manifests, "--name", "a.b").exit_code == 0
    result = run("import", config, "--manifests", manifests, "--name", "a-b")
    assert (result.exit_code, 'makes the same folder a_b as the model "a.b"' in result.output) == (2, True)


def test_a_download_folder_tells_no_name(tmp_path: Path, manifests: Path) -> None:
    path = tmp_path / ("ab" * 20) / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA))
    result = run("import", path, "--manifests", manifests)
    assert (result.exit_code, "give one with --name" in result.output) == (2, True)


def test_the_importer_does_not_need_transformers(tmp_path: Path, manifests: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert run("import", written(tmp_path, LLAMA), "--manifests", manifests).exit_code == 0


def test_every_kind_of_rope_that_families_take_has_a_reader() -> None:
    from generator.families import FAMILIES

    assert {kind for one in FAMILIES.values() for kind in one.rope_kinds} <= rope.READERS.keys()
    assert set(COMMON) <= set(classes.TABLE["llama"].defaults)

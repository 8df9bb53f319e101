"""Mixtures of experts in the generator: rules of manifests, the cut over the cores, memory, and the modelled work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from generator import catalog, experts, kinds
from generator.errors import ManifestError
from generator.experts import Experts, cut_experts, expected_tiles, scatter_cycles
from generator.geometry import Resolved, resolve
from generator.layer import layer_steps
from generator.attentions import Attention
from generator.manifest import check, load
from generator.matmuls import NoProgram
from generator.memory import report
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from generator.targets import load_board
from generator.toml_source import scan
from generator.twin import twin
from tests.support.building import codegen

N150, P150 = (load_board(catalog.BUILT_IN, name) for name in ("n150", "p150"))
CORE = N150.rates.core
QWEN, MIXTRAL = "qwen3-30b-a3b", "mixtral-8x7b-v0.1"


def data(model: str = QWEN) -> dict[str, Any]:
    return load(catalog.BUILT_IN, model).manifest.model_dump(exclude_none=True)


def refused(changed: dict[str, Any]) -> str:
    with pytest.raises(ManifestError) as error:
        check(changed, "m.toml", scan(""), ("p150",))
    return str(error.value)


def of(model: str, small: bool = False) -> Resolved:
    file = load(catalog.BUILT_IN, model)
    return resolve(twin(file) if small else file, P150)


@pytest.mark.parametrize(
    ("experts_of", "message"),
    [
        ({"per_token": 129}, "model.experts.per_token"),
        ({"count": 4}, "model.experts.per_token = 8: must be at most count 4; nearest legal value 4"),
        (
            {"intermediate": 770},
            "model.experts.intermediate = 770: must be a multiple of 32, a tile; nearest legal value 768",
        ),
        ({"intermediate": 32}, "model.experts.intermediate = 32: must be at least 64"),
        ({"count": 2048}, "model.experts.count = 2048: must be at most 1024"),
    ],
)
def test_numbers_of_experts_that_cannot_be_are_refused(experts_of: dict[str, Any], message: str) -> None:
    changed = data()
    changed["model"]["experts"] |= experts_of
    assert message in refused(changed)


def test_more_experts_than_are_routed_have_no_program_where_their_memory_would_fit() -> None:
    changed = data()
    changed["model"] |= {"layers": 2, "experts": changed["model"]["experts"] | {"count": 512}}
    numbers = resolve(check(changed, "m.toml", scan(""), ("p150",)), P150)
    with pytest.raises(NoProgram, match="512 experts are over the 256 that are routed on a device"):
        choose_programs(numbers, enumerate_shapes(numbers))


def test_a_family_with_experts_states_them_and_no_dense_width() -> None:
    changed = data()
    del changed["model"]["experts"]
    assert (
        "model.experts: is missing; family qwen3_moe needs it: count, per_token, intermediate and renormalise"
        in refused(changed)
    )
    changed = data()
    changed["model"]["intermediate"] = 6144
    assert "model.intermediate = 6144: belongs to dense families" in refused(changed)
    changed = data(MIXTRAL)
    changed["model"]["experts"]["renormalise"] = False
    assert "model.experts.renormalise = false: family mixtral always has true; write true" in refused(changed)
    changed = data()
    changed["family"] = "qwen3"
    found = refused(changed)
    assert "model.experts: belongs to families with experts, and qwen3 is dense" in found
    assert "model.intermediate: is missing; add intermediate to [model]" in found
    assert "target.p150.dtypes.experts = bfloat4_b: belongs to families with experts" in found


def test_passes_that_cannot_be_counted_exactly_and_waves_alike_are_refused() -> None:
    changed = data()
    changed["target"]["p150"] |= {"wave_tokens": 16384, "waves": [1, 2, 4, 8]}
    assert (
        "target.p150.wave_tokens = 16384: allows passes of 16384 tokens: experts are counted exactly up to 8192"
        in refused(changed)
    )
    changed = data()
    changed["target"]["p150"]["batch_invariant"] = True
    assert "target.p150.batch_invariant = true: is not built with experts" in refused(changed)
    changed = data()
    changed["model"]["hidden"] = 16384
    assert "model.hidden = 16384: is over the 8192 columns" in refused(changed)


def test_experts_too_narrow_for_the_cores_are_refused_by_the_board() -> None:
    changed = data(MIXTRAL)
    changed["model"]["experts"]["intermediate"] = 64
    with pytest.raises(
        ManifestError, match="intermediate = 64: cannot be run on p150: no cut of experts of 128 x 2 tiles"
    ):
        resolve(check(changed, "m.toml", scan(""), ("p150",)), P150)


@pytest.mark.parametrize(
    ("sides", "board", "dtype", "biased", "wanted"),
    [
        ((64, 24), P150, "bfloat4_b", False, (11, 10, 1)),  # Qwen3-30B-A3B
        ((128, 448), P150, "bfloat4_b", False, (11, 10, 4)),  # Mixtral-8x7B
        ((90, 90), P150, "bfloat8_b", True, (11, 10, 1)),  # gpt-oss-20b
        ((90, 90), N150, "bfloat4_b", True, (8, 8, 1)),
        ((128, 448), N150, "bfloat4_b", False, (8, 8, 7)),
        ((4, 3), N150, "bfloat16", False, (3, 3, 1)),
    ],
)
def test_an_expert_is_cut_over_as_many_cores_as_it_has_tiles_in_as_few_parts_as_fit(
    sides: tuple[int, int], board: Any, dtype: str, biased: bool, wanted: tuple[int, int, int]
) -> None:
    found = cut_experts(*sides, board.grid, board.l1_bank_bytes, dtype, biased)
    assert (found.columns, found.lines, found.parts) == wanted
    assert found.buffer_bytes <= board.l1_bank_bytes
    if found.parts > 1:
        fewer = max(part for part in range(1, found.parts) if sides[1] % part == 0)
        need = experts.buffer_bytes(sides[0], sides[1] // fewer, board.grid, dtype, biased)
        assert need is None or need > board.l1_bank_bytes


def test_no_cut_is_no_program() -> None:
    with pytest.raises(NoProgram, match="no cut of experts of 256 x 2 tiles"):
        cut_experts(256, 2, P150.grid, P150.l1_bank_bytes, "bfloat16", False)


def test_memory_counts_every_expert_in_every_layer() -> None:
    resolved = of(QWEN)
    items = {item.name: item for item in report(resolved).items}
    assert items["gate"].count == 48 * 128 and items["gate"].pages == 64 * 24
    assert of(MIXTRAL).memory.fits
    parts = {item.name: item for item in report(of(MIXTRAL)).items}
    assert parts["down"].count == 32 * 8 * 4 and parts["down"].pages == 112 * 128


def test_the_peak_of_a_pass_is_where_every_choice_has_a_row() -> None:
    assert of(QWEN).memory.peak_stage in ("to_layout", "embedding", "add", "empty", "moe_fused_swiglu")
    slots = experts.slots(4096, of(QWEN).experts)
    assert of(QWEN).memory.activation_peak > 2 * slots * 2048 * 2


def test_the_modelled_work_grows_with_the_experts_chosen_and_not_with_all() -> None:
    """Tile rows of one layer: near tokens x chosen, far below tokens x all; and no more weights than experts that see a token."""
    mixture = of(QWEN).experts
    for tokens in (128, 2048, 4096):
        seen, rows = expected_tiles(tokens, mixture)
        assert tokens * 8 / 32 <= rows <= tokens * 8 / 32 + 64
        assert seen <= 128
    seen, rows = expected_tiles(1, mixture)
    assert seen == pytest.approx(8) and rows < 8
    assert expected_tiles(4096, mixture)[1] < 0.1 * 128 * 4096 / 32

    def cycles(chosen: int) -> float:
        few = Experts(128, chosen, 768, True, "qwen3_moe", False, "silu")
        _, tile_rows = expected_tiles(4096, few)
        return experts.expert_cycles(CORE, 64, 24, tile_rows, kinds.experts.cut(of(QWEN)), "bfloat4_b")

    assert 1.8 < cycles(8) / cycles(4) < 2.0


def test_a_scatter_over_many_rows_is_dealt_over_the_cores_and_one_row_is_not() -> None:
    assert (
        scatter_cycles(CORE, 1, 1000, 500, 110)
        == scatter_cycles(CORE, 110, 1000, 500, 110)
        == scatter_cycles(CORE, 220, 1000, 500, 110) / 2
    )


@pytest.mark.parametrize("model", [QWEN, MIXTRAL])
def test_every_matmul_of_the_steps_has_a_role_and_every_role_a_step(model: str) -> None:
    resolved = of(model)
    shape, *_ = enumerate_shapes(resolved)
    steps = layer_steps(resolved, shape, Attention(64, 128), "full")
    assert {step.role for step in steps} - {""} == {role.name for role in kinds.layer_matmuls(resolved)}
    live: set[str] = {"hidden"}
    for step in steps:
        assert {tensor.name for tensor in step.frees} <= live | {tensor.name for tensor in step.writes} | {
            "summed"
        }, step
        live |= {tensor.name for tensor in step.writes}
        live -= {tensor.name for tensor in step.frees}

    assert not {name for name in live if name.startswith(("fed", "placed", "picked", "total", "returned", "rows"))}


@pytest.mark.parametrize("model", [QWEN, MIXTRAL])
def test_a_twin_has_few_experts_of_which_a_token_sees_two(model: str) -> None:
    small = of(model, small=True)
    assert (small.experts.count, small.experts.per_token) == (8, 2)
    assert small.experts.intermediate >= experts.NARROWEST and small.intermediate == small.experts.intermediate


def test_a_dense_model_has_no_trace_of_experts() -> None:
    dense = resolve(load(catalog.BUILT_IN, "llama-3.2-1b"), N150)
    assert dense.experts is None and dense.dtypes.experts is None
    assert "experts" not in {item.name for item in dense.memory.items}


IMPORTS = [
    ({"mlp_only_layers": [3]}, "mlp_only_layers = [3]: asks for layers without experts among those that have them"),
    ({"decoder_sparse_step": 2}, "decoder_sparse_step = 2: asks for layers without experts among those that have them"),
    (
        {"shared_expert_intermediate_size": 512},
        "asks for an expert that sees every token, which models of Qwen3MoeConfig do not have here",
    ),
    ({"num_experts": 300}, "300 experts are over the 256 that are routed on a device"),
    ({"num_local_experts": 64}, "num_local_experts = 64: contradicts num_experts 128; make them equal"),
    ({"moe_intermediate_size": 700}, "moe_intermediate_size = 700: must be a multiple of 32"),
    ({"moe_intermediate_size": 0}, "moe_intermediate_size = 0: must be at least 1"),
    ({"norm_topk_prob": "yes"}, 'norm_topk_prob = "yes": must be true or false'),
    ({"num_experts_per_tok": None}, "num_experts_per_tok = null: must be an integer"),
    ({"num_experts_per_tok": 12, "num_experts": 8}, "num_experts_per_tok = 12: must be at most count 8"),
]
PUBLISHED = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
}


@pytest.mark.parametrize(("change", "message"), IMPORTS, ids=lambda one: "-".join(one) if isinstance(one, dict) else "")
def test_configurations_that_ask_for_other_experts_are_refused_by_name(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(PUBLISHED | change))
    outcome = codegen("import", config, "--name", "m", "--manifests", manifests(tmp_path))
    assert outcome.code == 2 and message in outcome.err, outcome.err
    assert not list((tmp_path / "manifests" / "models").glob("*"))


def test_both_forms_of_a_configuration_give_the_same_experts(tmp_path: Path) -> None:
    hub = tmp_path / "hub.json"
    hub.write_text(json.dumps(PUBLISHED | {"rope_theta": 1e6, "intermediate_size": 6144}))
    newer = {key: value for key, value in PUBLISHED.items() if key != "num_experts"}
    fifth = tmp_path / "fifth.json"
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    fifth.write_text(json.dumps(newer | rope | {"num_local_experts": 128}))
    told = [codegen("import", one, "--json", "--manifests", manifests(tmp_path)).data["values"] for one in (hub, fifth)]
    values = [{key: one["value"] for key, one in each.items()} for each in told]
    assert values[0] == values[1] and values[0]["experts.count"] == 128
    assert [each["experts.count"]["from"] for each in told] == ["num_experts", "num_local_experts"]
    assert "intermediate" not in values[0]


def manifests(folder: Path) -> Path:
    made = folder / "manifests"
    (made / "models").mkdir(parents=True, exist_ok=True)
    (made / "targets").mkdir(exist_ok=True)
    for path in (catalog.BUILT_IN / catalog.TARGETS).glob("*.toml"):
        (made / "targets" / path.name).write_text(path.read_text())
    return made

"""The rules that a layer is made by, for every combination of dtypes and rotations; what is emitted follows them."""

from __future__ import annotations

import ast
from functools import cache
from itertools import product

import pytest

from generator import catalog, geometry, inputs, kinds, programs, targets
from generator.geometry import Resolved
from generator.matmuls import PAIRS, RESIDUAL, Matmul, MinimalMatmul
from generator.pipeline import emit
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from generator.twin import twin
from tests.support.manifests import read

COMBINATIONS = list(product(("bfloat16", "bfloat8_b", "bfloat4_b"), ("bfloat16", "bfloat8_b"), (64, 96), (False, True)))
each = pytest.mark.parametrize(("weights", "key_value", "head_dim", "invariant"), COMBINATIONS)
emitted_ones = pytest.mark.parametrize(("weights", "key_value", "head_dim", "invariant"), COMBINATIONS[:16])


@cache
def build(weights: str, key_value: str, head_dim: int, invariant: bool) -> Resolved:
    """A twin of a small manifest with these options."""
    changes = [
        ('weights = "bfloat16"', f'weights = "{weights}"'),
        ('key_value = "bfloat16"', f'key_value = "{key_value}"'),
        ("hidden = 576", f"hidden = {9 * head_dim}"),
        ("attention_chunk = 128\n", f"attention_chunk = 128\nbatch_invariant = {str(invariant).lower()}\n"),
    ]
    return geometry.resolve(twin(read(*changes)), targets.load_board(catalog.BUILT_IN, "n150"))


@cache
def text(weights: str, key_value: str, head_dim: int, invariant: bool) -> str:
    return emit(build(weights, key_value, head_dim, invariant), "m.toml", inputs.TEMPLATES).text


def entries(source: str, constructor: str) -> dict[str, list[str]]:
    """Arguments of every table entry by its name, as they are written."""
    return {
        node.args[0].value: [ast.unparse(part) for part in node.args]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == constructor
    }


def called(source: str) -> set[str]:
    """Names of the library's functions that the module calls, without their modules."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {function.attr for function in calls if isinstance(function, ast.Attribute)}


@each
def test_each_rule_depends_on_what_it_says(weights: str, key_value: str, head_dim: int, invariant: bool) -> None:
    numbers = build(weights, key_value, head_dim, invariant)
    halves = head_dim == 64
    assert programs.fuses_gate_up(numbers) == (not invariant)
    assert programs.fuses_residual(numbers) == (not invariant and weights == "bfloat16")
    assert programs.heads_dtype(numbers) == (key_value if halves else "bfloat16")
    assert programs.fused(numbers, "gate_up") == ("" if invariant else PAIRS)
    for role in ("attention_output", "down"):
        assert programs.fused(numbers, role) == (RESIDUAL if not invariant and weights == "bfloat16" else "")
    assert programs.fused(numbers, "query_key_value") == programs.fused(numbers, "head") == ""


def test_attention_returns_heads_side_by_side_unless_it_reads_the_caches() -> None:
    variants = ("single", "batched", "chunked", "chunked_batched")
    assert [programs.concatenates_heads(variant) for variant in variants] == [True, True, False, False]


@each
def test_matmuls_are_of_the_form_and_width_that_the_rules_ask_for(
    weights: str, key_value: str, head_dim: int, invariant: bool
) -> None:
    numbers = build(weights, key_value, head_dim, invariant)
    roles = {role.name: role for role in kinds.layer_matmuls(numbers)}
    chosen = choose_programs(numbers, enumerate_shapes(numbers)).matmuls
    fused = {"gate_up": not invariant} | dict.fromkeys(
        ("attention_output", "down"), not invariant and weights == "bfloat16"
    )
    for (name, _), program in chosen.items():
        assert isinstance(program, MinimalMatmul if fused.get(name) else Matmul), name
    assert roles["gate_up"].output == numbers.intermediate * (1 if invariant else 2)
    assert roles["query_key_value"].output_dtype == programs.heads_dtype(numbers)


@each
def test_memory_counts_the_weights_that_the_rules_ask_for(
    weights: str, key_value: str, head_dim: int, invariant: bool
) -> None:
    numbers = build(weights, key_value, head_dim, invariant)
    items = {item.name: item for item in numbers.memory.items}
    rows = {row.name for row in (*kinds.model_weights(numbers), *kinds.layer_weights(numbers))}
    assert items.keys() - {"key_value"} == rows
    assert ("ones" in items) == (not invariant and weights == "bfloat16")
    gates = ["gate", "up"] if invariant else ["gate_up"]
    whole = 2 * numbers.layers * (numbers.hidden // 32) * (numbers.intermediate // 32)
    assert sum(items[name].count * items[name].pages for name in gates) == whole
    assert not {"gate", "up", "gate_up"} - set(gates) & items.keys()


@emitted_ones
def test_the_emitted_layer_is_the_one_of_the_rules(
    weights: str, key_value: str, head_dim: int, invariant: bool
) -> None:
    numbers, source = build(weights, key_value, head_dim, invariant), text(weights, key_value, head_dim, invariant)
    operations, table = called(source), entries(source, "Weight")
    residual, pairs = not invariant and weights == "bfloat16", not invariant
    assert ("dit_minimal_matmul_addcmul_fused" in operations) == residual == ("ones" in table)
    assert ("add" not in operations) == residual
    assert ("minimal_matmul" in operations) == pairs == ("gate_up" in table) == ("fuse_swiglu=True" in source)
    assert ("mul" not in operations) == pairs and ({"gate", "up"} <= table.keys()) == invariant
    assert table["ones"][1:4] == ["()", "'ones'", "(1, 1, 1, HIDDEN)"] if residual else "ones" not in source
    half_split = head_dim == 64
    assert ("rotary_embedding_hf" in operations) == half_split == ("rotary_embedding_llama" not in operations)
    as_cached = programs.heads_dtype(numbers) == key_value
    assert "HEADS_DTYPE = " + ("KEY_VALUE_DTYPE" if as_cached else "ACTIVATION_DTYPE") in source
    casts_to_caches = source.count("KEY_VALUE_DTYPE, memory_config=place.heads")
    assert casts_to_caches == (0 if as_cached else 2)


@emitted_ones
def test_the_emitted_tables_are_the_chosen_programs_and_places(
    weights: str, key_value: str, head_dim: int, invariant: bool
) -> None:
    numbers, source = build(weights, key_value, head_dim, invariant), text(weights, key_value, head_dim, invariant)
    chosen = choose_programs(numbers, enumerate_shapes(numbers))
    tables = {
        node.targets[0].id: dict(zip(node.value.keys, node.value.values))
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    written = {
        name: {ast.literal_eval(key): ast.unparse(value) for key, value in tables[name].items()}
        for name in ("MATMULS", "ATTENTION", "PLACES")
    }
    assert written["MATMULS"] == {key: f"{one.form}{one.numbers}" for key, one in chosen.matmuls.items()}
    assert written["ATTENTION"] == {
        (shape.variant, shape.rows, shape.tokens): f"attention_chunks({one.query_chunk}, {one.key_chunk})"
        for shape, one in chosen.attentions.items()
    }
    order = ("normed", "heads", "attended", "gated")
    assert written["PLACES"] == {
        size: f"Places({', '.join('L1' if place in inside else 'DRAM' for place in order)})"
        for size, inside in chosen.places.items()
    }

"""What every committed module promises: how it reads, what it may hold, and tables that are legal and closed."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil
from types import ModuleType
from typing import Any

import pytest

from generator import catalog, inputs, manifest
from generator.attentions import Attention, attention_bytes
from generator.kinds import layer_matmuls
from generator.kinds.rows import MatmulRole
from generator.matmuls import PAIRS, RESIDUAL, Matmul, MinimalMatmul, matmul_bytes, minimal_matmul_bytes
from generator.wrappers import WRAPPERS
from runtime import emulator
from runtime.load import check_module
from runtime.tables import Shape, layer_kinds
from tests.support.building import COMMITTED, committed, committed_text, emitted, names_of, resolved

MODULES = committed()
every_module = pytest.mark.parametrize(("model", "target"), MODULES, ids=names_of(MODULES))
LIMIT, FURTHER, MOST = 500, 120, 600  # lines; further ones for experts, for explicit scores and for layers of two kinds
RECURRENT_LINES, SHARED_LINES = 140, 150  # more for recurrent layers, which are three phases; and for routed experts beside one for all
# A norm before either kind of layer; queries beside their gates; the taps of a convolution.
READ_IN_PARTS = ("input_layernorm.weight", "self_attn.q_proj.weight", "linear_attn.conv1d.weight")
INTEGER_TABLES = ("TRACES", "MATMULS", "ATTENTION")
SECTIONS = ("constants", "tables", "weights and stores", "inputs", "body", "traces")


@cache
def tree(model: str, target: str) -> ast.Module:
    return ast.parse(committed_text(model, target))


@cache
def imported(model: str, target: str) -> ModuleType:
    return importlib.import_module(f"generated.{manifest.module_name(model)}.{target}")


def test_there_is_a_committed_module_for_every_target_and_no_other() -> None:
    on_disk = {path.relative_to(COMMITTED).as_posix() for path in COMMITTED.glob("*/*.py")}
    expected = {f"{manifest.module_name(model)}/{target}.py" for model, target in MODULES}
    assert on_disk - {f"{name.split('/')[0]}/__init__.py" for name in expected} == expected
    assert MODULES


@every_module
def test_rendering_again_gives_the_committed_bytes(model: str, target: str) -> None:
    assert emitted(model, target).text == committed_text(model, target)


def lines_of_code(model: str, target: str) -> int:
    """Lines that hold code: no blank, comment or docstring lines, and no rows of the integer tables."""
    left_out: set[int] = set()
    for node in ast.walk(tree(model, target)):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            left_out |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) in INTEGER_TABLES:
            left_out |= set(range(node.lineno, node.end_lineno + 1))
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(committed_text(model, target)).readline):
        if token.type not in layout:
            held |= set(range(token.start[0], token.end[0] + 1))
    return len(held - left_out)


@every_module
def test_a_module_is_short_enough_to_read(model: str, target: str) -> None:
    numbers = resolved(model, target)
    further = sum((numbers.experts is not None, numbers.attention_soft_cap > 0, len(numbers.kinds) > 1))
    most = min(LIMIT + FURTHER * further, MOST)
    if numbers.gated_delta_net is not None:
        most += RECURRENT_LINES + (SHARED_LINES if numbers.experts is not None else 0)
    assert 200 < lines_of_code(model, target) < most
    assert max(map(len, committed_text(model, target).split("\n"))) <= 120


@every_module
def test_no_branch_survives_and_layers_are_one_loop(model: str, target: str) -> None:
    nodes = list(ast.walk(tree(model, target)))
    branches = (ast.If, ast.IfExp, ast.While, ast.Try, ast.Match, ast.Lambda, ast.Assert, ast.BoolOp, ast.Compare)
    assert [type(node).__name__ for node in nodes if isinstance(node, branches)] == []
    assert [generator for node in nodes if isinstance(node, ast.comprehension) for generator in node.ifs] == []
    loops = [ast.unparse(node.iter) for node in nodes if isinstance(node, ast.For)]
    kinds = "kinds, " if layer_kinds(imported(model, target)) else ""
    if resolved(model, target).gated_delta_net is None:
        assert loops == [f"zip({kinds}weights.layers, stores.keys, stores.values)"]
        return
    assert [loop for loop in loops if "layers" in loop] == ["zip(kinds, weights.layers, held_by(kinds, stores))"]
    others = [loop for loop in loops if "layers" not in loop]
    assert [loop for loop in others if loop != "kinds" and "row" not in loop] == []  # what each row of a wave has of its own


@every_module
def test_the_first_line_of_code_binds_the_library_and_only_the_runtime_is_imported(model: str, target: str) -> None:
    body = tree(model, target).body
    assert ast.get_docstring(tree(model, target))
    assert ast.unparse(body[1]) == "from runtime.backend import ttnn"
    others = [node for node in ast.walk(tree(model, target)) if isinstance(node, (ast.Import, ast.ImportFrom))][1:]
    phases = ["runtime.phases"] if resolved(model, target).gated_delta_net is not None else []
    assert [node.module for node in others] == [*phases, "runtime.tables"]


@every_module
def test_nothing_in_a_module_changes_by_itself(model: str, target: str) -> None:
    """No time stamp, no version, no path of a machine: an upgrade that changes nothing shows no difference."""
    text = committed_text(model, target)
    versions = [f"{name} {version}" for name, version in (tool.split() for tool in inputs.tools().split(", "))]
    assert not [version for version in versions if version in text]
    assert re.findall(r"\b20\d\d-\d\d|\d\d:\d\d|version|prefill-codegen", text) == []
    assert re.findall(r"(?:^|[\s\"'])/\w+/", text) == []
    assert text.isascii() and text.endswith("\n") and "\r" not in text and "\t" not in text


@every_module
def test_the_head_says_what_it_is_and_how_to_make_it_again(model: str, target: str) -> None:
    head = ast.get_docstring(tree(model, target)) or ""
    assert head.split("\n")[0] == f"Prefill of {model} on {target}. Written by codegen, do not edit."
    assert f"codegen build {model} --target {target}" in head
    (path,) = re.findall(r"Manifest:\s+(\S+)", head)
    assert (catalog.BUILT_IN / path).is_file()
    assert f"Geometry:  {resolved(model, target).digest}" in head
    stated = re.findall(
        r"^ *(single|batched|chunked|chunked_batched) {2,}([\d ]+?) {2,}([\d ]+)$", head, re.MULTILINE
    )
    ragged = re.findall(r"^ *ragged {2,}up to (\d+) {2,}([\d ]+) together$", head, re.MULTILINE)
    rows = {
        (variant, int(count), int(tokens))
        for variant, counts, lengths in stated
        for count in counts.split()
        for tokens in lengths.split()
    }
    rows |= {
        ("ragged", int(count), int(together) // int(count)) for count, sums in ragged for together in sums.split()
    }
    assert rows == {(shape.variant, shape.rows, shape.tokens) for shape in imported(model, target).TRACES}


@every_module
def test_sections_stand_in_order_under_their_headings(model: str, target: str) -> None:
    headings = re.findall(r"^# --- ([a-z ]+?)(?::.*?)? -+$", committed_text(model, target), re.MULTILINE)
    assert tuple(headings) == SECTIONS


@every_module
def test_names_say_the_role_and_not_a_number(model: str, target: str) -> None:
    names = {node.id for node in ast.walk(tree(model, target)) if isinstance(node, ast.Name)}
    assert [name for name in names - {"L1"} if re.search(r"_?\d+$", name)] == []


@every_module
def test_every_function_says_what_it_does(model: str, target: str) -> None:
    functions = [node for node in tree(model, target).body if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 15
    assert [function.name for function in functions if not ast.get_docstring(function)] == []


def library_calls(model: str, target: str) -> Iterator[tuple[str, ast.Call]]:
    """Dotted names below ttnn with the calls of them."""
    for node in ast.walk(tree(model, target)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("ttnn."):
            yield ast.unparse(node.func).removeprefix("ttnn."), node


def in_emulator(name: str) -> Any:
    found: Any = emulator
    for part in name.split("."):
        found = getattr(found, part)
    return found


@every_module
def test_every_name_of_the_library_that_a_module_uses_is_in_the_emulator(model: str, target: str) -> None:
    used = {ast.unparse(node) for node in ast.walk(tree(model, target)) if isinstance(node, ast.Attribute)}
    names = {name.removeprefix("ttnn.") for name in used if name.startswith("ttnn.")}
    assert len(names) > 25
    for name in names:
        assert in_emulator(name) is not None, name


EXPLICIT = {"memory_config", "program_config", "compute_kernel_config", "scale", "epsilon", "is_decode_mode"}
VIEWS = {"reshape"}  # other sizes of the same rows, in the same place


@every_module
def test_no_operation_is_left_to_choose_for_itself(model: str, target: str) -> None:
    """Where an operation takes one of these options, every call states it; and no call has an option that is not there."""
    operations = 0
    for name, call in library_calls(model, target):
        function = in_emulator(name)
        if not inspect.isfunction(function):
            continue
        operations += 1
        taken = inspect.signature(function).parameters
        stated = {keyword.arg for keyword in call.keywords}
        assert stated <= taken.keys(), name
        assert name in VIEWS or EXPLICIT & taken.keys() <= stated, name
    assert operations > 25


@every_module
def test_every_compute_configuration_is_stated_in_full(model: str, target: str) -> None:
    configurations = [call for name, call in library_calls(model, target) if name == "WormholeComputeKernelConfig"]
    numbers = resolved(model, target)
    routed, recurrent = numbers.experts is not None, numbers.gated_delta_net is not None
    assert len(configurations) == 5 + 2 * routed + 2 * recurrent
    if recurrent:  # whose kernels do not sum in L1
        (call,) = [call for call in configurations if "packer_l1_acc=False" in ast.unparse(call) and "HiFi4" in ast.unparse(call)]
        assert "fp32_dest_acc_en=True" in ast.unparse(call) and "math_approx_mode=False" in ast.unparse(call)
        configurations.remove(call)
    for call in configurations:
        stated = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        fidelity = stated.pop("math_fidelity")
        assert fidelity in ("ttnn.MathFidelity.LoFi", "ttnn.MathFidelity.HiFi2", "ttnn.MathFidelity.HiFi4")
        wide = str(not (routed and call is configurations[-1]))  # the experts' kernel takes neither flag
        assert stated == {"math_approx_mode": "False", "fp32_dest_acc_en": wide, "packer_l1_acc": wide}


@every_module
def test_the_runtime_takes_the_module(model: str, target: str) -> None:
    check_module(imported(model, target))


@every_module
def test_passes_are_told_apart_and_closed(model: str, target: str) -> None:
    """S000-31: one digest for each pass; the chunked variant exists for every length; programs are digest x ending."""
    module = imported(model, target)
    digests = [shape.digest for shape in module.TRACES]
    assert len(set(digests)) == len(digests) and all(re.fullmatch("[0-9a-f]{16}", digest) for digest in digests)
    in_chunks = () if module.GEOMETRY.attention_soft_cap else module.LENGTHS
    assert tuple(shape.tokens for shape in module.TRACES if shape.variant == "chunked") == in_chunks
    assert tuple(shape.tokens for shape in module.TRACES if shape.variant == "single") == module.LENGTHS
    ragged = [shape for shape in module.TRACES if shape.variant == "ragged"]
    assert {shape.rows for shape in module.TRACES if shape not in ragged} == set(module.WAVES)
    assert tuple(shape.rows * shape.tokens for shape in ragged) == getattr(module, "RAGGED_TOKENS", ())
    assert not ragged or "batched" not in {shape.variant for shape in module.TRACES}
    assert all((shape.microseconds > 0) == (shape.variant in ("single", "ragged")) for shape in module.TRACES if ragged)
    assert set(module.PROGRAMS) == {(digest, ending) for digest in digests for ending in ("logits", "argmax", "top_k")}
    assert {shape.row_selection for shape in module.TRACES} == {"last"}
    chunked: list[Shape] = [shape for shape in module.TRACES if shape.variant.startswith("chunked")]
    assert all(shape.read_pages * module.BLOCK_SIZE >= module.CONTEXT for shape in chunked)
    assert all(shape.read_pages % 8 == 0 for shape in chunked)  # rows of 32 bytes


def dtype_name(dtype: Any) -> str:
    return next(name for name in ("bfloat16", "bfloat8_b", "bfloat4_b") if getattr(emulator, name) is dtype)


@every_module
def test_every_matmul_is_legal_and_fits_the_core(model: str, target: str) -> None:
    """Divisibility as the library demands it, buffers within what it may hand out on one core of the board."""
    module = imported(model, target)
    weights = {weight.name: weight for weight in (*module.WEIGHTS, *module.LAYER_WEIGHTS)}
    sizes = {shape.rows * shape.tokens // 32 for shape in module.TRACES}
    roles = {role for role, _ in module.MATMULS}
    assert set(module.MATMULS) == {(role, size) for role in roles - {"head"} for size in sizes} | {("head", 1)}
    routed = {role.name: role for role in layer_matmuls(resolved(model, target)) if role.name not in (*weights, "gate_up")}
    for (role, token_tiles), config in module.MATMULS.items():
        if role in routed and role != "rates":
            check_routing(module, routed[role], token_tiles, config)
            continue
        weight = weights.get({"rates": "decay"}.get(role, role)) or weights["gate"]  # gate and up by themselves have one program
        inner, outputs = weight.shape[0] // 32, ceil(weight.shape[1] / 32)
        grid = config.compute_with_storage_grid_size
        assert grid.x <= module.BOARD.grid[0] and grid.y <= module.BOARD.grid[1]
        if "Minimal" in type(config).__name__:
            check_minimal(module, role, token_tiles, weight, config)
            continue
        assert inner % config.in0_block_w == 0
        assert config.per_core_M % config.out_block_h == 0 and config.per_core_N % config.out_block_w == 0
        assert config.out_block_h % config.out_subblock_h == 0 and config.out_block_w % config.out_subblock_w == 0
        assert config.out_subblock_h * config.out_subblock_w <= 4
        one_dimensional = "1D" in type(config).__name__
        if one_dimensional:
            assert config.per_core_M == token_tiles and config.mcast_in0
            assert config.per_core_N * grid.x * grid.y >= outputs
        else:
            assert config.per_core_M * grid.y >= token_tiles and config.per_core_N * grid.x >= outputs
        bias = weights.get(f"{role}_bias")
        choice = Matmul(
            "multicast_1d" if one_dimensional else "multicast_2d",
            grid.x,
            grid.y,
            config.in0_block_w,
            config.out_subblock_h,
            config.out_subblock_w,
            config.out_block_h,
            config.out_block_w,
            config.per_core_M,
            config.per_core_N,
        )
        used = matmul_bytes(
            choice,
            dtype_name(weight.dtype),
            made_as(module, role),
            dtype_name(bias.dtype) if bias else None,
        )
        assert used <= module.BOARD.l1_bank_bytes, (role, token_tiles)


def made_as(module: ModuleType, role: str) -> str:
    if role == "rates":
        return "float32"
    return dtype_name(module.HEADS_DTYPE if role == "query_key_value" else module.ACTIVATION_DTYPE)


def check_routing(module: ModuleType, role: MatmulRole, token_tiles: int, config: Any) -> None:
    """A product of constants and marks, which no weight describes: the sides are the role's own."""
    rows, inner, outputs = role.sides(token_tiles)
    grid = config.compute_with_storage_grid_size
    assert grid.x <= module.BOARD.grid[0] and grid.y <= module.BOARD.grid[1]
    assert inner % config.in0_block_w == 0 and config.out_subblock_h * config.out_subblock_w <= 4
    if "1D" in type(config).__name__:
        assert config.mcast_in0 and config.per_core_M == rows and config.per_core_N * grid.x * grid.y >= outputs
    else:
        assert config.per_core_N * grid.x >= outputs and config.per_core_M * grid.y >= rows


def check_minimal(module: ModuleType, role: str, token_tiles: int, weight: Any, config: Any) -> None:
    """The rules of the minimal matmul, and all cores of the board at work on it."""
    rows, inner, columns = config.M_block_size, config.K_block_size, config.N_block_size
    high, wide = config.subblock_h, config.subblock_w
    assert (config.compute_with_storage_grid_size.x, config.compute_with_storage_grid_size.y) == module.BOARD.grid
    assert rows % high == 0 and columns % wide == 0 and high * wide <= 4
    assert weight.shape[0] // 32 % inner == 0
    fused = PAIRS if role.endswith("gate_up") else RESIDUAL
    if fused == PAIRS:
        assert columns % 2 == 0 and wide % 2 == 0 and weight.shape[1] % 64 == 0
    else:
        assert weight.dtype is module.ACTIVATION_DTYPE  # the library takes the residual as the weight is stored
    choice = MinimalMatmul(*module.BOARD.grid, rows, inner, columns, high, wide)
    used = minimal_matmul_bytes(choice, dtype_name(weight.dtype), "bfloat16", None, fused)
    assert used <= module.BOARD.l1_bank_bytes, (role, token_tiles)


def check_scores(module: ModuleType) -> None:
    """Both matmuls of explicit scores, of one key-value head of each length: they cover it and fit."""
    assert tuple(module.SCORES) == module.LENGTHS and not hasattr(module, "ATTENTION")
    group, depth = module.QUERY_HEADS // module.KEY_VALUE_HEADS, module.HEAD_DIM // 32
    for tokens, programs in module.SCORES.items():
        for config, (inner, columns) in zip(programs, ((depth, tokens // 32), (tokens // 32, depth))):
            grid = config.compute_with_storage_grid_size
            assert grid.x <= module.BOARD.grid[0] and grid.y <= module.BOARD.grid[1] and not config.fuse_batch
            assert inner % config.in0_block_w == 0 and config.out_subblock_h * config.out_subblock_w <= 4
            across = grid.x * grid.y if "1D" in type(config).__name__ else grid.x
            down = 1 if "1D" in type(config).__name__ else grid.y
            assert config.per_core_N * across >= columns and config.per_core_M * down >= group * tokens // 32


@every_module
def test_every_attention_is_legal_and_fits_the_core(model: str, target: str) -> None:
    module = imported(model, target)
    if module.GEOMETRY.attention_soft_cap:
        check_scores(module)
        return
    assert set(module.ATTENTION) == {(shape.variant, shape.rows, shape.tokens) for shape in module.TRACES}
    for (variant, rows, tokens), config in module.ATTENTION.items():
        query, key = config.q_chunk_size, config.k_chunk_size
        tokens = rows * tokens if variant == "ragged" else tokens
        cut = module.ALIGNMENT if variant.startswith("chunked") else tokens
        assert tokens % query == 0 and cut % query == 0 and cut % key == 0
        stored = (dtype_name(module.KEY_VALUE_DTYPE), dtype_name(module.HEADS_DTYPE))
        pages = module.CONTEXT // module.BLOCK_SIZE if variant.startswith("chunked") else 0
        for kind in set(layer_kinds(module)) - {"gated_delta_net"} or {"sliding" if module.GEOMETRY.sliding_window else "full"}:
            bounds = rows + 1 if variant in ("batched", "ragged") and kind == "full" else 0
            windowed = kind == "sliding"
            used = attention_bytes(
                Attention(query, key), module.HEAD_DIM, *stored, bounds, pages, windowed=windowed
            )
            assert used <= module.BOARD.l1_bank_bytes
        assert config.exp_approx_mode is False


@every_module
def test_weights_are_read_from_every_published_tensor_once(model: str, target: str) -> None:
    """Each weight of the body is in a table and each table entry is used; no source is read twice but a tied embedding."""
    module = imported(model, target)
    text = committed_text(model, target)
    wrapper = resolved(model, target).wrapper
    prefix = WRAPPERS[wrapper].prefix if wrapper else ""
    experts = module.GEOMETRY.experts  # gate and up of gpt-oss are one tensor
    in_one = experts is not None and experts.published == "gpt_oss"
    joined = {name for weight in module.LAYER_WEIGHTS for name in weight.sources if in_one and "experts.gate_up" in name}
    if module.GEOMETRY.gated_delta_net is not None:
        joined |= {name for weight in module.LAYER_WEIGHTS for name in weight.sources if name.endswith(READ_IN_PARTS)}
        if experts is not None:
            joined |= {name for weight in module.LAYER_WEIGHTS for name in weight.sources if name.endswith("experts.gate_up_proj")}
    for table, owner in ((module.WEIGHTS, "weights"), (module.LAYER_WEIGHTS, "layer")):
        names = [weight.name for weight in table]
        used = set(re.findall(rf"\b{owner}\.([a-z_0-9]+)", text)) - {"layers"}
        assert sorted(names) == sorted(used)
        read = Counter(source for weight in table for source in weight.sources)
        tied = owner == "weights" and module.GEOMETRY.tied_embeddings
        assert {source for source, count in read.items() if count > 1} == (
            {f"{prefix}model.embed_tokens.weight"} if tied else joined if owner == "layer" else set()
        )
    assert {weight.placement for weight in (*module.WEIGHTS, *module.LAYER_WEIGHTS)} == {"replicate"}

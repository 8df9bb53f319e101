"""Imports run one way: generated -> runtime; generator and runtime know neither each other nor generated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from generator.inputs import AROUND_THE_TEXT

REPOSITORY = Path(__file__).resolve().parents[2]
LAYERS = {"generator": set(), "runtime": set(), "generated": {"runtime"}}
COMMAND_LINE = REPOSITORY / "generator" / "cli.py"
PROVING = REPOSITORY / "generator" / "proving.py"  # the commands that run what was built
BENCHING = REPOSITORY / "generator" / "benching.py"  # those that pack and plan with it


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Full dotted names that a file imports, wherever the import stands, each with its statement."""
    package = path.relative_to(REPOSITORY).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")] if node.level else []
            base = ".".join(part for part in parent if part) if node.level else node.module or ""
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def files(layer: str) -> list[Path]:
    found = sorted((REPOSITORY / layer).rglob("*.py"))
    assert found, layer
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_lies_below_it(layer: str) -> None:
    """S000-05: emitted modules and the runtime know neither compiler nor command line."""
    forbidden = LAYERS.keys() | {"templates", "tests", "benchmarks", "tools"}
    forbidden -= {layer, *LAYERS[layer]}
    crossings = [
        f"{path.relative_to(REPOSITORY)}:{statement.lineno} imports {name}"
        for path in files(layer)
        if path not in (PROVING, BENCHING)
        for name, statement in imports(path)
        if name.split(".")[0] in forbidden
    ]
    assert crossings == []


def outside(path: Path) -> set[str]:
    """Packages of other layers that a file imports where it is imported itself, and not within a function."""
    return {name.split(".")[0] for name, statement in imports(path) if not statement.col_offset} - {"generator"}


def test_only_the_commands_that_prove_see_everything_and_lazily() -> None:
    """What the command line imports at its top level is all that --help and list pay for."""
    assert outside(COMMAND_LINE) == {"__future__", "collections", "json", "pathlib", "sys", "typing", "click"}
    assert outside(PROVING) == {
        "__future__",
        "collections",
        "contextlib",
        "json",
        "os",
        "pathlib",
        "sys",
        "typing",
        "click",
    }
    assert outside(BENCHING) == {"__future__", "functools", "json", "os", "pathlib", "click"}
    within = {name.split(".")[0] for name, statement in imports(PROVING) if statement.col_offset}
    assert "runtime" in within and "runtime" not in {name.split(".")[0] for name, _ in imports(COMMAND_LINE)}


def test_emitted_modules_need_nothing_but_the_runtime() -> None:
    names = {name.split(".")[0] for path in files("generated") for name, _ in imports(path)}
    assert names == {"runtime"}


@cache
def _generator_imports(name: str) -> frozenset[str]:
    """Files of the generator that one of them imports, by names relative to the package."""
    found = set()
    for dotted, _ in imports(REPOSITORY / "generator" / name):
        parts = dotted.split(".")
        if parts[0] == "generator":
            for end in range(1, len(parts) + 1):
                stem = "/".join(parts[1:end])
                for candidate in (f"{stem}.py", f"{stem}/__init__.py"):
                    if stem and (REPOSITORY / "generator" / candidate).is_file():
                        found.add(candidate)
    return frozenset(found)


def test_files_left_out_of_the_recorded_inputs_are_behind_no_text() -> None:
    """codegen.lock ignores changes of these files, so nothing that makes a text may import them."""
    reached: set[str] = set()
    waiting = ["pipeline.py", "geometry.py", "manifest.py", "targets.py", "twin.py"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _generator_imports(name)
            if name == "families/__init__.py":  # which imports every file beside it
                waiting += [f"families/{path.name}" for path in (REPOSITORY / "generator" / "families").glob("*.py")]
    assert {"programs.py", "passes/fold.py", "kinds/attention.py", "catalog.py", "families/llama.py"} <= reached
    assert not reached & AROUND_THE_TEXT
    assert all((REPOSITORY / "generator" / name).is_file() for name in AROUND_THE_TEXT)


def test_the_heads_of_files_read_like_a_table_of_contents() -> None:
    """Every file says its one subject in its first line."""
    silent = [
        path.relative_to(REPOSITORY).as_posix()
        for layer in ("generator", "runtime")
        for path in files(layer)
        if not (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
    ]
    assert silent == []

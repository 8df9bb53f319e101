"""The command line: quick where nothing is built, one message for a mistake, one JSON object where one was asked for."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from generator import catalog, options
from tests.support.building import REPOSITORY, built_project, codegen

HEAVY = {"pydantic", "torch", "libcst", "black", "jinja2", "rich", "numpy", "transformers"}


def modules_of(*arguments: str) -> set[str]:
    """Top-level modules that a command has imported when it ends."""
    code = (
        "import sys\nfrom generator.cli import main\n"
        "try:\n    main(prog_name='codegen')\nfinally:\n    print('\\n', *sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in run.stdout.rsplit("\n ", 1)[1].split()}


@pytest.mark.parametrize("arguments", [("--help",), ("list",), ("build", "--help")], ids=" ".join)
def test_help_and_list_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    names = modules_of(*arguments)
    assert "click" in names
    assert not names & HEAVY


def test_listing_names_every_model_with_its_targets() -> None:
    outcome = codegen("list")
    lines = outcome.out.split("\n")
    assert outcome.code == 0 and lines[0].split()[:4] == ["model", "family", "target", "context"]
    shown = [line.split()[:4] for line in lines[1 : lines.index("")]]
    assert shown[-1] == ["smollm2-135m", "llama", "p150", "8192"]
    models = codegen("list", "--json").data["models"]
    assert [
        [model["name"], model["family"], one["target"], str(one["context"])]
        for model in models
        for one in model["targets"]
    ] == shown
    assert tuple(line[0] for line in shown if line[2] == "p150") == catalog.names(catalog.BUILT_IN)


def test_listing_goes_on_past_a_broken_manifest(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    (project.manifest.parent / "a.toml").write_text("no toml", encoding="utf-8")
    (project.manifest.parent / "b.toml").write_bytes(b"\xff")
    (project.manifest.parent / "c.toml").mkdir()
    outcome = codegen("list", "--manifests", project.manifests)
    assert outcome.code == 0
    lines = outcome.out.split("\n")
    assert [line.split()[:2] for line in lines[1 : lines.index("")]] == [
        ["a", "(broken:"],
        ["b", "(broken:"],
        ["c", "(broken:"],
        ["m", "llama"],
    ]


def test_an_empty_manifest_folder_lists_nothing(tmp_path: Path) -> None:
    outcome = codegen("list", "--manifests", tmp_path)
    assert (outcome.code, outcome.out) == (0, f"no models in {tmp_path / 'models'}\n")


def test_show_gives_numbers_with_their_keys_memory_and_passes() -> None:
    outcome = codegen("show", "smollm2-135m", "--target", "n150")
    lines = [line.split() for line in outcome.out.split("\n")]
    assert outcome.code == 0
    assert ["hidden", "576", "model.hidden"] in lines
    assert ["head_dim", "64", "576", "hidden", "/", "9", "query", "heads"] in lines
    assert [line[:5] for line in lines if line[:1] == ["single"]][0] == ["single", "1", "224", "7", "0"]
    assert {"weights", "key_value", "total", "capacity"} <= {line[0] for line in lines if line}


def test_show_counts_a_long_list_and_writes_a_short_one_out() -> None:
    lines = codegen("show", "phi-3.5-mini", "--target", "n150").out.split("\n")
    assert "  rope.short_factors             (48 numbers)                 model.rope.short_factors" in lines
    assert "  waves                          (1, 2, 4, 8, 16, 32)         target.n150.waves" in lines


def test_show_as_json_is_the_same_for_every_target() -> None:
    data = codegen("show", "smollm2-135m", "--json").data
    assert [one["target"] for one in data["targets"]] == ["n150", "p150"]
    assert data["targets"][0]["shapes"][0]["variant"] == "single"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bild",), 'no command "bild"; did you mean "build"?'),
        (("build",), "name the models to build, or use --all"),
        (("build", "smollm2-135m", "--all"), "name models or use --all, not both"),
        (
            ("build", "smollm2-135"),
            'model = "smollm2-135": no model of this name in the directory; did you mean "smollm2-135m"?',
        ),
        (
            ("build", "smollm2-135m", "--target", "n15"),
            'target = "n15": no target of this name in the directory; did you mean "n150"?',
        ),
        (("build", "--all", "--target", "n15"), 'did you mean "n150"?'),
        (("build", "smollm2-135m", "--twin"), "--twin needs --output DIR"),
        (
            (
                "build",
                "../smollm2-135m",
            ),
            "no model of this name",
        ),
        (("show", "smollm2"), 'did you mean "smollm2-135m"?'),
        (("show", "smollm2-135m", "--target", "n15"), 'did you mean "n150"?'),
        (("show", "smollm2-135m", "--manifests", "nowhere"), "nowhere"),
        (("build", "--all", "--chek"), "--chek"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_message_and_exit_code_two(arguments: tuple[str, ...], message: str) -> None:
    outcome = codegen(*arguments)
    assert outcome.code == 2 and outcome.out == ""
    assert message in outcome.err and "Traceback" not in outcome.err
    as_json = codegen(*arguments, "--json")
    if arguments != ("bild",):
        assert as_json.code == 2 and as_json.out.count("\n") == 1
        (error,) = as_json.data["errors"]
        assert set(error) == {"path", "line", "key", "value", "rule", "hint"}


def test_a_model_without_a_table_for_the_target_is_refused_with_those_it_has(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    outcome = project.build("--target", "p150", models=("m",))
    assert outcome.code == 2
    assert f'{project.manifest}: target = "p150": m has no table for this target; did you mean "n150"?' in outcome.err
    assert project.build("--target", "p150").out == "0 modules, 0 up to date, 0 built\n"


def test_every_mistake_of_a_manifest_is_in_the_json(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    project.edit("hidden = 576", "hidden = 577")
    project.edit("waves = [1, 2, 4, 8]", "waves = [2, 4, 8]")
    lines = project.manifest.read_text(encoding="utf-8").split("\n")

    def line(key: str) -> int:
        return next(number for number, text in enumerate(lines, 1) if text.startswith(f"{key} = "))

    outcome = project.build("--json")
    assert outcome.code == 2
    assert {(error["line"], error["key"]) for error in outcome.data["errors"]} >= {
        (line("hidden"), "model.hidden"),
        (line("waves"), "target.n150.waves"),
    }


def test_outside_a_clone_an_output_folder_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "REPOSITORY", tmp_path)
    outcome = codegen("build", "--all", "--check", "--json")
    assert outcome.code == 2
    assert outcome.data["errors"][0]["hint"] == "name a folder with --output DIR"
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_sees_progress_only_on_work_over_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = built_project(tmp_path)
    clock = iter([0.0, 0.5, 0.0, 2.0])
    monkeypatch.setattr(options.time, "monotonic", lambda: next(clock))
    assert project.build("--check", terminal=True).err == "\r\x1b[K"
    assert project.build("--check", terminal=True).err == "\r\x1b[Km/n150.py\r\x1b[K"
    assert project.build("--check", "--json", terminal=True).err == ""
    assert project.build("--check").err == ""


def test_a_listing_is_json_or_a_table() -> None:
    outcome = codegen("list", "--json", "--markdown")
    assert outcome.code == 2 and "print JSON or a table, not both" in outcome.err


@pytest.mark.parametrize("arguments", [("--check",), ("--no-such-option",)], ids=" ".join)
def test_garbage_is_looked_for_again_when_a_build_is_over(
    tmp_path: Path, monkeypatch, arguments: tuple[str, ...]
) -> None:
    project, seen = built_project(tmp_path), []
    monkeypatch.setattr("generator.build.examine", lambda *_: seen.append(gc.isenabled()) or [])
    project.build(*arguments)
    assert gc.isenabled() and seen == [False] * (arguments == ("--check",))
    monkeypatch.setattr("generator.build.examine", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        project.build("--check")
    assert gc.isenabled()


def test_json_of_a_listing_is_one_line() -> None:
    outcome = codegen("list", "--json")
    assert outcome.out.count("\n") == 1 and json.loads(outcome.out)["version"] == 1

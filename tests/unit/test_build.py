"""`codegen build`: what is stale and why, what is written and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generator import inputs, lock
from tests.support.building import (
    REPOSITORY,
    Project,
    built_project,
    codegen,
    committed,
    committed_text,
    remember_emissions,
    unbuilt_project,
)

COMMAND = "from generator.cli import main; main(prog_name='codegen')"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Up to date; texts that were rendered before are remembered."""
    remember_emissions(monkeypatch)
    return built_project(tmp_path)


def in_a_process(
    *arguments: object, folder: Path, seed: int = 0, code: str = COMMAND
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_committed_tree_is_up_to_date() -> None:
    outcome = codegen("build", "--all", "--check")
    modules = len(committed())
    assert (outcome.code, outcome.out) == (0, f"{modules} modules, {modules} up to date, 0 stale\n"), outcome.out


def test_a_build_writes_packages_modules_and_the_lock(tmp_path: Path) -> None:
    project = unbuilt_project(tmp_path)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert outcome.out == "wrote: m/n150.py: missing (never built here)\n1 module, 0 up to date, 1 built\n"
    assert set(project.outputs()) == {"out/__init__.py", "out/codegen.lock", "out/m/__init__.py", "out/m/n150.py"}


def test_another_process_hash_seed_and_folder_give_identical_bytes(project: Project, tmp_path: Path) -> None:
    elsewhere = unbuilt_project(tmp_path / "elsewhere")
    arguments = ("build", "--all", "--manifests", "../project/manifests", "--output", "out")
    run = in_a_process(*arguments, folder=elsewhere.root, seed=4321)
    assert run.returncode == 0, run.stderr
    assert elsewhere.outputs() == project.outputs()


def test_building_again_from_nothing_gives_identical_bytes(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    before = project.outputs()
    shutil.rmtree(project.output)
    assert project.build().code == 0
    assert project.outputs() == before


def test_a_copied_manifest_folder_gives_the_committed_bytes(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "generator" / "manifests", tmp_path / "manifests")
    options = ("--manifests", tmp_path / "manifests", "--output", tmp_path / "out")
    assert codegen("build", "smollm2-135m", "--target", "n150", *options).code == 0
    made = (tmp_path / "out" / "smollm2_135m" / "n150.py").read_text(encoding="utf-8")
    assert made == committed_text("smollm2-135m", "n150")


def stamps(project: Project) -> dict[str, tuple[int, int]]:
    """Which file it is and when it was last written, for every file of the output."""
    files = [path for path in project.output.rglob("*") if path.is_file()]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def test_a_build_that_changes_nothing_writes_nothing_and_loads_no_compiler(project: Project) -> None:
    before = stamps(project)
    code = f"import sys\ntry:\n    {COMMAND}\nfinally:\n    print(*sys.modules)"
    run = in_a_process(
        "build", "--all", "--manifests", project.manifests, "--output", project.output, folder=project.root, code=code
    )
    assert run.returncode == 0, run.stderr
    summary, modules = run.stdout.split("\n", 1)
    assert summary == "1 module, 1 up to date, 0 built"
    assert not {"pydantic", "libcst", "black", "jinja2", "torch", "rich"} & set(modules.split())
    assert stamps(project) == before


def test_a_changed_manifest_is_named_and_changes_the_module(project: Project) -> None:
    project.edit("context = 4096", "context = 2048")
    outcome = project.build("--check")
    assert (outcome.code, outcome.out) == (
        1,
        "stale: m/n150.py: changed (models/m.toml changed)\n1 module, 0 up to date, 1 stale\n",
    )
    assert project.build().code == 0
    assert "\nCONTEXT = 2048  # target.n150.context\n" in project.module.read_text(encoding="utf-8")
    assert project.build("--check").code == 0


def test_a_comment_in_a_manifest_is_recorded_without_touching_the_module(project: Project) -> None:
    project.edit("[model]\n", "# only words\n[model]\n")
    before = stamps(project)
    outcome = project.build("--check")
    assert outcome.code == 1 and "m/n150.py: inputs changed (models/m.toml changed)" in outcome.out
    assert project.build("--diff").out == "# would record: m/n150.py (models/m.toml changed)\n"
    assert project.build().out.startswith("recorded: m/n150.py")
    after = stamps(project)
    assert {name for name in before if before[name] != after[name]} == {lock.NAME}
    assert project.build("--check").code == 0


def test_a_changed_board_is_named(project: Project) -> None:
    board = project.manifests / "targets" / "n150.toml"
    text = board.read_text(encoding="utf-8")
    assert "grid = [8, 8]" in text
    board.write_text(text.replace("grid = [8, 8]", "grid = [8, 7]"), encoding="utf-8")
    outcome = project.build("--check")
    assert outcome.code == 1 and "m/n150.py: changed (targets/n150.toml changed)" in outcome.out


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the templates, which builds of this test use."""
    shutil.copytree(inputs.TEMPLATES, tmp_path / "templates")
    monkeypatch.setattr(inputs, "TEMPLATES", tmp_path / "templates")
    return tmp_path / "templates"


def edit_template(templates: Path, old: str, new: str) -> None:
    """Change the template of the body."""
    path = templates / "body.py.jinja"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_copied_templates_change_nothing(project: Project, templates: Path) -> None:
    assert project.build("--check").code == 0


def test_a_template_edit_that_changes_a_line_is_stale_and_says_which_file_and_why(
    project: Project, templates: Path
) -> None:
    edit_template(templates, "ttnn.deallocate(wide)", "ttnn.deallocate(wide, force=True)")
    outcome = project.build("--check")
    assert (outcome.code, outcome.out) == (
        1,
        "stale: m/n150.py: changed (templates/body.py.jinja changed)\n1 module, 0 up to date, 1 stale\n",
    )
    difference = project.build("--diff")
    assert difference.code == 1
    assert difference.out.startswith("--- m/n150.py (on disk)\n+++ m/n150.py (as built)\n@@ ")
    changed = [line for line in difference.out.split("\n") if line[:1] in "+-" and line[:3] not in ("---", "+++")]
    assert [line for line in changed if line] == [
        "-    ttnn.deallocate(wide)",
        "+    ttnn.deallocate(wide, force=True)",
    ]


def test_a_template_that_makes_no_module_is_refused_and_nothing_is_written(project: Project, templates: Path) -> None:
    with (templates / "body.py.jinja").open("a", encoding="utf-8") as file:
        file.write("X = {{ nothing_of_this_name }}\n")
    before = project.files()
    outcome = project.build()
    assert outcome.code == 2
    assert "make no module of m on n150" in outcome.err and "'nothing_of_this_name' is undefined" in outcome.err
    assert project.files() == before


def test_a_change_of_the_generator_is_named(project: Project) -> None:
    path = project.output / lock.NAME
    data = json.loads(path.read_text(encoding="utf-8"))
    assert "generator/shapes.py" in data["sources"]
    data["sources"]["generator/shapes.py"] = "another"
    data["modules"]["m/n150.py"]["sources"] = "another"
    path.write_text(json.dumps(data), encoding="utf-8")
    outcome = project.build("--check")
    assert outcome.code == 1 and "inputs changed (generator/shapes.py changed)" in outcome.out


def test_many_changes_are_counted_and_not_all_listed(project: Project) -> None:
    path = project.output / lock.NAME
    data = json.loads(path.read_text(encoding="utf-8"))
    data["sources"] = {name: "another" for name in data["sources"]}
    data["modules"]["m/n150.py"]["sources"] = "another"
    path.write_text(json.dumps(data), encoding="utf-8")
    changed = len(data["sources"])
    line = project.build("--check").out.split("\n")[0]
    assert line.startswith("stale: m/n150.py: inputs changed (generator/__init__.py changed; ")
    assert line.endswith(f"; and {changed - 4} more)")
    assert len(project.build("--check", "--json").data["modules"][0]["reasons"]) == changed


def test_a_new_version_of_a_tool_that_changes_nothing_is_not_stale(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "tools", lambda: "black 99")
    assert project.build("--check").out == "1 module, 1 up to date, 0 stale\n"
    assert project.build().out == "1 module, 1 up to date, 0 built\n"
    assert lock.read(project.output).modules["m/n150.py"].tools == "black 99"


def day_of(project: Project) -> str:
    return lock.read(project.output).modules["m/n150.py"].changed


@pytest.mark.parametrize("changed", ["manifest", "board", "template"])
def test_a_build_records_the_day_on_which_a_module_was_made_from_something_else(
    project: Project, templates: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    if changed == "template":
        edit_template(templates, "ttnn.deallocate(wide)", "ttnn.deallocate(wide, force=True)")
    elif changed == "manifest":
        project.edit("[model]\n", "# only words\n[model]\n")
    else:
        board = project.manifests / "targets" / "n150.toml"
        board.write_text(board.read_text(encoding="utf-8") + "# only words\n", encoding="utf-8")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert project.build("--check").code == 1 and day_of(project) == "2023-11-14"
    assert project.build().code == 0 and day_of(project) == "1970-01-01"


def test_a_day_stays_where_nothing_changed_or_only_code_that_makes_other_modules(
    project: Project, templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    edit_template(templates, "# --- body", "{# only words #}# --- body")
    assert project.build().out.startswith("recorded: m/n150.py: inputs changed (templates/body.py.jinja changed)")
    after = project.outputs()
    assert project.build().code == 0 and project.outputs() == after and day_of(project) == "2023-11-14"


def test_a_removed_module_is_missing_and_comes_back(project: Project) -> None:
    content = project.module.read_bytes()
    project.module.unlink()
    outcome = project.build("--check")
    assert outcome.code == 1 and outcome.out.startswith("stale: m/n150.py: missing\n")
    assert project.build().out.startswith("wrote: m/n150.py: missing\n")
    assert project.module.read_bytes() == content


def test_a_file_that_no_manifest_asks_for_is_extra_and_left_alone(project: Project) -> None:
    foreign = project.output / "m" / "p150.py"
    foreign.write_text("mine = 1\n", encoding="utf-8")
    reason = "m/p150.py: extra (no manifest asks for it and no build made it)\n"
    outcome = project.build("--check")
    assert outcome.code == 1 and outcome.out.startswith(f"stale: {reason}")
    assert project.build("--diff").out == "# would leave: m/p150.py (no manifest asks for it and no build made it)\n"
    assert project.build().out.startswith(f"left: {reason}")
    assert foreign.read_text(encoding="utf-8") == "mine = 1\n"


def second_model(project: Project) -> None:
    """Another manifest beside the first."""
    text = project.manifest.read_text(encoding="utf-8")
    (project.manifest.parent / "k.toml").write_text(text.replace('name = "m"', 'name = "k"'), encoding="utf-8")


def test_the_module_of_a_removed_manifest_goes_with_its_folder(project: Project) -> None:
    before = project.outputs()
    second_model(project)
    assert project.build().code == 0
    (project.manifest.parent / "k.toml").unlink()
    outcome = project.build("--dry-run")
    assert outcome.out.startswith("would remove: k/n150.py: extra (no manifest asks for it)\n")
    assert project.build().out.startswith("removed: k/n150.py: extra")
    assert project.outputs() == before
    assert not (project.output / "k").exists()


def test_a_hand_edit_of_a_module_to_be_removed_is_refused_as_well(project: Project) -> None:
    second_model(project)
    assert project.build().code == 0
    (project.manifest.parent / "k.toml").unlink()
    module = project.output / "k" / "n150.py"
    module.write_text("mine = 1\n", encoding="utf-8")
    outcome = project.build()
    assert outcome.code == 2 and "k/n150.py: was edited by hand" in outcome.err
    assert module.exists()
    assert project.build("--force").code == 0
    assert not module.exists()


def edit_by_hand(project: Project) -> bytes:
    text = project.module.read_text(encoding="utf-8")
    assert "\nCONTEXT = 4096" in text
    project.module.write_text(text.replace("\nCONTEXT = 4096", "\nCONTEXT = 1234"), encoding="utf-8")
    return text.encode()


def test_a_hand_edit_is_refused_with_the_difference_and_the_key_to_change(project: Project) -> None:
    edit_by_hand(project)
    before = project.files()
    for options in ((), ("--dry-run",)):
        outcome = project.build(*options)
        assert outcome.code == 2 and outcome.out == ""
        assert (
            f"{project.module}: was edited by hand; a build would turn it back:\n--- m/n150.py (on disk)" in outcome.err
        )
        assert "\n-CONTEXT = 1234  # target.n150.context\n+CONTEXT = 4096  # target.n150.context\n" in outcome.err
        assert "; change target.n150.context instead, or discard the edit with --force" in outcome.err
    assert project.files() == before
    outcome = project.build("--check")
    assert outcome.code == 1 and outcome.out.startswith("stale: m/n150.py: edited by hand\n")


def test_force_discards_a_hand_edit(project: Project) -> None:
    content = edit_by_hand(project)
    assert project.build("--force").out.startswith("wrote: m/n150.py: edited by hand\n")
    assert project.module.read_bytes() == content


def test_a_hand_edit_is_seen_though_the_manifest_changed_too(project: Project) -> None:
    edit_by_hand(project)
    project.edit("context = 4096", "context = 2048")
    outcome = project.build()
    assert outcome.code == 2 and "was edited by hand" in outcome.err


def test_a_hand_edit_outside_utf_8_is_refused_and_no_crash(project: Project) -> None:
    project.module.write_bytes(b"\xff\xfe" + project.module.read_bytes())
    outcome = project.build()
    assert outcome.code == 2 and "was edited by hand" in outcome.err


@pytest.mark.parametrize("option", ["--check", "--diff", "--dry-run"])
def test_looking_writes_nothing(project: Project, option: str) -> None:
    project.edit("context = 4096", "context = 2048")
    before, files = stamps(project), project.files()
    outcome = project.build(option)
    assert outcome.code == (0 if option == "--dry-run" else 1)
    assert "n150.py" in outcome.out
    assert (stamps(project), project.files()) == (before, files)


@pytest.mark.parametrize("option", ["--check", "--diff", "--dry-run"])
def test_looking_at_what_was_never_built_makes_no_folder(tmp_path: Path, option: str) -> None:
    project = unbuilt_project(tmp_path)
    assert "m/n150.py" in project.build(option).out
    assert not project.output.exists()


def test_a_target_left_out_of_the_last_build_is_not_forgotten(project: Project) -> None:
    text = project.manifest.read_text(encoding="utf-8")
    tables = text[text.index("[target.n150]") :]
    project.manifest.write_text(text + "\n" + tables.replace("target.n150", "target.p150"), encoding="utf-8")
    assert project.build("--target", "n150", models=("m",)).code == 0
    outcome = project.build("--check")
    assert outcome.code == 1 and "stale: m/p150.py: missing (never built here)" in outcome.out


def test_a_twin_is_built_beside_its_model_and_stays(project: Project) -> None:
    outcome = project.build("--twin")
    assert outcome.code == 0 and "wrote: m_twin/n150.py" in outcome.out
    head = (project.output / "m_twin" / "n150.py").read_text(encoding="utf-8").split("\n")[0]
    assert head == '"""Prefill of m-twin on n150. Written by codegen, do not edit.'
    assert project.build("--twin", "--check").code == 0
    assert project.build().out == "1 module, 1 up to date, 0 built\n"
    assert (project.output / "m_twin" / "n150.py").exists()


def test_json_is_one_object(project: Project) -> None:
    project.edit("context = 4096", "context = 2048")
    outcome = project.build("--check", "--json")
    assert outcome.code == 1 and outcome.err == "" and outcome.out.count("\n") == 1
    assert outcome.data == {
        "version": 1,
        "output": str(project.output),
        "stale": True,
        "modules": [
            {
                "path": "m/n150.py",
                "model": "m",
                "target": "n150",
                "status": "changed",
                "reasons": ["models/m.toml changed"],
            }
        ],
    }
    assert project.build("--json").data["stale"] is True
    assert project.build("--json").data["modules"][0]["status"] == "unchanged"


def test_every_stage_can_be_dumped_though_nothing_changed(project: Project) -> None:
    outcome = project.build("--check", "--dump-ir", project.root / "stages")
    assert outcome.code == 0, outcome.out
    folder = project.root / "stages" / "m" / "n150"
    assert sorted(path.name for path in folder.iterdir()) == [
        "01-resolved.json",
        "02-shapes.json",
        "03-programs.json",
        "04-rendered.py",
        "05-fold_constants.py",
        "06-drop_variants.py",
        "07-prune_unused.py",
        "08-order_definitions.py",
        "09-check_invariants.py",
        "10-formatted.py",
    ]
    assert (folder / "10-formatted.py").read_bytes() == project.module.read_bytes()
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert json.loads(text) if path.suffix == ".json" else compile(text, path.name, "exec")


def test_a_dump_folder_that_is_a_file_is_refused_before_anything_is_written(project: Project) -> None:
    project.edit("context = 4096", "context = 2048")
    before = project.files()
    outcome = project.build("--dump-ir", project.manifest)
    assert outcome.code == 2 and "is a file and no folder; name a folder with --dump-ir" in outcome.err
    assert project.files() == before


def test_a_mistake_in_one_manifest_keeps_everything_from_being_written(project: Project) -> None:
    second_model(project)
    project.edit("hidden = 576", "hidden = 577")
    before = project.files()
    outcome = project.build()
    assert outcome.code == 2 and f"{project.manifest}:7: model.hidden = 577" in outcome.err
    assert project.files() == before


def test_a_board_too_small_for_any_program_is_refused_with_the_numbers(project: Project) -> None:
    board = project.manifests / "targets" / "n150.toml"
    lines = board.read_text(encoding="utf-8").split("\n")
    changed = ["bank_bytes = 65536" if line.startswith("bank_bytes = 1393312") else line for line in lines]
    board.write_text("\n".join(changed), encoding="utf-8")
    project.edit("hidden = 576", "hidden = 1152\nhead_dim = 256")
    outcome = project.build()
    assert outcome.code == 2
    assert "n150.toml: l1.bank_bytes = 65536: is too small for m: no " in outcome.err
    assert "fits 65536 bytes of L1 on one core" in outcome.err


ESCAPES = [
    ('name = "m"', 'name = "../m"'),
    ('name = "m"', 'name = "{{ 7 * 7 }}"'),
    ('name = "m"', "name = '''m\"\"\"\nimport os\n'''"),
    ('name = "m"', 'name = "/m"'),
    ('source = "a test"', 'source = "{{ model }}"'),
    ('source = "a test"', 'source = \'a """ b\''),
    ('source = "a test"', 'source = "a\\nb"'),
    ('source = "a test"', 'source = "a\\\\"'),
    ('family = "llama"', 'family = "../llama"'),
    ('kind = "default"', 'kind = "{% raw %}"'),
    ('weights = "bfloat16"', 'weights = "bfloat16)\\nimport os"'),
    ("[target.n150]", "[target.'../n150']"),
    ("[model.rope]", '[weights]\npackage = "p"\nfile = "../../x"\n\n[model.rope]'),
    ("[model.rope]", '[weights]\npackage = "p; rm"\nfile = "x"\n\n[model.rope]'),
]


@pytest.mark.parametrize(("old", "new"), ESCAPES, ids=[new for _, new in ESCAPES])
def test_no_string_of_a_manifest_gets_into_code_or_out_of_the_folder(tmp_path: Path, old: str, new: str) -> None:
    project = unbuilt_project(tmp_path)
    project.edit(old, new)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = project.build()
    assert outcome.code == 2 and f"{project.manifest}:" in outcome.err, outcome
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not project.output.exists()


def test_no_name_of_a_target_gets_into_code(tmp_path: Path) -> None:
    project = unbuilt_project(tmp_path)
    name = 'n"""+print(1)+"""'
    board = (project.manifests / "targets" / "n150.toml").read_text(encoding="utf-8")
    path = project.manifests / "targets" / f"{name}.toml"
    path.write_text(board.replace('"n150"', f"'{name}'", 1), encoding="utf-8")
    text = project.manifest.read_text(encoding="utf-8")
    project.manifest.write_text(text.replace("target.n150", f"target.'{name}'"), encoding="utf-8")
    outcome = project.build()
    assert outcome.code == 2 and "must be lower-case letters, digits and underscores" in outcome.err
    assert not project.output.exists()

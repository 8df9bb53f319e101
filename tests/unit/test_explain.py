"""`codegen explain`: for any line of an emitted module the template line and the manifest keys behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generator import inputs
from generator.explain import TABLE_FIELDS, explain, shown_path
from tests.support.building import COMMITTED, REPOSITORY, built_project, codegen, emitted, remember_emissions

MODULE = COMMITTED / "qwen2_5_7b" / "n150.py"
MANIFEST = "generator/manifests/models/qwen2.5-7b.toml"


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_emissions(monkeypatch)
    monkeypatch.chdir(REPOSITORY)


def line_of(path: Path, start: str) -> int:
    lines = path.read_text(encoding="utf-8").split("\n")
    return next(number for number, line in enumerate(lines, 1) if line.startswith(start))


@pytest.mark.parametrize("model", ["qwen2.5-7b", "phi-3.5-mini"])
def test_every_line_of_a_module_is_explained(model: str) -> None:
    made = emitted(model, "n150")
    lines = made.text.split("\n")[:-1]
    found = [explain(made, number, inputs.TEMPLATES) for number in range(1, len(lines) + 1)]
    assert [one.text for one in found] == lines
    assert all(one.origin is not None and one.template_text for one in found)
    known = set(made.resolved.keys.values())
    assert all(key in {part.strip() for keys in known for part in keys.split(",")} for one in found for key in one.keys)
    assert sum(bool(one.keys) for one in found) > 100


def test_the_numbers_of_a_list_lead_to_the_keys_of_the_lists() -> None:
    made = emitted("phi-3.5-mini", "n150")
    lines = made.text.split("\n")
    for constant in ("SHORT_FACTORS = (", "LONG_FACTORS = ("):
        first = next(number for number, line in enumerate(lines, 1) if line.startswith(constant)) + 1
        keys = explain(made, first, inputs.TEMPLATES).keys
        assert keys == ("model.rope.short_factors", "model.rope.long_factors")


def test_fields_behind_tables_are_fields_with_a_key() -> None:
    made = emitted("qwen2.5-7b", "n150")
    assert {field for fields in TABLE_FIELDS.values() for field in fields} <= made.resolved.keys.keys()


@pytest.mark.parametrize(
    ("start", "template", "keys"),
    [
        ("HEAD_DIM = ", "constants.py.jinja", ("model.hidden", "model.query_heads")),
        ("CONTEXT = ", "constants.py.jinja", ("target.n150.context",)),
        ("KEY_VALUE_DTYPE = ", "constants.py.jinja", ("target.n150.dtypes.key_value",)),
        ("LENGTHS = ", "tables.py.jinja", ("target.n150.lengths",)),
        ("def mlp(", "kinds/mlp.py.jinja", ()),
    ],
)
def test_a_constant_leads_to_its_template_line_and_its_keys(start: str, template: str, keys: tuple[str, ...]) -> None:
    outcome = codegen("explain", f"{MODULE}:{line_of(MODULE, start)}", "--json")
    assert outcome.code == 0, outcome.err
    path, _, number = outcome.data["template"].rpartition(":")
    assert path == f"templates/{template}"
    text = (REPOSITORY / path).read_text(encoding="utf-8").split("\n")[int(number) - 1]
    assert text.startswith(start) and text.strip() == outcome.data["template_line"]
    assert tuple(key["key"] for key in outcome.data["keys"]) == keys
    for key in outcome.data["keys"]:
        path, _, number = key["place"].removesuffix(" (default)").rpartition(":")
        assert path == MANIFEST
        stated = (REPOSITORY / path).read_text(encoding="utf-8").split("\n")[int(number) - 1]
        assert stated.startswith(f"{key['key'].rsplit('.', 1)[1]} = {key['value']}"), stated


def test_the_answer_reads_from_the_line_to_the_key() -> None:
    number = line_of(MODULE, "CONTEXT = ")
    outcome = codegen("explain", f"{MODULE}:{number}")
    assert re.sub(r":\d+", ":N", outcome.out) == (
        f"{MODULE}:N\n"
        "  CONTEXT = 32768  # target.n150.context\n"
        "made by templates/constants.py.jinja:N\n"
        '  CONTEXT = {{ model.context }}  # {{ because("context") }}\n'
        f"from {MANIFEST}:N: target.n150.context = 32768\n"
    )


def test_a_key_left_out_of_the_manifest_is_told_as_its_default(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    project.edit("block_size = 32\n", "")
    assert project.build().code == 0
    place = f"{project.module}:{line_of(project.module, 'BLOCK_SIZE = ')}"
    outcome = codegen("explain", place, "--manifests", project.manifests, "--output", project.output, "--json")
    (key,) = outcome.data["keys"]
    table = line_of(project.manifest, "[target.n150]")
    assert key == {"key": "target.n150.block_size", "place": f"{project.manifest}:{table} (default)", "value": "32"}


def test_a_twin_is_explained_too(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    assert project.build("--twin").code == 0
    twin = project.output / "m_twin" / "n150.py"
    outcome = codegen("explain", f"{twin}:1", "--manifests", project.manifests, "--output", project.output)
    assert outcome.code == 0, outcome.err
    assert "Prefill of m-twin on n150" in outcome.out


@pytest.mark.parametrize("place", ["", "n150.py", "n150.py:", ":3", "n150.py:x", "n150.py:-1", "n150.py:\u00b2"])
def test_a_place_that_is_no_file_and_line_is_refused(place: str) -> None:
    outcome = codegen("explain", place)
    assert outcome.code == 2 and "name a file and a line" in outcome.err


def test_a_line_past_the_end_and_a_foreign_file_are_refused() -> None:
    count = MODULE.read_text(encoding="utf-8").count("\n")
    for line in (0, count + 1):
        outcome = codegen("explain", f"{MODULE}:{line}")
        assert outcome.code == 2 and f"line = {line}: has lines 1 to {count}; name one of them" in outcome.err
    outcome = codegen("explain", f"{__file__}:1")
    assert outcome.code == 2 and "is no module that a build into" in outcome.err


def test_a_module_whose_lines_would_not_match_is_refused(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    project.edit("context = 4096", "context = 2048")
    outcome = codegen("explain", f"{project.module}:1", "--manifests", project.manifests, "--output", project.output)
    assert outcome.code == 2
    assert "is not what a build would write now; codegen build m brings it up to date" in outcome.err


def test_paths_are_told_as_the_reader_would_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b") == "a/b"
    assert shown_path(tmp_path.parent / "c") == str(tmp_path.parent / "c")

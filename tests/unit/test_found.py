"""Families, their configurations and their tiny geometries are files that are found, and what was found is what a lock records."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from generator import families, inputs
from generator.families import FAMILIES
from generator.found import found
from generator.importing import classes
from tests.support import tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty package called `made_up`, which can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in sys.modules if one.split(".")[0] == "made_up"]:
        monkeypatch.delitem(sys.modules, name)
    folder = tmp_path / "made_up"
    folder.mkdir()
    (folder / "__init__.py").touch()
    return folder


def test_modules_that_have_the_name_are_found_in_the_order_of_their_names(package: Path) -> None:
    for name in ("b", "a_2", "a"):
        (package / f"{name}.py").write_text(f"HERE = {name!r}")
    (package / "shared.py").write_text("THERE = 1")
    (package / "below").mkdir()
    (package / "below" / "__init__.py").write_text("HERE = 'below'")
    (package / "notes.txt").write_text("HERE = 'text'")
    assert found("made_up", [str(package)], "HERE") == ("a", "a_2", "b")
    assert found("made_up", [str(package)], "NOWHERE") == ()


def test_a_mistake_in_a_module_is_told_and_not_passed_over(package: Path) -> None:
    (package / "broken.py").write_text("HERE = 1 / 0")
    with pytest.raises(ZeroDivisionError):
        found("made_up", [str(package)], "HERE")


def stems(*packages: Any) -> list[set[str]]:
    return [{path.stem for path in Path(one.__file__).parent.glob("*.py")} - {"__init__"} for one in packages]


def test_a_family_is_a_file_of_its_name_in_each_folder() -> None:
    flags, rows, geometries = stems(families, classes, tiny)
    assert list(FAMILIES) == sorted(FAMILIES)
    assert flags - {"family"} == rows == geometries - {"base"} == set(FAMILIES)
    assert {one.family for one in classes.CLASSES} == set(FAMILIES)
    assert {one.text for one in classes.WRAPPERS.values()} <= classes.TABLE.keys()
    assert len(classes.ROWS) == len({*classes.TABLE, *classes.WRAPPERS})  # no model_type twice


def test_a_lock_records_the_files_of_families_and_not_those_of_the_importer() -> None:
    recorded = {name for name in inputs.sources() if name.startswith("generator/")}
    assert {f"generator/families/{name}.py" for name in FAMILIES} | {"generator/found.py"} <= recorded
    beside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "generator/importing").rglob("*.py")}
    assert "generator/importing/classes/llama.py" in beside
    assert not beside & recorded


def test_a_new_file_of_a_family_is_recorded_by_itself(tmp_path: Path, monkeypatch: Any) -> None:
    copy = tmp_path / "generator"
    shutil.copytree(inputs.PACKAGE, copy)
    monkeypatch.setattr(inputs, "PACKAGE", copy)
    before = inputs._sources.__wrapped__(inputs.TEMPLATES)
    (copy / "families" / "new.py").write_text("FAMILY = None\n")
    after = inputs._sources.__wrapped__(inputs.TEMPLATES)
    assert before.items() < after.items()
    assert after.keys() - before.keys() == {"generator/families/new.py"}

"""Building in tests: committed modules rendered again, a small project of one model, and the command line in this process."""

from __future__ import annotations

import atexit
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from generator import catalog, geometry, inputs, manifest, pipeline, targets, twin
from generator.cli import main
from generator.geometry import Resolved
from generator.pipeline import Emitted, emit
from tests.support.manifests import TEXT

REPOSITORY = Path(__file__).resolve().parents[2]
COMMITTED = REPOSITORY / "generated"


def committed() -> list[tuple[str, str]]:
    """Model and target of every module that the manifests ask for."""
    return [
        (model, target)
        for model in catalog.names(catalog.BUILT_IN)
        for target in manifest.load(catalog.BUILT_IN, model).manifest.target
    ]


def committed_text(model: str, target: str) -> str:
    return (COMMITTED / manifest.module_name(model) / f"{target}.py").read_text(encoding="utf-8")


@cache
def resolved(model: str, target: str, small: bool = False) -> Resolved:
    file = manifest.load(catalog.BUILT_IN, model)
    return geometry.resolve(twin.twin(file) if small else file, targets.load_board(catalog.BUILT_IN, target))


@cache
def emitted(model: str, target: str) -> Emitted:
    return emit(resolved(model, target), f"models/{model}.toml", inputs.TEMPLATES)


def program_of(numbers: Resolved, manifest: str) -> str:
    """The text of a module that is run and not read, as the passes leave it: laying it out is half the time of emitting it."""
    with mock.patch.object(pipeline.black, "format_str", lambda text, mode: text):
        return emit(numbers, manifest, inputs.TEMPLATES).text


_remembered: dict[tuple[str, str, Path], Emitted] = {}


def remember_emissions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render equal inputs once: for tests of what is decided around the text, since rendering is most of their time."""

    def once(numbers: Resolved, manifest: str, templates: Path) -> Emitted:
        key = (repr(numbers), manifest, templates)
        if key not in _remembered:
            _remembered[key] = emit(numbers, manifest, templates)
        return _remembered[key]

    monkeypatch.setattr(pipeline, "emit", once)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        return json.loads(self.out)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def codegen(*arguments: object, terminal: bool = False) -> Outcome:
    """Run the command line and catch what it prints, on a terminal or not."""
    out, err = io.StringIO(), (_Terminal if terminal else io.StringIO)()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments], prog_name="codegen")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Project:
    """A manifest folder of one model "m" on n150, and the folder it was built into."""

    root: Path

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def manifest(self) -> Path:
        return self.manifests / "models" / "m.toml"

    @property
    def output(self) -> Path:
        return self.root / "out"

    @property
    def module(self) -> Path:
        return self.output / "m" / "n150.py"

    def build(self, *options: object, models: tuple[str, ...] = ("--all",), terminal: bool = False) -> Outcome:
        places = ("--manifests", self.manifests, "--output", self.output)
        return codegen("build", *models, *options, *places, terminal=terminal)

    def files(self) -> dict[str, bytes]:
        """Every file below the root by its path."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes() for path in self.root.rglob("*") if path.is_file()
        }

    def outputs(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files().items() if name.startswith("out/")}

    def edit(self, old: str, new: str) -> None:
        """Change the manifest."""
        text = self.manifest.read_text(encoding="utf-8")
        assert old in text, old
        self.manifest.write_text(text.replace(old, new, 1), encoding="utf-8")


def unbuilt_project(folder: Path) -> Project:
    """A project that nothing was built from."""
    project = Project(folder / "project")
    project.manifest.parent.mkdir(parents=True)
    project.manifest.write_text(TEXT, encoding="utf-8")
    shutil.copytree(catalog.BUILT_IN / catalog.TARGETS, project.manifests / catalog.TARGETS)
    return project


@cache
def _built() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="codegen-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    outcome = unbuilt_project(folder).build()
    assert outcome.code == 0, outcome.err
    return folder / "project"


def built_project(folder: Path) -> Project:
    """A copy of a project whose output is up to date."""
    shutil.copytree(_built(), folder / "project")
    return Project(folder / "project")


def names_of(modules: list[tuple[str, str]]) -> Iterator[str]:
    """Test ids."""
    return (f"{model}-{target}" for model, target in modules)

"""An installed wheel is complete: it lists and builds models outside a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "generator", "runtime", "generated", "templates")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages and scripts and nothing of the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy: building leaves files beside pyproject.toml
    source.mkdir()
    for name in SHIPPED:
        origin = PROJECT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, source)
    target = folder / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
        source,
    ]
    subprocess.run(pip, check=True)
    return target


def codegen(installed: Path, *arguments: object) -> str:
    command = [sys.executable, "-c", "from generator.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        command, cwd=installed.parent, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.slow
def test_a_wheel_has_every_template_manifest_module_and_emitted_module(installed: Path) -> None:
    code = ("generator/**/*.py", "runtime/**/*.py")
    for pattern in ("templates/**/*.jinja", "generator/manifests/**/*.toml", "generated/*/*.py", *code):
        inside = {path.relative_to(PROJECT) for path in PROJECT.glob(pattern)}
        assert inside
        assert {path.relative_to(installed) for path in installed.glob(pattern)} == inside


@pytest.mark.slow
def test_a_wheel_builds_outside_a_clone_the_module_that_is_committed(installed: Path, tmp_path: Path) -> None:
    codegen(installed, "build", "smollm2-135m", "--output", tmp_path / "out")
    built = {path.relative_to(tmp_path / "out"): path.read_bytes() for path in (tmp_path / "out").rglob("*.py")}

    assert {"n150.py", "p150.py"} <= {name.name for name in built}
    for name, content in built.items():
        assert content == (PROJECT / "generated" / name).read_bytes(), f"{name} differs from the committed one"


@pytest.mark.slow
def test_a_wheel_has_the_command_and_lists_every_model(installed: Path) -> None:
    listed = codegen(installed, "list")

    assert (installed / "bin" / "codegen").exists()
    for path in PROJECT.glob("generator/manifests/models/*.toml"):
        assert path.stem in listed
    assert " 36 passes " in listed  # what was proven of the modules travels with them

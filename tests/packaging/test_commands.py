"""The commands of a fresh clone: interpreters are found or refused, and a pinned version is stated once and the same everywhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.legality.environment import VERSION

PROJECT = Path(__file__).resolve().parents[2]
FIND_PYTHON = PROJECT / "tools" / "find-python"
THIS_VERSION = "{}.{}".format(*sys.version_info[:2])


def fake_interpreter(folder: Path, name: str, version: str, complete: bool = True) -> Path:
    """A command that answers `-c` as an interpreter of `version` would: with status 0 where the version is among the arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    answer = f'shift 3\nfor wanted do [ "$wanted" = {version} ] && exit 0; done\nexit 1' if complete else "exit 1"
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(stat.S_IRWXU)
    return path


def find_python(path: Path, home: Path, *versions: str) -> tuple[int, str]:
    environment = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(home)}
    found = subprocess.run([FIND_PYTHON, *versions], env=environment, capture_output=True, text=True)
    return found.returncode, found.stdout.strip()


def test_the_plain_python_is_taken_where_its_version_suits(tmp_path: Path) -> None:
    plain = fake_interpreter(tmp_path / "bin", "python3", "3.98")
    fake_interpreter(tmp_path / "bin", "python3.99", "3.99")

    assert find_python(tmp_path / "bin", tmp_path, "3.99", "3.98") == (0, str(plain))


def test_a_named_python_is_searched_where_the_plain_one_does_not_suit(tmp_path: Path) -> None:
    fake_interpreter(tmp_path / "bin", "python3", "3.97")
    fake_interpreter(tmp_path / "bin", "python3.99", "3.99", complete=False)
    named = fake_interpreter(tmp_path / "bin", "python3.98", "3.98")

    assert find_python(tmp_path / "bin", tmp_path, "3.99", "3.98") == (0, str(named))


def test_an_interpreter_of_pyenv_is_found_though_its_shim_fails(tmp_path: Path) -> None:
    fake_interpreter(tmp_path / "bin", "python3.98", "3.98", complete=False)
    version = fake_interpreter(tmp_path / ".pyenv" / "versions" / "3.98.4" / "bin", "python", "3.98")

    assert find_python(tmp_path / "bin", tmp_path, "3.98") == (0, str(version))


def test_no_interpreter_is_status_one_and_no_output(tmp_path: Path) -> None:
    assert find_python(tmp_path / "bin", tmp_path, "3.98") == (1, "")


def test_a_real_interpreter_is_recognised_by_its_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)

    assert find_python(tmp_path / "bin", tmp_path, THIS_VERSION)[0] == 0


@pytest.mark.parametrize(("in_ci", "status"), [("true", 2), ("", 0)])
def test_device_tests_without_an_interpreter_fail_in_ci_and_say_so_elsewhere(in_ci: str, status: int) -> None:
    environment = {**os.environ, "CI": in_ci}
    run = subprocess.run(
        ["make", "--no-print-directory", "test-device", "DEVICE_PYTHON="],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert run.returncode == status
    assert "they need Python 3.12 or 3.10 on Linux x86-64" in run.stdout + run.stderr


def test_the_device_library_is_pinned_to_the_version_that_modules_are_checked_against() -> None:
    text = (PROJECT / "pyproject.toml").read_text().replace('"', " ").replace("[", " ").replace(";", " ")

    assert {word for word in text.split() if word.startswith("ttnn=")} == {f"ttnn=={VERSION}"}


def test_setting_up_the_device_environment_without_an_interpreter_says_which_it_needs() -> None:
    run = subprocess.run(
        ["make", "--no-print-directory", "--always-make", ".venv-device/.ready", "DEVICE_PYTHON="],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 2 and "ttnn needs Python 3.12 or 3.10 on Linux x86-64" in run.stderr

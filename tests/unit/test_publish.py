"""Publishing: whatever fails and whenever, every file is old or new, and the next build takes it from there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from generator import lock, publish
from generator.errors import ManifestError
from tests.support.building import Project, built_project, codegen, remember_emissions, unbuilt_project

OLD = {"a/x.py": b"old a", "b/y.py": b"old b", "codegen.lock": b"old lock"}
NEW = {"a/x.py": b"new a", "b/y.py": b"new b", "c/z.py": b"new c"}
LOCK = lock.Lock({"templates/t.jinja": "digest"})
RENAMES = len(NEW) + 2  # the pending lock first, the lock last


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_emissions(monkeypatch)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for name, content in OLD.items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(content)
    return tmp_path / "out"


def found(output: Path) -> dict[str, bytes]:
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def failing(call: Callable, at: int, error: BaseException) -> Callable:
    """The call, but for its `at`-th time (from 1), which raises."""
    count = 0

    def wrapped(*arguments, **options):
        nonlocal count
        count += 1
        if count == at:
            raise error
        return call(*arguments, **options)

    return wrapped


def full_disk(path: str = "somewhere") -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", path)


def test_files_are_written_with_the_lock_and_nothing_is_left_beside_them(output: Path) -> None:
    publish.publish(output, NEW, ["b/y.py"], LOCK)
    assert found(output) == {"a/x.py": b"new a", "c/z.py": b"new c", "codegen.lock": LOCK.text().encode()}
    assert not (output / "b").exists()
    assert (output / "a" / "x.py").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("at", range(1, RENAMES + 1))
@pytest.mark.parametrize("error", [full_disk(), KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_every_file_is_old_or_new_wherever_a_rename_fails(output, monkeypatch, at: int, error: BaseException) -> None:
    monkeypatch.setattr(os, "replace", failing(os.replace, at, error))
    with pytest.raises((ManifestError, KeyboardInterrupt)):
        publish.publish(output, NEW, [], LOCK)
    after = found(output)
    assert not [name for name in after if name.endswith(".tmp")]
    assert after["codegen.lock"] == OLD["codegen.lock"]
    assert (lock.PENDING in after) == (at > 1)
    renamed = list(NEW)[: max(at - 2, 0)]
    for name in NEW:
        assert after.get(name) == (NEW[name] if name in renamed else OLD.get(name))
    assert (output / "c").exists() == ("c/z.py" in after)


@pytest.mark.parametrize(("owner", "name"), [(tempfile, "mkstemp"), (os, "fsync"), (os, "chmod")])
@pytest.mark.parametrize("at", range(1, len(NEW) + 2))
def test_nothing_changes_where_new_content_cannot_be_laid_beside_the_old(
    output, monkeypatch, owner, name, at: int
) -> None:
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), at, full_disk()))
    with pytest.raises(
        ManifestError, match="somewhere: cannot be written .No space left on device.; nothing was published"
    ):
        publish.publish(output, NEW, ["a/x.py"], LOCK)
    assert found(output) == OLD
    assert not (output / "c").exists()


def test_a_first_publication_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, 3, full_disk()))
    with pytest.raises(ManifestError):
        publish.publish(tmp_path / "deep" / "out", NEW, [], LOCK)
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_published_is_said(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", failing(os.replace, 3, full_disk()))
    with pytest.raises(ManifestError, match="the rest was not published; free the path and build again"):
        publish.publish(output, NEW, [], LOCK)


def test_a_folder_in_the_place_of_a_file_is_refused(output: Path) -> None:
    (output / "c" / "z.py" / "deeper").mkdir(parents=True)
    with pytest.raises(ManifestError, match="z.py: cannot be written"):
        publish.publish(output, NEW, [], LOCK)
    assert not list(output.rglob("*.tmp"))


def two_models(folder: Path) -> Project:
    project = built_project(folder)
    text = project.manifest.read_text(encoding="utf-8")
    (project.manifest.parent / "k.toml").write_text(text.replace('name = "m"', 'name = "k"'), encoding="utf-8")
    project.edit("context = 4096", "context = 2048")
    return project


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_build_that_was_cut_short_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A killed process cleans up nothing: renamed files are recognised as ours, though the lock does not know them."""
    project = two_models(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, at, SystemError("killed")))
        patch.setattr(os, "unlink", lambda path: None)
        with pytest.raises(SystemError):
            project.build()
    outcome = project.build()
    assert (outcome.code, outcome.err) == (0, "")
    expected = unbuilt_project(tmp_path / "fresh")
    for name in ("m.toml", "k.toml"):
        (expected.manifest.parent / name).write_bytes((project.manifest.parent / name).read_bytes())
    assert expected.build().code == 0
    left = {name: content for name, content in project.outputs().items() if not name.endswith(".tmp")}
    assert left == expected.outputs()
    assert project.build("--check").code == 0


def test_a_build_that_was_cut_short_is_no_hand_edit_though_the_manifest_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On disk lies neither what the lock knows nor what a build writes now, but what the pending lock says."""
    project = two_models(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 5, full_disk()))
        assert project.build().code == 2
    project.edit("context = 2048", "context = 1024")
    outcome = project.build()
    assert (outcome.code, outcome.err) == (0, "")
    assert "\nCONTEXT = 1024" in project.module.read_text(encoding="utf-8")


def test_a_failure_on_the_way_is_one_message_and_exit_code_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = two_models(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 3, full_disk("k/n150.py")))
        outcome = project.build()
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err == (
        "k/n150.py: cannot be written (No space left on device); the rest was not published; free the path and build again\n"
    )


def test_an_edit_after_a_build_was_cut_short_is_still_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = two_models(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 5, full_disk()))
        assert project.build().code == 2
    project.module.write_text("mine = 1\n", encoding="utf-8")
    outcome = project.build()
    assert outcome.code == 2 and "was edited by hand" in outcome.err


@pytest.mark.parametrize("options", [(), ("--check",), ("--diff",), ("--dry-run",)])
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_an_output_folder_that_is_a_file_is_refused(tmp_path: Path, options: tuple[str, ...], below: str) -> None:
    project = unbuilt_project(tmp_path)
    (tmp_path / "file").write_text("text", encoding="utf-8")
    before = {path for path in tmp_path.rglob("*")}
    output = tmp_path / "file" / below
    outcome = codegen("build", "--all", *options, "--manifests", project.manifests, "--output", output)
    assert outcome.code == 2
    assert outcome.err == f"{output}: {tmp_path / 'file'} is a file and no folder; name a folder with --output\n"
    assert {path for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options) -> None:
    """Permissions do not bind the superuser, who may run this test: the answer of the system is stood in for."""
    project = built_project(tmp_path)
    before = project.files()
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK and Path(path) == project.output))
    outcome = project.build(*options)
    assert outcome.code == 2
    assert (
        f"{project.output}: {project.output} cannot be written; change its permissions or name another" in outcome.err
    )
    assert project.files() == before


def test_a_folder_in_the_place_of_a_module_is_refused(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    project.module.unlink()
    project.module.mkdir()
    outcome = project.build()
    assert outcome.code == 2
    assert f"{project.module}: cannot be read (Is a directory); make it a readable file, or remove it" in outcome.err


@pytest.mark.parametrize("name", [lock.NAME, lock.PENDING])
def test_a_half_written_lock_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    project = built_project(tmp_path)
    whole = (project.output / lock.NAME).read_text(encoding="utf-8")
    (project.output / name).write_text(whole[: len(whole) // 2], encoding="utf-8")
    before = project.files()
    outcome = project.build()
    assert outcome.code == 2 and f"{name}: is no lock file of version 2" in outcome.err
    assert project.files() == before

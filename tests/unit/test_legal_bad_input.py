"""`codegen legal` where nothing can be checked: one message with the command that helps, and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.legality import environment
from runtime.legality.boards import BOARDS, cluster_descriptor
from runtime.legality.command import Job, check
from runtime.legality.environment import VERSION, make_overlay, mock_environment
from runtime.legality.errors import CannotCheck
from runtime.legality.process import last_words
from tests.support.building import codegen


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "library_folder", lambda: None)


def job(path: Path, target: str = "n150") -> Job:
    return Job("m", target, path, str(path))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "n150.py"
    path.write_text("MODEL = 'm'\n", encoding="utf-8")
    return path


def refused(*jobs: Job, descriptor: Path | None = None) -> str:
    with pytest.raises(CannotCheck) as caught:
        list(check(jobs, descriptor))
    return str(caught.value)


def test_without_the_library_it_says_where_it_is_published_and_how_to_get_it(without_library) -> None:
    outcome = codegen("legal", "smollm2-135m")
    assert (outcome.code, outcome.out) == (2, "")
    assert "ttnn is not installed for this Python 3." in outcome.err and "3.10 and 3.12 on Linux x86-64" in outcome.err
    assert "make .venv-device/.ready" in outcome.err and "pip install 'prefill-codegen[device]'" in outcome.err


def test_asked_for_json_it_answers_in_json(without_library) -> None:
    outcome = codegen("legal", "smollm2-135m", "--json")
    assert outcome.code == 2 and "ttnn is not installed" in outcome.data["errors"][0]["rule"]


@pytest.mark.parametrize("found", ["0.80.0", None])
def test_another_version_than_the_recorded_one_is_refused(monkeypatch, module: Path, found: str | None) -> None:
    monkeypatch.setattr(environment, "library_folder", lambda: module.parent)
    monkeypatch.setattr(environment, "installed_version", lambda: found)
    said = refused(job(module))
    assert (
        said.startswith(f"ttnn {found or 'of an unknown version'} is installed")
        and f"pip install ttnn=={VERSION}" in said
    )


def test_a_module_that_is_not_built_is_named_with_the_command_that_builds_it(without_library, tmp_path: Path) -> None:
    outcome = codegen("legal", "smollm2-135m", "--target", "p150", "--output", tmp_path)
    assert outcome.code == 2
    assert "smollm2_135m/p150.py is not built yet; `codegen build smollm2-135m --target p150` writes it" in outcome.err


def test_a_module_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n150.py").write_bytes(b"\xff\xfe")
    assert "cannot be read" in refused(
        job(tmp_path / "n150.py")
    ) and "codegen build m --target n150 --force" in refused(job(tmp_path / "n150.py"))


def test_a_target_without_a_mock_board_is_refused_with_those_that_there_are(module: Path) -> None:
    assert refused(job(module, "n300")) == (
        "no mock board is known for the target n300 (known: n150, p150); name the cluster descriptor of one chip of it "
        "with --cluster-descriptor FILE"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read (No such file or directory)"), (b"\xff", "cannot be read"), (b" \n", "is empty")],
)
def test_a_descriptor_that_is_no_text_is_refused(module: Path, content: bytes | None, message: str) -> None:
    path = module.parent / "cluster.yaml"
    if content is not None:
        path.write_bytes(content)
    said = refused(job(module), descriptor=path)
    assert said.startswith(f"the cluster descriptor {path}") and message in said and "--cluster-descriptor" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("legal",), "name the models to check, or use --all"),
        (("legal", "smollm2-135m", "--all"), "name models or use --all, not both"),
        (("legal", "smollm2"), 'did you mean "smollm2-135m"?'),
        (
            ("legal", "smollm2-135m", "--target", "n15"),
            'smollm2-135m has no table for this target; did you mean "n150"?',
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_in_what_is_asked_is_one_message(without_library, arguments: tuple[str, ...], message: str) -> None:
    outcome = codegen(*arguments)
    assert outcome.code == 2 and message in outcome.err


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/nowhere/sh\n", "#!/bin/sh\necho gcc 15\n"])
def test_a_stand_in_that_does_not_run_is_refused(monkeypatch, tmp_path: Path, script: str) -> None:
    monkeypatch.setattr(environment, "compiler_script", lambda: script)
    with pytest.raises(CannotCheck, match=r"the stand-in for the kernel compiler does not run at .*TMPDIR="):
        make_overlay(tmp_path / "library", tmp_path / "folder")


def test_a_stand_in_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("no folder")
    with pytest.raises(CannotCheck, match="does not run at .*Not a directory.*TMPDIR="):
        make_overlay(tmp_path / "library", tmp_path / "folder")


def test_settings_of_another_device_do_not_reach_the_mock_device(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TT_METAL_SLOW_DISPATCH_MODE", "1")
    monkeypatch.setenv("PREFILL_BACKEND", "emulator")
    made = mock_environment("n150", tmp_path / "library", tmp_path)
    assert "TT_METAL_SLOW_DISPATCH_MODE" not in made and made["PREFILL_BACKEND"] == "ttnn"
    described = Path(made["TT_METAL_MOCK_CLUSTER_DESC_PATH"]).read_text(encoding="utf-8")
    assert described == cluster_descriptor(BOARDS["n150"])
    assert (Path(made["TT_METAL_RUNTIME_ROOT"]) / "tt_metal").readlink() == tmp_path / "library" / "tt_metal"


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (
            "noise\nTraceback ...\nRuntimeError: TT_FATAL @ a.cpp:1: x\ninfo:\nno board\n",
            "RuntimeError: TT_FATAL @ a.cpp:1: x info: no board",
        ),
        ("terminate called\n  what():  bad file\n", "terminate called what():  bad file"),
        ("", "nothing"),
    ],
)
def test_the_last_words_of_a_process_are_its_error(errors: str, words: str) -> None:
    assert last_words(errors) == words


class Device:
    """Stands in for a mock device: opened for a board, ended by some modules."""

    opened: list[str] = []

    def __init__(self, board: str, library: Path, descriptor: Path | None) -> None:
        self.board, self.alive = board, True
        self.opened.append(board)

    def check(self, path: str, source: str, progress: Any) -> Any:
        from runtime.legality.process import Outcome

        if "ends" in source:
            self.alive = False
        mismatch = {"grid": [[8, 8], [8, 7]]} if "mismatch" in source else {}
        return Outcome(shapes=[{"passed": True}], board={"name": "n150"}, mismatch=mismatch)

    def close(self) -> None:
        self.board = ""


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("runtime.legality.command.MockDevice", Device)
    monkeypatch.setattr("runtime.legality.command.require_library", Path)
    monkeypatch.setattr(Device, "opened", [])
    return Device.opened


def test_modules_of_one_board_share_a_device_and_a_fault_opens_a_new_one(devices, tmp_path: Path) -> None:
    jobs = []
    for name, target, source in (
        ("a", "n150", ""), ("b", "p150", ""), ("c", "n150", "ends"), ("d", "n150", ""), ("e", "p150", ""),
    ):  # fmt: skip
        (tmp_path / name).write_text(source, encoding="utf-8")
        jobs.append(Job(name, target, tmp_path / name, name))
    assert [one["model"] for one in check(jobs)] == ["a", "c", "d", "b", "e"]
    assert devices == ["n150", "n150", "p150"]


def test_a_board_that_is_not_the_modules_is_refused_with_the_numbers(devices, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mismatch", encoding="utf-8")
    assert refused(Job("m", "n150", tmp_path / "a", "a.py")) == (
        "the mock device of n150 is not the board of a.py, which states grid [8, 8], the device has [8, 7]; correct the "
        "board's manifest and `codegen build m --target n150`"
    )

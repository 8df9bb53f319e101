"""The record of proofs: read back as written, only of what passed, and worth nothing once a module has other bytes."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from generator import proofs, proving, publish
from generator.errors import ManifestError
from generator.inputs import digest
from generator.proofs import Proof
from generator.subjects import Subject
from tests.support.building import Project, built_project, codegen, remember_emissions

LEGAL = Proof("codegen legal m --target n150", "full size", {"passes": 40}, "a", "a")
LOGIC = Proof("codegen verify m --target n150 --twin", "twin, random weights", {"worst_relative_error": 6e-7}, "a", "b")
M = "m/n150.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    remember_emissions(monkeypatch)
    return built_project(tmp_path)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder with two modules, whose content does not matter."""
    for name in (M, "k/p150.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("", encoding="utf-8")
    return tmp_path


def test_a_record_reads_back_as_it_was_written_and_stands_alone(output: Path) -> None:
    proofs.record(output, M, {"legal": LEGAL})
    proofs.record(output, M, {"logic": LOGIC, "precision": LOGIC})
    proofs.record(output, "k/p150.py", {"legal": LEGAL})
    assert proofs.read(output) == {
        M: {"legal": LEGAL, "logic": LOGIC, "precision": LOGIC},
        "k/p150.py": {"legal": LEGAL},
    }
    assert sorted(path.name for path in output.iterdir()) == ["k", "m", proofs.NAME]


def test_the_order_of_recording_does_not_change_the_bytes() -> None:
    one, other = {M: {"legal": LEGAL, "logic": LOGIC}, "k": {}}, {M: {"logic": LOGIC, "legal": LEGAL}}
    assert proofs.text(one) == proofs.text(other) and proofs.text(one).endswith("}\n")


def test_what_failed_is_not_recorded_and_withdraws_what_was(output: Path) -> None:
    proofs.record(output, M, {"legal": LEGAL, "logic": LOGIC})
    proofs.record(output, M, {"logic": None, "precision": None})
    assert proofs.read(output) == {M: {"legal": LEGAL}}


def test_a_module_that_is_gone_leaves_the_record(output: Path) -> None:
    proofs.record(output, M, {"legal": LEGAL})
    (output / M).unlink()
    proofs.record(output, "k/p150.py", {"legal": LEGAL})
    assert proofs.read(output).keys() == {"k/p150.py"}


def test_nobody_else_records_between_reading_and_writing(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, read, write = [], proofs.read, publish.write_new

    def while_another_tries(call):
        def tried_meanwhile(*arguments):
            other = os.open(output, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)
            tried.append(call)
            return call(*arguments)

        return tried_meanwhile

    monkeypatch.setattr(proofs, "read", while_another_tries(read))
    monkeypatch.setattr(publish, "write_new", while_another_tries(write))
    for module in (M, "k/p150.py"):  # the second one is let in when the first is done
        proofs.record(output, module, {"legal": LEGAL})
    assert tried == [read, write] * 2 and read(output).keys() == {M, "k/p150.py"}


def test_a_write_that_fails_leaves_the_old_record(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs.record(output, M, {"legal": LEGAL})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ManifestError, match="proofs.json: cannot be written"):
        proofs.record(output, M, {"logic": LOGIC})
    assert proofs.read(output) == {M: {"legal": LEGAL}}
    assert sorted(path.name for path in output.iterdir()) == ["k", "m", proofs.NAME]


ENTRY = {"command": "c", "on": "full size", "measured": {}, "module": "a", "ran": "a"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        {"version": 2, "modules": {}},
        {"version": 1, "modules": {}, "more": 1},
        {"version": 1, "modules": {M: {"legal": {}}}},
        {"version": 1, "modules": {M: {"luck": ENTRY}}},
        {"version": 1, "modules": {M: {"legal": {**ENTRY, "module": 1}}}},
        {"version": 1, "modules": {M: {"legal": {**ENTRY, "measured": {"passes": "all"}}}}},
        {"version": 1, "modules": {M: {"legal": {**ENTRY, "measured": {"passes": True}}}}},
        {"version": 1, "modules": {M: []}},
    ],
    ids=str,
)
def test_a_broken_record_is_refused_by_name_with_the_commands_that_make_it(output: Path, content) -> None:
    (output / proofs.NAME).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(ManifestError, match="proofs.json: is no record of proofs .*codegen legal --all --record"):
        proofs.read(output)
    assert codegen("list", "--output", output).code == 2


def listed(project: Project) -> dict:
    (model,) = codegen("list", "--manifests", project.manifests, "--output", project.output, "--json").data["models"]
    return model["targets"][0]


def record_of(project: Project) -> None:
    now = digest(project.module.read_bytes())
    proofs.record(project.output, M, {"legal": replace(LEGAL, module=now), "logic": replace(LOGIC, module=now)})


def test_the_list_shows_what_was_proven_of_each_module(project: Project) -> None:
    record_of(project)
    shown = listed(project)
    assert (shown["target"], shown["context"], shown["inputs_changed"]) == ("n150", 4096, "2023-11-14")
    assert {kind: one["state"] for kind, one in shown["proven"].items()} == {
        "legal": "proven",
        "logic": "proven",
        "precision": "none",
    }
    assert shown["proven"]["legal"] == {
        "state": "proven",
        "command": LEGAL.command,
        "on": "full size",
        "measured": {"passes": 40},
    }
    outcome = codegen("list", "--manifests", project.manifests, "--output", project.output)
    assert outcome.out.split("\n")[1].split() == "m llama n150 4096 40 passes twin 6.0e-07 - 2023-11-14".split()


@pytest.mark.parametrize("what", ["module", "digest"])
def test_a_proof_of_other_bytes_is_stale(project: Project, what: str) -> None:
    record_of(project)
    if what == "module":
        project.edit("context = 4096", "context = 2048")
        assert project.build().code == 0
    else:
        path = project.output / proofs.NAME
        now = digest(project.module.read_bytes())
        flipped = now[:-1] + ("0" if now[-1] != "0" else "1")
        path.write_text(path.read_text(encoding="utf-8").replace(f'"module": "{now}"', f'"module": "{flipped}"'))
    assert {kind: one["state"] for kind, one in listed(project)["proven"].items()} == {
        "legal": "stale",
        "logic": "stale",
        "precision": "none",
    }
    line = codegen("list", "--manifests", project.manifests, "--output", project.output, "--markdown").out.split("\n")[
        2
    ]
    assert line.split(" | ")[4:7] == ["stale", "stale", "-"]


def test_a_module_that_is_not_built_is_listed_without_proofs(project: Project) -> None:
    record_of(project)
    project.module.unlink()
    assert listed(project)["proven"]["legal"]["state"] == "stale"
    elsewhere = codegen("list", "--manifests", project.manifests, "--output", project.root / "nowhere")
    assert elsewhere.out.split("\n")[1].split() == "m llama n150 4096 - - - not built".split()


def report(*, precision: str, passed: bool = True, weights: str = "random, seed 20", **worst: float) -> SimpleNamespace:
    numbers = {"max_relative_error": 1e-7, "keys_max_relative_error": 3.14e-7, "values_max_relative_error": 2e-7}
    case = SimpleNamespace(**{"precision": precision, "passed": passed, "pcc_logits": 0.9998765, **numbers, **worst})
    return SimpleNamespace(cases=(case,), weights=weights)


SUBJECT = Subject("m", "n150", M, None)


def test_a_verification_shows_logic_and_precision_with_the_worst_numbers() -> None:
    both = report(precision="float32")
    both.cases += report(precision="float32", keys_max_relative_error=1e-8).cases
    both.cases += report(precision="declared").cases + report(precision="declared", pcc_logits=0.9997).cases
    shown = proving._shown(both, SUBJECT, " --twin", "a", "b")
    assert shown["logic"] == Proof(
        "codegen verify m --target n150 --twin",
        "twin, random weights",
        {"comparisons": 2, "worst_relative_error": 3.1e-7},
        "a",
        "b",
    )
    assert shown["precision"].measured == {"comparisons": 2, "worst_correlation": 0.9997}
    whole = proving._shown(report(precision="float32", weights="/there/w.gguf"), SUBJECT, "", "a", "a")
    assert whole["logic"].on == "full size, weights w.gguf"


def test_a_failed_comparison_or_none_shows_nothing() -> None:
    failed = report(precision="float32", passed=False)
    failed.cases += report(precision="float32").cases
    assert proving._shown(failed, SUBJECT, "", "a", "a") == {"logic": None, "precision": None}


def prove(project: Project, command: str, *options: object):
    return codegen(command, *options, "--record", "--manifests", project.manifests, "--output", project.output)


def test_verify_records_what_the_twin_showed_on_the_emulator(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFILL_BACKEND", "ttnn")
    outcome = prove(project, "verify", "--all")
    assert outcome.code == 0, outcome.err
    assert os.environ["PREFILL_BACKEND"] == "emulator"
    assert outcome.out.startswith("m-twin on n150 (emulator), random, seed 20\npassed: 46 of 46 cases; ")
    found = proofs.read(project.output)[M]
    assert found.keys() == {"logic", "precision"} and found["logic"].on == "twin, random weights"
    assert found["logic"].module == digest(project.module.read_bytes()) != found["logic"].ran
    assert found["logic"].measured["worst_relative_error"] <= 1e-4
    assert found["precision"].measured["worst_correlation"] >= 0.99
    assert listed(project)["proven"]["precision"]["state"] == "proven"


def test_a_failed_verification_is_said_recorded_nowhere_and_exit_code_one(project: Project, monkeypatch) -> None:
    record_of(project)
    monkeypatch.setattr("runtime.verify.FLOAT32_ERROR", 0.0)
    outcome = prove(project, "verify", "m", "--twin")
    assert outcome.code == 1 and outcome.err == "not recorded: logic of m on n150 failed\n"
    assert proofs.read(project.output)[M].keys() == {"legal", "precision"}


def test_legal_records_the_passes_of_modules_that_are_accepted_whole(project: Project, monkeypatch) -> None:
    verdict = {
        "model": "m",
        "target": "n150",
        "passed": True,
        "shapes": [{"passed": True, "calls": []}] * 3,
        "refusals": [],
    }
    monkeypatch.setattr("runtime.legality.command.check", lambda *_: iter([dict(verdict)]))
    assert prove(project, "legal", "m", "--json").code == 0
    now = digest(project.module.read_bytes())
    assert proofs.read(project.output) == {M: {"legal": replace(LEGAL, measured={"passes": 3}, module=now, ran=now)}}
    verdict["passed"] = False
    outcome = prove(project, "legal", "--all", "--json")
    assert outcome.code == 1 and outcome.err == "not recorded: legal of m on n150 failed\n"
    assert proofs.read(project.output) == {}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("verify", "m", "--prompt", "x", "--twin"), "the emulator's answers to the project's own prompts"),
        (("verify", "m", "--device", "0"), "the emulator's answers to the project's own prompts"),
        (("verify", "m", "--twin", "--weights", "x"), "leave --weights out"),
        (("verify",), "name the models to check, or use --all"),
        (("verify", "m", "--all"), "name models or use --all, not both"),
        (("legal", "m", "--cluster-descriptor", "x"), "leave --cluster-descriptor out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_no_proof_is_refused_before_anything_runs(
    project: Project, command: tuple[str, ...], message: str
) -> None:
    outcome = prove(project, *command)
    assert outcome.code == 2 and message in outcome.err
    assert proofs.read(project.output) == {}


@pytest.mark.parametrize("command", ["verify", "legal"])
def test_nothing_is_recorded_of_a_module_that_a_build_would_change(project: Project, command: str) -> None:
    project.edit("context = 4096", "context = 2048")
    outcome = prove(project, command, "m")
    assert outcome.code == 2
    assert (
        f"{project.module}: is not what a build would write now, so nothing is shown of it; codegen build"
        in outcome.err
    )
    assert proofs.read(project.output) == {}

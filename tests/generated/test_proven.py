"""The committed record of proofs is of the committed modules and of their twins, and the README shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator import catalog, proofs
from generator.build import Request, build
from generator.inputs import digest
from generator.listing import LEGEND, markdown, rows
from generator.lock import module_path
from runtime.load import load
from runtime.verify import DECLARED, gate
from tests.support.building import COMMITTED, REPOSITORY, committed

RECORD = proofs.read(COMMITTED)


def again(kind: str, model: str, target: str) -> str:
    return f"`codegen {proofs.COMMANDS[kind]} {model} --target {target} --record`, or all of them with {proofs.again()}"


@pytest.mark.parametrize("kind", proofs.KINDS)
def test_every_committed_module_is_proven_as_it_is(kind: str) -> None:
    found = [one for model in rows(catalog.BUILT_IN, COMMITTED) for one in model.modules]
    assert len(found) == len(committed())
    missing = [
        f"{kind} of {model.name} on {one.target} is {one.state(kind)}"
        for model in rows(catalog.BUILT_IN, COMMITTED)
        for one in model.modules
        if one.state(kind) != proofs.PROVEN
    ]
    assert not missing, "\n".join([*missing, f"prove again: {proofs.again()}, where the real library and transformers are"])


def test_proofs_of_whole_modules_are_of_the_modules_and_hold_their_gates() -> None:
    assert RECORD.keys() == {module_path(model, target, twin=False) for model, target in committed()}
    for name, kinds in RECORD.items():
        text = (COMMITTED / name).read_text(encoding="utf-8")
        assert kinds["legal"].on == proofs.FULL_SIZE and kinds["legal"].measured["passes"] == text.count("\n    Shape(")
        assert kinds["logic"].measured["worst_relative_error"] <= 1e-4
        least = gate(load(COMMITTED / name), DECLARED).pcc
        assert least >= 0.95 and kinds["precision"].measured["worst_correlation"] >= least
        for kind, proof in kinds.items():
            assert (proof.ran == proof.module) == (proof.size == proofs.FULL_SIZE), (name, kind)
            assert proof.measured.get("comparisons", 1) > 0


@pytest.mark.slow
def test_proofs_of_twins_are_of_the_twins_that_a_build_makes_today(tmp_path: Path) -> None:
    build(Request(tmp_path, catalog.BUILT_IN, twin=True))
    stale = [
        f"{kind} of {model}'s twin: {again(kind, model, target)}"
        for model, target in committed()
        for kind, proof in RECORD[module_path(model, target, twin=False)].items()
        if proof.size == proofs.TWIN
        and proof.ran != digest((tmp_path / module_path(model, target, twin=True)).read_bytes())
    ]
    assert not stale, "\n".join(stale)


def test_the_readme_has_the_table_that_the_list_prints() -> None:
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").split("\n")
    printed = [*markdown(rows(catalog.BUILT_IN, COMMITTED)).split("\n"), *LEGEND.split("\n")]
    missing = [line for line in printed if line not in lines]
    assert not missing, "`codegen list --markdown` prints these lines, which the README lacks:\n" + "\n".join(missing)
    models = set(catalog.names(catalog.BUILT_IN))
    shown = [line for line in lines if line.count(" | ") == 7 and line[2:].split(" | ")[0] in models]
    assert set(shown) <= set(printed), "the README has lines of modules that `codegen list --markdown` does not print"

"""What `codegen legal` says of refusals: the statement, what lies behind it, the manifest keys, the tables."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from generator.build import Request
from generator.proving import _name_keys
from runtime.legality.blame import code_at, entry_line, lines_behind
from runtime.legality.command import Job, verdict
from runtime.legality.process import Outcome
from runtime.legality.table import markdown, render, summary_rows
from tests.support.building import Project, built_project, codegen

SOURCE = """WIDTH = 4
SCALE = WIDTH ** -0.5
TABLE = {
    "down": Program(WIDTH),
}
WEIGHTS = (
    Weight(
        "down",
        (WIDTH, 2),
    ),
)


def mlp(hidden, layer):
    \"\"\"Docstring.\"\"\"
    hidden = ttnn.linear(
        hidden,
        layer.down,
        program_config=TABLE["down"],
    )
    return hidden
"""


def test_the_code_of_a_line_is_its_whole_statement_on_one_line() -> None:
    assert (
        code_at(SOURCE, 17)
        == code_at(SOURCE, 16)
        == ('hidden = ttnn.linear(hidden, layer.down, program_config=TABLE["down"],)')
    )
    assert code_at(SOURCE, 14) == "def mlp(hidden, layer):" and code_at(SOURCE, 0) == code_at(SOURCE, 99) == ""
    assert code_at("a = (\nb", 1) == "a = (" and len(code_at(f"a = '{'x' * 999}'", 1)) == 323


def test_lines_behind_a_statement_are_its_own_then_tables_and_constants_that_it_reads() -> None:
    assert lines_behind(SOURCE, 17) == (16, 17, 18, 19, 20, 7, 8, 9, 10, 3, 4, 5, 1)
    assert lines_behind(SOURCE, 2) == (2, 1) and lines_behind("a = (\nb", 1) == (1,)


def test_an_entry_is_found_where_a_table_states_it() -> None:
    assert (entry_line(SOURCE, "down"), entry_line(SOURCE, "up"), entry_line("a = (", "down")) == (7, 0, 0)


def refusal(line: int, **fields: Any) -> dict[str, Any]:
    stated = {
        "pass_name": "single 1x128",
        "function": "mlp",
        "line": line,
        "message": "too\nwide",
        "by": "ttnn",
        "entry": "",
    }
    return stated | fields


def verdict_on(path: Path, source: str, *refusals: dict[str, Any], shapes: tuple = ()) -> dict[str, Any]:
    return verdict(Job("m", "n150", path, str(path)), source, Outcome(list(shapes), list(refusals)))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return built_project(tmp_path_factory.mktemp("legal"))


def test_a_refusal_names_the_manifest_keys_behind_its_line_nearest_first(project: Project) -> None:
    source = project.module.read_text(encoding="utf-8")
    line = next(number for number, text in enumerate(source.split("\n"), 1) if 'Store("keys"' in text)
    found = verdict_on(project.module, source, refusal(0, entry="keys"), refusal(0, pass_name="x"))
    _name_keys(Request(project.output, project.manifests), found)

    one, placeless = found["refusals"]
    assert (one["line"], one["code"].partition(" ")[0]) == (line, "STORES")
    keys = {key["key"]: key["place"] for key in one["keys"]}
    assert {"model.layers", "target.n150.key_value_blocks", "target.n150.block_size"} <= keys.keys()
    assert keys["model.layers"].startswith(f"{project.manifest}:")
    assert placeless["keys"] == [] and placeless["line"] == 0


def test_a_module_that_is_not_as_built_says_why_no_key_is_named(tmp_path: Path) -> None:
    project = built_project(tmp_path)
    source = project.module.read_text(encoding="utf-8") + "EDITED = True\n"
    project.module.write_text(source, encoding="utf-8")
    found = verdict_on(project.module, source, refusal(20))
    _name_keys(Request(project.output, project.manifests), found)

    assert found["refusals"][0]["line"] == 20 and found["refusals"][0]["keys"] == []
    assert "is not what a build would write now; codegen build m" in found["refusals"][0]["note"]


def shape(passed: bool = True, **fields: Any) -> dict[str, Any]:
    call = {"operation": "MatmulDeviceOperation", "call": "ttnn.linear", "cores": 64}
    return {
        "shape": {"variant": "chunked_batched", "rows": 32, "tokens": 128, "digest": "d"},
        "passed": passed,
        "operations": 457,
        "operations_per_layer": 14,
        "host_uploads": 0,
        "host_reads": 0,
        "circular_buffer_bytes": {"peak": 1024 * 1320, "limit": 1393312},
        "l1_bytes": {"peak": 1024 * 1340, "limit": 1393312},
        "dram_bytes": {"weights": 2**33, "key_value": 2**31, "activations_peak": 3 * 2**20, "capacity": 3 * 2**32},
        "matmuls": {"down": "2d 8x8 k8"},
        "attention": "chunks q128 k256 on 8x8",
        "calls": [call, {**call, "cores": 8}],
        "modelled": {"seconds": 0.2754, "over_roofline": 1.216},
    } | fields


def printed(found: dict[str, Any]) -> str:
    from rich.console import Console

    console = Console(width=110, file=io.StringIO(), highlight=False)
    for part in render(found):
        console.print(part, soft_wrap=isinstance(part, str))
    return console.file.getvalue()


def test_tables_hold_every_number_in_110_columns() -> None:
    text = printed(verdict_on(Path("m.py"), "", shapes=(shape(),)))
    rows = [re.split(r" {2,}", line.strip()) for line in text.split("\n")]

    for expected in (
        ["chunked_batched 32x128", "457", "14", "0", "1320", "1340", "3 MiB", "q128 k256", "275.4 ms", "1.22x"],
        ["down", "4096", "2d 8x8 k8"],
        ["MatmulDeviceOperation", "linear", "8", "36", "64"],
    ):
        assert expected in rows, text
    assert "8.00 GiB weights, 2.00 GiB keys and values of 12.00 GiB" in text and "(limit 1361)" in text
    assert "legal: m on n150, 1 of 1 passes that ran; 0 refusals" in text and max(map(len, text.split("\n"))) <= 110


def test_one_line_that_is_refused_for_many_passes_is_told_once() -> None:
    refusals = [refusal(2, pass_name=f"single 1x{128 * index}") for index in range(1, 6)]
    text = printed(verdict_on(Path("m.py"), SOURCE, *refusals, shapes=(shape(False, calls=[]),)))

    assert text.count("REFUSED m.py:2 in mlp, for single 1x128, single 1x256, single 1x384 and 2 more") == 1
    assert "\n  SCALE = WIDTH ** -0.5\n  ttnn: too wide\n" in text and text.endswith("ran; 5 refusals\n")


def test_a_module_of_which_nothing_ran_has_not_passed() -> None:
    assert not verdict_on(Path("m.py"), "")["passed"]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Verdicts by target, in the place of a mock device."""
    found = {
        "n150": verdict_on(Path("m.py"), SOURCE, shapes=(shape(),)),
        "p150": verdict_on(Path("m.py"), SOURCE, refusal(2), shapes=(shape(False, calls=[]),)),
    }
    monkeypatch.setattr(
        "runtime.legality.command.check",
        lambda jobs, *rest: (found[one.target] | {"target": one.target} for one in jobs),
    )
    monkeypatch.setattr("generator.captured.add_modelled_time", lambda verdict, manifests: None)
    return found


def test_the_first_target_is_checked_and_is_one_json_object(answers) -> None:
    outcome = codegen("legal", "smollm2-135m", "--json")
    assert (outcome.code, outcome.err, outcome.data) == (0, "", answers["n150"])
    assert set(outcome.data) == {"version", "model", "target", "ttnn_version", "passed", "shapes", "refusals"}


def test_a_refusal_is_exit_code_one(answers) -> None:
    outcome = codegen("legal", "smollm2-135m", "--target", "p150")
    assert outcome.code == 1 and "REFUSED m.py:2" in outcome.out and "no manifest keys can be named" in outcome.out


def test_all_models_on_all_targets_are_a_list(answers) -> None:
    outcome = codegen("legal", "--all", "--json")
    targets = [one["target"] for one in outcome.data["modules"]]
    assert outcome.code == 1 and 5 < targets.count("n150") <= targets.count("p150") < len(targets)  # one has p150 alone
    assert len(codegen("legal", "--all", "--target", "n150", "--json").data["modules"]) == targets.count("n150")


def test_json_and_a_table_are_not_printed_together(answers) -> None:
    outcome = codegen("legal", "smollm2-135m", "--json", "--markdown")
    assert outcome.code == 2 and outcome.data["errors"][0]["rule"] == "print JSON or a table, not both"


def test_the_summary_has_one_line_for_a_module_and_says_what_was_not_modelled() -> None:
    single = shape(shape={"variant": "single", "rows": 1, "tokens": 128, "digest": "d"})
    found = verdict_on(Path("m.py"), "", shapes=(single, shape()))
    assert summary_rows([found]) == [
        ("m", "n150", "2 of 2", "14", "0", "98%", "83%")
        + ("1x128: 275.4 ms (1.22x)",) * 3
        + ("1.22 to 1.22x, 1.22 to 1.22x",)
    ]
    bare = verdict_on(Path("m.py"), "", shapes=(shape(False, calls=[]),))
    assert summary_rows([bare]) == [("m", "n150", "0 of 1", *["-"] * 8)]
    assert markdown([found]).split("\n")[2].startswith("| m | n150 | 2 of 2 | 14 |")

"""`codegen legal` as its user runs it: one JSON object, tables, and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.legality.environment import PROJECT
from tests.device.emitted import WRONG_SUBBLOCKS, appended, smallest_module


@pytest.fixture
def codegen(library: Path):
    """Run the command in a process of its own; the library must not come into it."""

    def run(*arguments: object) -> subprocess.CompletedProcess:
        code = (
            "import sys\nfrom generator.cli import main\n"
            "try:\n    main(prog_name='codegen')\nfinally:\n    assert 'ttnn' not in sys.modules"
        )
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def altered(folder: Path, statements: str, passes: str) -> Path:
    """An output folder with one module, edited by hand."""
    module = folder / "smollm2_135m" / "n150.py"
    module.parent.mkdir()
    module.write_text(appended(smallest_module("n150"), statements, passes=passes))
    return folder


def test_a_legal_module_is_one_json_object_and_exit_code_zero(codegen) -> None:
    run = codegen("legal", "smollm2-135m", "--json")

    assert (run.returncode, run.stderr) == (0, "")
    data = json.loads(run.stdout)
    assert {name: data[name] for name in ("version", "model", "target", "ttnn_version", "passed", "refusals")} == {
        "version": 1,
        "model": "smollm2-135m",
        "target": "n150",
        "ttnn_version": "0.81.1",
        "passed": True,
        "refusals": [],
    }
    assert len(data["shapes"]) == 25 and all(one["passed"] for one in data["shapes"])


def test_a_refused_module_names_line_and_pass_in_its_table_and_is_exit_code_one(codegen, tmp_path: Path) -> None:
    output = altered(tmp_path, WRONG_SUBBLOCKS, "TRACES[:1]")
    run = codegen("legal", "smollm2-135m", "--output", output)

    assert run.returncode == 1 and run.stderr == ""
    assert f"REFUSED {output / 'smollm2_135m' / 'n150.py'}:" in run.stdout and "for single 1x224\n" in run.stdout
    assert "no manifest keys can be named: " in run.stdout and max(map(len, run.stdout.splitlines()[1:6])) <= 110


def test_a_fault_is_exit_code_one(codegen, tmp_path: Path) -> None:
    output = altered(tmp_path, "import os\n\n\ndef body(*args):\n    os.abort()", "TRACES[:1]")
    run = codegen("legal", "smollm2-135m", "--output", output, "--json")
    refusal = json.loads(run.stdout)["refusals"][0]

    assert run.returncode == 1
    assert (refusal["shape"], refusal["function"], refusal["code"]) == ("single 1x224", "body", "os.abort()")

"""What a module is estimated to compile, beside what the library compiles for it on a mock device, where no kernel is cached."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from generator.choosing.compiling import compiling
from generator.shapes import enumerate_shapes
from runtime.legality.environment import PROJECT, library_folder, mock_environment
from tests.device.emitted import module_of
from tests.device.test_layer_model import resolved

# One of each family of operations: rows of any lengths, explicit scores, windows, experts, and a recurrence.
MODULES = [
    ("llama_3_1_8b", "n150"),
    ("gemma_2_9b", "n150"),
    ("gemma_3_4b", "p150"),
    ("qwen3_30b_a3b", "p150"),
    ("qwen3_5_9b", "p150"),
]


@pytest.mark.parametrize("model, board", MODULES, ids="-".join)
def test_a_module_compiles_about_as_many_targets_as_estimated(model: str, board: str, tmp_path: Path) -> None:
    """After the first pass, which compiles what all share, and after the last."""
    library = library_folder()
    if library is None:
        pytest.skip("ttnn is not installed in this environment: `make test` runs these tests where it is")
    environment = mock_environment(board, library, tmp_path)
    command = [sys.executable, "-m", "tests.device.compiled_worker", str(module_of(model, board))]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    of = resolved(model, board)
    passes = [(shape.variant, shape.rows * shape.tokens) for shape in enumerate_shapes(of)]
    assert len(counts) == len(passes)
    for number in (1, len(passes)):
        assert 0.8 < compiling(of).targets(passes[:number]) / counts[number - 1] < 1.25, number

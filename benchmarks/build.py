"""How long a build of all modules takes, from nothing and when nothing changed; and a model from its configuration to a module."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import CODEGEN, PROJECT, Figure, run_command

FULL_REPEATS, UNCHANGED_REPEATS, ONE_REPEATS = 3, 5, 5
FULL_LIMIT_SECONDS, UNCHANGED_LIMIT_SECONDS, ONE_LIMIT_SECONDS = 20, 0.5, 1
CONFIGURATION = {  # Llama-3.1-8B's
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / str(index) for index in range(FULL_REPEATS)]
        full = [run_command([CODEGEN, "build", "--all", "--output", output]) for output in outputs]
        unchanged = [run_command([CODEGEN, "build", "--all", "--output", outputs[0]]) for _ in range(UNCHANGED_REPEATS)]
        one = [import_and_build(Path(folder) / f"one{index}") for index in range(ONE_REPEATS)]
    return [
        Figure("full build of all modules", "s", tuple(run.seconds for run in full), FULL_LIMIT_SECONDS),
        Figure("build with no change", "s", tuple(run.seconds for run in unchanged), UNCHANGED_LIMIT_SECONDS),
        Figure("import and build of a model for p150, processor", "s", tuple(one), ONE_LIMIT_SECONDS),
    ]


def import_and_build(folder: Path) -> float:
    """Processor seconds of the two commands that make a module of a published configuration."""
    shutil.copytree(PROJECT / "generator" / "manifests" / "targets", folder / "targets")
    (folder / "config.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    manifests = ("--manifests", folder)
    commands = (
        ("import", folder / "config.json", "--name", "m", "--target", "p150", *manifests),
        ("build", "m", "--output", folder / "out", *manifests),
    )
    return sum(run_command([CODEGEN, *command]).cpu_seconds for command in commands)

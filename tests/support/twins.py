"""Twins of the committed models on the emulator: built once for a process, with random weights and the reference beside
them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from generator import catalog
from generator.cli import main as codegen
from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.prefill import Prefill
from runtime.reference.dense import forward
from runtime.reference.parameters import RandomParameters
from runtime.stores import allocate
from runtime.weights import load_weights

TRACE_REGION = 1 << 30


RAGGED = re.compile(r"^ragged_tokens = .*$", re.MULTILINE)


@cache
def twin_module(model: str, target: str = "n150", ragged: bool = False) -> ModuleType:
    """The emitted twin of a model, imported. Unless `ragged`, its waves have equal rows, also where the model's own are ragged."""
    with tempfile.TemporaryDirectory() as folder:
        manifests = catalog.BUILT_IN
        if not ragged:
            manifests = Path(folder, "manifests")
            shutil.copytree(catalog.BUILT_IN / catalog.TARGETS, manifests / catalog.TARGETS)
            path = catalog.find(catalog.BUILT_IN, catalog.MODELS, model)
            (manifests / catalog.MODELS).mkdir()
            (manifests / catalog.MODELS / path.name).write_text(RAGGED.sub("", catalog.read(path)), encoding="utf-8")
        asked = ["build", model, "--target", target, "--twin", "--output", folder, "--manifests", str(manifests)]
        codegen(asked, standalone_mode=False)
        (path,) = Path(folder).glob(f"*/{target}.py")
        return load(path)


class Rig:
    """A twin on a device of its own, ready to prefill."""

    def __init__(
        self,
        model: str = "smollm2-135m",
        precision: str = "float32",
        seed: int = 0,
        target: str = "n150",
        module: Any = None,
        trace_region_size: int = 0,
        ragged: bool = False,
    ) -> None:
        self.module = module or twin_module(model, target, ragged)
        self.device = open_device(self.module.BOARD, precision=precision, trace_region_size=trace_region_size)
        self.parameters = RandomParameters(self.module.GEOMETRY, seed)
        self.weights = load_weights(self.module, self.device, self.parameters)
        self.stores = allocate(self.module, self.device)
        self.prefill = Prefill(self.module, self.device, self.weights, self.stores)

    def call(self, lengths: Sequence[int], seed: int = 0) -> SimpleNamespace:
        """Random prompts and a page table of permuted blocks, as the first three arguments of a call."""
        generator = np.random.default_rng(seed)
        widest = -(-max(lengths) // self.module.BLOCK_SIZE)
        blocks = generator.permutation(self.module.KEY_VALUE_BLOCKS)[: len(lengths) * widest]
        return SimpleNamespace(
            tokens=generator.integers(0, self.module.VOCABULARY, (len(lengths), max(lengths))),
            page_table=blocks.reshape(len(lengths), widest),
            prompt_lens=list(lengths),
        )

    def poison(self, blocks: Sequence[int]) -> None:
        """Make these blocks of every cache hold what no prompt leaves there."""
        for tensor in (*self.stores.keys, *self.stores.values):
            tensor.ownership.buffer.writable()[list(blocks)] = 1e4

    def expected(self, call: SimpleNamespace) -> torch.Tensor:
        """What the reference says of the last token of each prompt: [rows, vocabulary]."""
        prompts = [row[:length].tolist() for row, length in zip(call.tokens, call.prompt_lens)]
        return torch.cat([forward(self.module.GEOMETRY, self.parameters, prompt, rows=[-1]) for prompt in prompts])

    def live(self) -> set[int]:
        """Addresses of everything on the device."""
        return {buffer.address for buffer in self.device.live_tensors()}

    def blocks(self) -> torch.Tensor:
        """Both caches of every layer that has them: [caches x layers, blocks, heads, block, head_dim]."""
        return torch.stack([ttnn.to_torch(tensor) for tensor in (*self.stores.keys, *self.stores.values)]).float()


def traced_rig(*arguments: Any, **options: Any) -> Rig:
    """A rig whose traces are captured."""
    rig = Rig(*arguments, trace_region_size=TRACE_REGION, **options)
    rig.prefill.warm_up()
    rig.prefill.capture(decode_traces="none")
    return rig


def narrow_module(model: str = "smollm2-135m", rows: int = 2) -> Any:
    """A twin's module with no wave above `rows` rows, so that capturing it is quick."""
    module = twin_module(model)
    kept = {name: value for name, value in vars(module).items() if name not in ("TRACES", "PROGRAMS")}
    traces = tuple([shape for shape in module.TRACES if shape.rows <= rows])
    programs = tuple([(shape.digest, ending) for shape in traces for ending in module.SAMPLING])
    return SimpleNamespace(**kept, TRACES=traces, PROGRAMS=programs)


def relative_error(found: Any, expected: torch.Tensor) -> float:
    """max |a - b| / max |b|."""
    return float((found - expected).abs().max() / expected.abs().max())

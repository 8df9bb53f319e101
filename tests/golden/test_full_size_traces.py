"""At full size: a capture records the operations that an eager pass runs, line by line, for a pass of every variant.

Weights and stores are zeros, which take no memory: what is compared is the list of operations. Numbers are compared on twins.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.tables import RAGGED, Input, Shape, Store, Weight

# the larger ones differ from these in their tables alone
MODELS = ("smollm2_135m", "qwen3_0_6b", "llama_3_2_1b", "gemma_3_1b")
REGION = 100_000_000


def zeros(device: Any, entry: Input | Store | Weight, layout: Any) -> Any:
    return ttnn.zeros(
        entry.shape, dtype=entry.dtype, layout=layout, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG
    )


@pytest.fixture(params=MODELS)
def full_size(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, Any, SimpleNamespace, SimpleNamespace]]:
    module = load(f"generated.{request.param}.n150")
    device = open_device(module.BOARD, trace_region_size=REGION)
    weights = SimpleNamespace(**{entry.name: zeros(device, entry, entry.layout) for entry in module.WEIGHTS})
    weights.layers = [
        SimpleNamespace(**{entry.name: zeros(device, entry, entry.layout) for entry in module.LAYER_WEIGHTS})
        for _ in range(module.LAYERS)
    ]
    stores = SimpleNamespace(
        **{entry.name: [zeros(device, entry, entry.layout) for _ in range(entry.layers)] for entry in module.STORES}
    )
    yield module, device, weights, stores
    ttnn.close_device(device)


def inputs_of(module: ModuleType, device: Any, shape: Shape) -> SimpleNamespace:
    """Inputs that write nothing: a fill table of -1, everything else 0 but the bounds of the rows."""
    values = {entry.name: zeros(device, entry, ttnn.ROW_MAJOR_LAYOUT) for entry in module.INPUTS[shape.variant](shape)}
    filled = {"fill_table": torch.full((1, shape.fill_pages), -1)}
    if shape.variant in ("batched", RAGGED):
        filled["row_bounds"] = torch.arange(shape.rows + 1) * shape.tokens
    for name, value in filled.items():
        host = ttnn.from_torch(value.to(torch.int32), dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
        ttnn.copy_host_to_device_tensor(host, values[name])
    return SimpleNamespace(**values)


@pytest.mark.slow
def test_s000_34_at_full_size_a_capture_records_what_an_eager_pass_runs(full_size: Any) -> None:
    module, device, weights, stores = full_size
    smallest = {shape.variant: shape for shape in reversed(module.TRACES)}
    wave = RAGGED if hasattr(module, "RAGGED_TOKENS") else "batched"
    assert set(smallest) == {"single", wave, "chunked", "chunked_batched"}
    staged = {shape: inputs_of(module, device, shape) for shape in smallest.values()}
    eager = {}
    for shape, inputs in staged.items():
        with device.record_operations() as log:
            module.body(inputs, weights, stores, shape)
        eager[shape] = list(log)
    kept = []
    for shape, inputs in staged.items():
        with device.record_operations() as log:
            trace = module.begin_capture(device)
            kept.append(module.capture(device, trace, inputs, weights, stores, shape))
        assert log == eager[shape] and len(log) > 11 * module.LAYERS, shape
        assert {operation.file for operation in log} == {module.__file__}

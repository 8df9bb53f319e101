"""Runs an emitted module on the device of this process through the module's own tables and functions, and reports what refuses."""

from __future__ import annotations

import linecache
import traceback
from dataclasses import asdict, dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import ttnn


@dataclass(frozen=True)
class Refusal:
    """What the library said, and the line of the emitted file that it said it about."""

    shape: str
    function: str
    line: int
    code: str
    message: str


@dataclass(frozen=True)
class Report:
    """What a module ran, as "variant rows x tokens", and what was refused. Sizes are of the pass's outputs."""

    ran: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    outputs: tuple[dict[str, tuple[int, ...]], ...]
    expected: tuple[dict[str, tuple[int, ...]], ...]
    stated_board: dict[str, Any]
    held_bytes: int  # DRAM of one bank that the run left allocated


def load(path: str, source: str) -> ModuleType:
    """Execute the text of an emitted module. `path` names it in tracebacks."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType("emitted")
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def name_of(shape: Any) -> str:
    return f"{shape.variant} {shape.rows}x{shape.tokens}"


def refusal(shape: str, path: str, error: Exception) -> Refusal:
    """Blame the innermost line of the emitted file that the error passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) or not frames:
        return Refusal(shape, "<module>", getattr(error, "lineno", None) or 0, "", f"{type(error).__name__}: {error}")
    frame = frames[-1]
    return Refusal(shape, frame.name, frame.lineno or 0, frame.line or "", f"{type(error).__name__}: {error}")


class Allocator:
    """Device tensors without host values: a mock device holds none, and full-size tables would take seconds to fill."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def tensor(self, entry: Any, layout: Any) -> Any:
        try:
            return ttnn.empty(
                entry.shape, dtype=entry.dtype, layout=layout, device=self.device, memory_config=ttnn.DRAM_MEMORY_CONFIG
            )
        except RuntimeError as error:
            raise RuntimeError(f"{entry.name} {entry.shape} {entry.dtype}: {error}") from error

    def entries(self, table: Any) -> dict[str, Any]:
        return {entry.name: self.tensor(entry, entry.layout) for entry in table}

    def weights(self, module: ModuleType) -> SimpleNamespace:
        each_layer = [SimpleNamespace(**self.entries(module.LAYER_WEIGHTS)) for _ in range(module.LAYERS)]
        return SimpleNamespace(**self.entries(module.WEIGHTS), layers=each_layer)

    def stores(self, module: ModuleType) -> SimpleNamespace:
        return SimpleNamespace(
            **{store.name: [self.tensor(store, store.layout) for _ in range(store.layers)] for store in module.STORES}
        )

    def inputs(self, module: ModuleType, shape: Any) -> SimpleNamespace:
        return SimpleNamespace(
            **{value.name: self.tensor(value, ttnn.ROW_MAJOR_LAYOUT) for value in module.INPUTS[shape.variant](shape)}
        )


def run_pass(module: ModuleType, inputs: Any, weights: Any, stores: Any, shape: Any) -> dict[str, tuple[int, ...]]:
    """One eager pass up to the likeliest token; the sizes of what each stage returned."""
    hidden = module.body(inputs, weights, stores, shape)
    scores = module.logits(hidden, inputs.last_rows, weights)
    chosen = module.argmax(scores)
    return {name: tuple(value.shape) for name, value in (("hidden", hidden), ("logits", scores), ("argmax", chosen))}


def expected_sizes(module: ModuleType, shape: Any) -> dict[str, tuple[int, ...]]:
    return {
        "hidden": (1, 1, shape.rows * shape.tokens, module.HIDDEN),
        "logits": (1, 1, module.ROW_SLOTS, module.VOCABULARY),
        "argmax": (1, 1, module.ROW_SLOTS),
    }


def allocated_bytes(device: Any) -> int:
    return ttnn.get_memory_view(device, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank


def run_module(device: Any, path: str, source: str) -> Report:
    """Load a module, allocate all its weights and stores and run every pass of its table, at full width and depth."""
    before = allocated_bytes(device)
    allocator = Allocator(device)
    stage = "import"
    try:
        module = load(path, source)
        stage = "allocation"
        weights, stores = allocator.weights(module), allocator.stores(module)
    except Exception as error:
        return Report((), (refusal(stage, path, error),), (), (), {}, 0)
    ran, refusals, outputs, expected = [], [], [], []
    for shape in module.TRACES:
        ran.append(name_of(shape))
        try:
            outputs.append(run_pass(module, allocator.inputs(module, shape), weights, stores, shape))
            expected.append(expected_sizes(module, shape))
        except Exception as error:
            refusals.append(refusal(name_of(shape), path, error))
    del weights, stores
    board = asdict(module.BOARD)
    return Report(tuple(ran), tuple(refusals), tuple(outputs), tuple(expected), board, allocated_bytes(device) - before)


def dram_alignment(device: Any) -> int:
    """Bytes between two tensors of one four-byte element: pages start at multiples of the alignment."""
    first, second = (
        ttnn.empty(
            (1,), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG
        )
        for _ in range(2)
    )
    return second.buffer_address() - first.buffer_address()


def opened_board(device: Any) -> dict[str, Any]:
    """The numbers of a board as the library itself reports them for the open device, under the names that modules use."""
    grid = device.compute_with_storage_grid_size()
    dram = ttnn.get_memory_view(device, ttnn.BufferType.DRAM)
    l1 = ttnn.get_memory_view(device, ttnn.BufferType.L1)
    return {
        "architecture": device.arch().name.lower(),
        "grid": [grid.x, grid.y],
        "dram_banks": dram.num_banks,
        "dram_bank_bytes": dram.total_bytes_per_bank,
        "dram_alignment": dram_alignment(device),
        "l1_bank_bytes": l1.total_bytes_per_bank,
    }

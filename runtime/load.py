"""Find an emitted module and check that its sections are there and that its tables agree with each other.

The checks are those whose failure would otherwise show as a wrong answer and not as an error.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from runtime.errors import DeviceMismatch, ModuleError
from runtime.recurrent_tables import check_recurrence
from runtime.tables import RAGGED, REPLICATE, Shape, pass_microseconds, rotary_switch, states, window_reach

CONSTANTS = (
    "MODEL",
    "TARGET",
    "VOCABULARY",
    "LAYERS",
    "CONTEXT",
    "BLOCK_SIZE",
    "KEY_VALUE_BLOCKS",
    "PREFILL_CHUNK",
    "ALIGNMENT",
    "ROW_SLOTS",
    "GEOMETRY",
    "BOARD",
)
TABLES = ("WAVES", "LENGTHS", "TRACES", "SAMPLING", "PROGRAMS", "WEIGHTS", "LAYER_WEIGHTS", "STORES", "INPUTS")
FUNCTIONS = ("body", "logits", "argmax", "begin_capture", "capture", "replay")
DRAWING = ("TOP_K", "SAMPLING_INPUTS", "top_k", "log_probabilities")  # of modules that list the path top_k


def load(where: str | Path) -> ModuleType:
    """An emitted module by its file (`.../n150.py`) or its dotted name (`generated.llama_3_2_1b.n150`), checked."""
    text = str(where)
    module = _from_file(Path(where)) if text.endswith(".py") else _from_name(text)
    check_module(module)
    return module


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModuleError(f"no emitted module at {path}; build it with `codegen build`")
    spec = importlib.util.spec_from_file_location(f"emitted_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModuleError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleError(f"no emitted module named {name}: {error}; build it with `codegen build`") from error


def check_module(module: ModuleType) -> None:
    """Raise ModuleError unless the module has every section and its tables can be planned with."""
    missing = [name for name in (*CONSTANTS, *TABLES, *FUNCTIONS) if not hasattr(module, name)]
    if "top_k" in getattr(module, "SAMPLING", ()):
        missing += [name for name in DRAWING if not hasattr(module, name)]
    if missing:
        raise ModuleError(f"{module.__name__} is no emitted module: it lacks {', '.join(missing)}")
    _check_sizes(module)
    for entry in (*module.WEIGHTS, *module.LAYER_WEIGHTS, *module.STORES, *states(module)):
        if entry.placement != REPLICATE:
            raise ModuleError(f"{entry.name} is placed {entry.placement!r}; this runtime only places {REPLICATE!r}")
    _check_rotary_tables(module)
    for shape in module.TRACES:
        _check_shape(module, shape)
    _check_chunks(module)
    _check_windows(module)
    _check_ragged(module)
    check_recurrence(module)


def _check_sizes(module: ModuleType) -> None:
    for name in ("VOCABULARY", "CONTEXT", "BLOCK_SIZE", "KEY_VALUE_BLOCKS", "PREFILL_CHUNK", "ALIGNMENT", "ROW_SLOTS"):
        size = getattr(module, name)
        if type(size) is not int or size < 1:
            raise ModuleError(f"{module.__name__}.{name} is {size!r}, not a positive integer")
    for name, divisor in (("ALIGNMENT", "BLOCK_SIZE"), ("PREFILL_CHUNK", "ALIGNMENT")):
        size, unit = getattr(module, name), getattr(module, divisor)
        if size % unit:
            raise ModuleError(f"{module.__name__}.{name} {size} is not a multiple of {divisor} {unit}")
    if not module.TRACES:
        raise ModuleError(f"{module.__name__}.TRACES is empty: the module has no pass")


def _check_rotary_tables(module: ModuleType) -> None:
    """Positions of prompts past the switch are rows of a second set of tables, which must be there."""
    switch = rotary_switch(module)
    if switch is not None and not 0 < switch < module.CONTEXT:
        raise ModuleError(
            f"{module.__name__}.ROTARY_SWITCH {switch} is not inside the context of {module.CONTEXT} tokens"
        )
    rows = module.CONTEXT if switch is None else 2 * module.CONTEXT
    for weight in module.WEIGHTS:
        if weight.name in ("rotary_cos", "rotary_sin") and weight.shape[0] != rows:
            raise ModuleError(
                f"{weight.name} has {weight.shape[0]} rows and positions reach {rows}: "
                f"CONTEXT is {module.CONTEXT} and ROTARY_SWITCH {'absent' if switch is None else switch}"
            )


def _check_shape(module: ModuleType, shape: Shape) -> None:
    if shape.variant not in module.INPUTS:
        raise ModuleError(f"{shape}: no inputs are stated for the variant {shape.variant!r}")
    if (shape.variant == "single" and shape.rows != 1) or not 1 <= shape.rows <= module.ROW_SLOTS:
        raise ModuleError(f"{shape}: {shape.rows} rows; a single pass has 1 and none more than {module.ROW_SLOTS}")
    if shape.fill_pages * module.BLOCK_SIZE != shape.rows * shape.tokens:
        raise ModuleError(
            f"{shape}: {shape.fill_pages} blocks of {module.BLOCK_SIZE} do not hold "
            f"{shape.rows} x {shape.tokens} tokens exactly"
        )


def _check_ragged(module: ModuleType) -> None:
    """Rows are packed by what passes cost, so that each pass from the start of a prompt needs a price."""
    prices = pass_microseconds(module)
    if any(price < 1 for price in prices.values()):
        raise ModuleError(f"{module.__name__}.TRACES has ragged waves and passes without microseconds: {prices}")
    if prices and any(shape.variant == "batched" for shape in module.TRACES):
        raise ModuleError(
            f"{module.__name__}.TRACES has ragged waves and waves of equal rows; one kind serves all rows"
        )


def _check_chunks(module: ModuleType) -> None:
    """The table that attention reads must reach past the padded end of any chunk, or the operation refuses the pass."""
    chunked = [shape for shape in module.TRACES if shape.read_pages]
    lengths = sorted({shape.tokens for shape in chunked})
    if lengths and lengths[-1] != module.PREFILL_CHUNK < module.CONTEXT:
        raise ModuleError(
            f"the longest chunk in TRACES has {lengths[-1]} tokens and PREFILL_CHUNK is {module.PREFILL_CHUNK}"
        )
    for shape in chunked:
        shorter = max([length for length in lengths if length < shape.tokens], default=0)
        # The smallest length that holds the rest is used: where it is this one, the next shorter would not hold it.
        latest = (module.CONTEXT - shorter - 1) // module.ALIGNMENT * module.ALIGNMENT
        if latest >= 0 and latest + shape.tokens > shape.read_pages * module.BLOCK_SIZE:
            raise ModuleError(
                f"{shape}: a chunk may end at {latest + shape.tokens} and the table that attention reads covers "
                f"{shape.read_pages * module.BLOCK_SIZE} tokens"
            )


def _check_windows(module: ModuleType) -> None:
    """What layers with a window read must reach as far before a chunk as they see, from where a chunk may start."""
    window, reach, step = module.GEOMETRY.sliding_window, window_reach(module), module.ALIGNMENT
    if not any(shape.read_pages for shape in module.TRACES):
        return
    if (reach < window - 1 if window else reach != 0) or reach % step:
        raise ModuleError(
            f"{module.__name__}.WINDOW_REACH is {reach}: a window of {window} tokens needs the next multiple of ALIGNMENT "
            f"{step} from {max(window - 1, 0)} on"
        )
    for shape in module.TRACES:
        for entry in module.INPUTS[shape.variant](shape):
            needed = min(reach + shape.tokens, shape.read_pages * module.BLOCK_SIZE)
            if entry.name == "window_table" and entry.shape[1] * module.BLOCK_SIZE < needed:
                raise ModuleError(
                    f"{shape}: layers with a window read {entry.shape[1]} blocks of {module.BLOCK_SIZE} tokens and need "
                    f"{needed} tokens"
                )


def check_device(module: ModuleType, device: Any) -> None:
    """Raise DeviceMismatch unless the device is of the board's architecture and has its worker grid and memory
    banks.
    """
    board = module.BOARD
    architecture = device.arch().name.lower()
    if architecture != board.architecture:
        raise DeviceMismatch(
            f"{module.MODEL} was built for {board.name} ({board.architecture}); the device is {architecture}"
        )
    grid = device.compute_with_storage_grid_size()
    if grid.x < board.grid[0] or grid.y < board.grid[1]:
        raise DeviceMismatch(
            f"{module.MODEL} was built for {board.grid[0]} x {board.grid[1]} worker cores; "
            f"the device has {grid.x} x {grid.y}"
        )
    banks = device.dram_grid_size()
    if banks.x * banks.y != board.dram_banks:
        raise DeviceMismatch(
            f"{module.MODEL} was built for {board.dram_banks} DRAM banks; the device has {banks.x * banks.y}"
        )

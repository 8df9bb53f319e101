"""An emitted module from its text, with all that it needs on the device: weights, stores and inputs of each pass."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.backend import ttnn
from runtime.expert_weights import arranged
from runtime.tables import held_states, layer_kinds, states, wave_rows
from runtime.weights import flat

NO_STAGE: Callable[[str], None] = lambda name: None  # noqa: E731


@dataclass(frozen=True)
class Refusal:
    """What was refused, by whom, and the line of the emitted file that it is about. `pass_name` is a stage where no
    pass ran yet; `entry` names the weight, store or input that could not be allocated."""

    pass_name: str
    function: str
    line: int
    message: str
    by: str = "ttnn"
    entry: str = ""


class NoRoom(RuntimeError):
    """An entry of the module's tables that could not be allocated."""

    def __init__(self, entry: Any, error: Exception) -> None:
        super().__init__(f"{entry.name} {tuple(entry.shape)} {entry.dtype}: {error}")
        self.entry = entry.name


def load(path: str, source: str) -> ModuleType:
    """Execute the text of an emitted module. `path` names it in tracebacks."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType("emitted")
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def name_of(shape: Any) -> str:
    return f"{shape.variant} {shape.rows}x{shape.tokens}"


def refusal(pass_name: str, path: str, error: Exception) -> Refusal:
    """Blame the innermost line of the emitted file that the error passed through."""
    message, entry = f"{type(error).__name__}: {error}", getattr(error, "entry", "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) or not frames:
        return Refusal(pass_name, "<module>", getattr(error, "lineno", None) or 0, message, entry=entry)
    return Refusal(pass_name, frames[-1].name, frames[-1].lineno or 0, message, entry=entry)


class Allocator:
    """Device tensors without host values: a mock device holds none, and full-size tables would take seconds to fill."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def tensor(self, entry: Any, layout: Any) -> Any:
        try:
            return ttnn.empty(
                entry.shape, dtype=entry.dtype, layout=layout, device=self.device, memory_config=ttnn.DRAM_MEMORY_CONFIG
            )
        except (RuntimeError, TypeError) as error:
            raise NoRoom(entry, error) from error

    def entries(self, table: Any) -> dict[str, Any]:
        return {entry.name: self.entry(entry) for entry in table}

    def entry(self, entry: Any) -> Any:
        if not entry.experts:
            return self.tensor(entry, entry.layout)
        return arranged(entry, lambda expert: [self.tensor(entry, entry.layout) for _ in range(entry.parts)])

    def weights(self, module: ModuleType) -> SimpleNamespace:
        kinds = layer_kinds(module) or ("",) * module.LAYERS
        each_layer = [self.layer(module, kind) for kind in kinds]
        return SimpleNamespace(**self.entries(module.WEIGHTS), layers=each_layer)

    def layer(self, module: ModuleType, kind: str) -> SimpleNamespace:
        """The weights that a layer of a kind has."""
        held = self.entries([weight for weight in module.LAYER_WEIGHTS if weight.kind in ("", kind)])
        return SimpleNamespace(**held, kind=kind)

    def stores(self, module: ModuleType) -> SimpleNamespace:
        """Caches of all layers with keys; states of the rows of the largest wave, and beside them what the slots hold."""
        held = {store.name: self.copies(store, store.layers) for store in module.STORES}
        for state in states(module):
            held[state.name] = [tuple(self.copies(state, wave_rows(module))) for _ in range(state.layers)]
            held[f"{state.name} of slots"] = self.copies(state, state.layers * held_states(module))
        return SimpleNamespace(**held)

    def copies(self, entry: Any, count: int) -> list[Any]:
        return [self.tensor(entry, entry.layout) for _ in range(count)]

    def rows(self, inputs: Any) -> SimpleNamespace:
        """Host values of a pass or of sampling: row-major, as they are copied."""
        return SimpleNamespace(**{value.name: self.tensor(value, ttnn.ROW_MAJOR_LAYOUT) for value in inputs})


def roles(weights: SimpleNamespace) -> dict[int, str]:
    """The name of every weight by the identity of its tensor."""
    named = [(name, one) for name, one in vars(weights).items() if name != "layers"]
    named += [item for layer in weights.layers for item in vars(layer).items()]
    return {id(tensor): name for name, held in named if name != "kind" for tensor in flat(held)}


def run_pass(
    module: ModuleType, inputs: Any, weights: Any, stores: Any, shape: Any, stage: Callable[[str], None] = NO_STAGE
) -> dict[str, Any]:
    """One eager pass up to the likeliest token, stage by stage: what each returned."""
    stage("body")
    hidden = module.body(inputs, weights, stores, shape)
    stage("logits")
    scores = module.logits(hidden, inputs.last_rows, weights)
    stage("argmax")
    return {"body": hidden, "logits": scores, "argmax": module.argmax(scores)}


def run_drawing(module: ModuleType, scores: Any, tokens: Any, choice: Any) -> None:
    """What sampling adds to a pass, where the module has it."""
    module.log_probabilities(scores, tokens)
    module.log_probabilities(scores, module.top_k(scores, choice))


def wrong_sizes(module: ModuleType, shape: Any, returned: dict[str, Any]) -> dict[str, str]:
    """What is wrong with the size of what a stage returned, by the stage: later stages and the runtime rely on it."""
    geometry = module.GEOMETRY
    expected = {
        "body": (1, 1, shape.rows * shape.tokens, geometry.hidden),
        "logits": (1, 1, module.ROW_SLOTS, geometry.vocabulary),
        "argmax": (1, 1, module.ROW_SLOTS),
    }
    found = {name: tuple(value.shape) for name, value in returned.items()}
    return {
        name: f"returns {found[name]} for {name_of(shape)}, where {size} belongs"
        for name, size in expected.items()
        if found[name] != size
    }

"""Takes an emitted module through the open mock device: loaded, allocated at full size, every pass run and recorded.

Every pass first runs at full depth as it would on a chip, up to every ending, for legality and exhaustion. What is
accepted is recorded twice over the first layers, two or as many as hold each kind: without dispatch for the buffers of
each operation, with it for addresses.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.backend import ttnn
from runtime.legality import graph, measure, silent
from runtime.legality.emitted import (
    Allocator,
    Refusal,
    load,
    name_of,
    refusal,
    roles,
    run_drawing,
    run_pass,
    wrong_sizes,
)
from runtime.legality.recorder import Layered, Recorder

CHECK = "codegen"

Say = Callable[[dict[str, Any]], None]


def allocated_bytes(device: Any) -> int:
    """DRAM of all banks that is in use."""
    view = ttnn.get_memory_view(device, ttnn.BufferType.DRAM)
    return view.total_bytes_allocated_per_bank * view.num_banks


class Checked:
    """One module with everything that it holds on the device."""

    def __init__(self, device: Any, path: str, module: ModuleType) -> None:
        self.device, self.path, self.module = device, path, module
        self.allocator = Allocator(device)
        empty = allocated_bytes(device)
        self.weights = self.allocator.weights(module)
        weighed = allocated_bytes(device)
        self.stores = self.allocator.stores(module)
        self.choice = self.allocator.rows(module.SAMPLING_INPUTS) if "top_k" in module.SAMPLING else None
        board = module.BOARD
        self.sizes = measure.Sizes(
            weights=weighed - empty,
            key_value=allocated_bytes(device) - weighed,
            dram_capacity=board.dram_banks * board.dram_bank_bytes,
            l1_bank=board.l1_bank_bytes,
        )
        self.recorder = Recorder(ttnn, path, roles(self.weights), module.ALIGNMENT)

    def run(self, shape: Any) -> tuple[dict[str, Any], list[Refusal]]:
        """The report of one pass and what was refused."""
        identity = {name: getattr(shape, name) for name in ("variant", "rows", "tokens", "digest")}
        measured = measure.nothing_measured()
        try:
            inputs = self.allocator.rows(self.module.INPUTS[shape.variant](shape))
            refusals = self._run_at_full_depth(inputs, shape)
            if refusals:
                refusals += self._broken_rules_on_the_way(inputs, shape)
            else:
                recorded = self._record(inputs, shape)
                measured = measure.report(recorded, self.sizes, measure.kinds_of(self.module))
                refusals = self._unchecked_by_the_library(inputs, shape, recorded)
        except Exception as error:
            refusals = [refusal(name_of(shape), self.path, error)]
        return {"shape": identity, "passed": not refusals, **measured}, refusals

    def _run_at_full_depth(self, inputs: Any, shape: Any) -> list[Refusal]:
        try:
            returned = run_pass(self.module, inputs, self.weights, self.stores, shape)
        except Exception as error:
            return [refusal(name_of(shape), self.path, error)]
        wrong = wrong_sizes(self.module, shape, returned)
        if not wrong and self.choice is not None:
            run_drawing(self.module, returned["logits"], returned["argmax"], self.choice)
        lines = {name: getattr(self.module, name).__code__.co_firstlineno for name in wrong}
        return [Refusal(name_of(shape), name, lines[name], message, CHECK) for name, message in wrong.items()]

    def _broken_rules_on_the_way(self, inputs: Any, shape: Any) -> list[Refusal]:
        """What the calls of a refused pass break besides: where the library names only types, a rule may name the
        reason."""
        with suppress(Exception):  # it is refused again
            self._capture(ttnn.graph.RunMode.NO_DISPATCH, inputs, shape)
        return self._findings(shape)

    def _findings(self, shape: Any) -> list[Refusal]:
        found = self.recorder.findings
        return list(dict.fromkeys(Refusal(name_of(shape), one.function, one.line, one.message, CHECK) for one in found))

    def _record(self, inputs: Any, shape: Any) -> measure.Recorded:
        recorder, modes = self.recorder, ttnn.graph.RunMode
        with_dispatch = self._capture(modes.NORMAL, inputs, shape)
        without = self._capture(modes.NO_DISPATCH, inputs, shape)
        return measure.Recorded(
            calls=tuple(recorder.calls),
            operations=graph.operations(without),
            memory=graph.memory(with_dispatch, self.module.BOARD.dram_banks, self.module.BOARD.l1_limit),
            transfers=graph.transfers(without),
        )

    def _capture(self, mode: Any, inputs: Any, shape: Any) -> list[dict[str, Any]]:
        """The graph of the pass over its first layers, with the recorder in the library's place."""
        recorder = self.recorder
        weights = self._cut()
        if mode is ttnn.graph.RunMode.NO_DISPATCH:
            recorder.hold_outputs()
        recorder.reset()
        names = [name for name, value in vars(self.module).items() if value is ttnn]
        vars(self.module).update(dict.fromkeys(names, recorder.library))
        ttnn.graph.begin_graph_capture(mode)
        try:
            run_pass(self.module, inputs, weights, self.stores, shape, recorder.stage)
        finally:
            captured = ttnn.graph.end_graph_capture()
            recorder.release_outputs()
            vars(self.module).update(dict.fromkeys(names, ttnn))
        return captured

    def _cut(self) -> SimpleNamespace:
        """The weights of the layers that are recorded: a body takes no more of the stores than it has layers."""
        enter, layers = self.recorder.enter, slice(measure.recorded_layers(measure.kinds_of(self.module)))
        return SimpleNamespace(**{**vars(self.weights), "layers": Layered(self.weights.layers[layers], enter)})

    def _unchecked_by_the_library(self, inputs: Any, shape: Any, recorded: measure.Recorded) -> list[Refusal]:
        name, found = name_of(shape), self._findings(shape)
        for operation, lived in zip(recorded.operations, recorded.memory):
            message = silent.over_l1(operation.name, operation.buffer_bytes, lived.l1, self.sizes.l1_bank)
            if message:
                call = recorded.call_of(operation)
                found.append(Refusal(name, call.function if call else "", call.line if call else 0, message, CHECK))
        if any(one.place.stage == "body" for one in recorded.transfers):
            found += self._transfers_by_line(inputs, shape)
        return list(dict.fromkeys(found))

    def _transfers_by_line(self, inputs: Any, shape: Any) -> list[Refusal]:
        """The pass once more, followed line by line: a method of a tensor is no call that a recorder could see."""
        with self.recorder.followed():
            captured = self._capture(ttnn.graph.RunMode.NO_DISPATCH, inputs, shape)
        return [
            Refusal(name_of(shape), "body", one.place.line or 0, silent.transfer_in_trace(one.kind, one.name), CHECK)
            for one in graph.transfers(captured)
            if one.place.stage == "body"
        ]


def differences(stated: dict[str, Any], opened: dict[str, Any]) -> dict[str, list[Any]]:
    """What a module states of its board and the open device denies, each as [stated, opened]."""
    return {name: [stated[name], found] for name, found in opened.items() if stated[name] != found}


def check_module(device: Any, opened: dict[str, Any], path: str, source: str, say: Say) -> None:
    """Load a module, allocate all its weights and stores and run every pass of its table, at full width and depth.

    `say` is told what is being done before it is begun, every report and every refusal; memory that the module does
    not give back is one. Nothing runs on another board than the module's.
    """
    before = allocated_bytes(device)
    checked = _allocated(device, opened, path, source, say)
    if checked is None:
        return
    board = asdict(checked.module.BOARD)
    for shape in checked.module.TRACES:
        say({"doing": name_of(shape)})
        reported, refusals = checked.run(shape)
        say({"shape": reported})
        for one in refusals:
            say({"refusal": asdict(one)})
    del checked
    gc.collect()  # what a cycle of references holds is not lost
    held = allocated_bytes(device) - before
    if held:
        message = f"{held} bytes of DRAM stay allocated when weights, stores and results are gone"
        say({"refusal": asdict(Refusal("after the last pass", "", 0, message, CHECK))})
    say({"end": {"board": board}})


def _allocated(device: Any, opened: dict[str, Any], path: str, source: str, say: Say) -> Checked | None:
    """The module with its weights and stores; None where it ends here, which is then said."""
    stage = "import"
    try:
        say({"doing": stage})
        module = load(path, source)
        board = asdict(module.BOARD)
        different = differences({**board, "grid": list(board["grid"])}, opened)
        if different:
            say({"end": {"mismatch": different, "board": board}})
            return None
        stage = "allocation"
        say({"doing": stage})
        return Checked(device, path, module)
    except Exception as error:
        say({"refusal": asdict(refusal(stage, path, error))})
        say({"end": {}})
        return None

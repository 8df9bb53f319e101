"""Host values of a pass: pure functions of a plan, one builder for each name that a module's inputs may have, so that a
module asks for what its body reads and nothing else is uploaded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from runtime.errors import ModuleError
from runtime.pages import block_count, fill_table, read_table
from runtime.request import LOGITS, PrefillChunk, PrefillRequest, PreparedPrefill
from runtime.tables import RAGGED, TILE, Input, Shape, rotary_switch, window_reach


class HostValues:
    """The builders of one module's inputs. Every value is a tensor of the shape that the module states, of int32 unless said."""

    def __init__(self, module: ModuleType) -> None:
        self._block_size: int = module.BLOCK_SIZE
        self._context: int = module.CONTEXT
        self._rotary_switch: int | None = rotary_switch(module)
        self._window_reach: int = window_reach(module)
        self._row_slots: int = module.ROW_SLOTS
        self._inputs: dict[Shape, tuple[Input, ...]] = {
            shape: module.INPUTS[shape.variant](shape) for shape in module.TRACES
        }
        builders: dict[str, Callable[[PreparedPrefill, PrefillChunk], np.ndarray]] = {
            "tokens": self.tokens,
            "positions": self.positions,
            "fill_table": self.fill_table,
            "read_table": self.read_table,
            "start": self.start,
            "window_table": self.window_table,
            "window_start": self.window_start,
            "row_bounds": self.row_bounds,
            "last_rows": self.last_rows,
            "valid": self.valid,
            "tail_selection": self.tail_selection,
            "tail_picks": self.tail_picks,
        }
        unknown = {entry.name for inputs in self._inputs.values() for entry in inputs} - set(builders)
        if unknown:
            raise ModuleError(
                f"inputs that no value is known for: {', '.join(sorted(unknown))}; known: {', '.join(builders)}"
            )
        self._builders = builders

    def inputs(self, shape: Shape) -> tuple[Input, ...]:
        """The inputs of a pass in the module's order. ModuleError if the pass is another module's."""
        if shape not in self._inputs:
            raise ModuleError(f"{shape} is not a pass of this module; prepare and run with one Prefill")
        return self._inputs[shape]

    def value(self, entry: Input, prepared: PreparedPrefill, chunk: PrefillChunk) -> torch.Tensor:
        """The host value of one input, in the shape that the module states."""
        built = self._builders[entry.name](prepared, chunk)
        if built.shape != entry.shape:
            raise ModuleError(
                f"input {entry.name} of {chunk.shape} is {entry.shape} in the module and {built.shape} here"
            )
        return torch.from_numpy(built)

    def tokens(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Token ids [1, rows x tokens], rows back to back, 0 in the padding."""
        longest = min(chunk.shape.longest_row, chunk.stop - chunk.start)
        packed = np.zeros((1, chunk.shape.rows * chunk.shape.tokens), dtype=np.int32)
        for request, at in zip(prepared.requests, self.row_bounds(prepared, chunk)):
            first = chunk.start - request.begin
            real = request.tokens[first : first + longest]
            packed[0, at : at + len(real)] = real
        return packed

    def positions(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Rows of the rotary tables [1, rows x tokens]: absolute positions, plus CONTEXT in prompts past the switch.

        Only padding can lie past the last position that has a rotary row: clamped.
        """
        bounds = self.row_bounds(prepared, chunk)
        packed = np.arange(chunk.start, chunk.start + bounds[-1], dtype=np.int32)
        packed -= np.repeat(bounds[:-1], np.diff(bounds))
        np.minimum(packed, self._context - 1, out=packed)
        if self._rotary_switch is not None:
            for request, first, last in zip(prepared.requests, bounds, bounds[1:]):
                if request.length > self._rotary_switch:
                    packed[first:last] += self._context
        return packed.reshape(1, -1)

    def fill_table(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Where the cache write puts each block [1, fill_pages]."""
        bounds = self.row_bounds(prepared, chunk)
        return fill_table(prepared.requests, bounds, chunk.start, self._block_size, chunk.stop)

    def read_table(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Which blocks attention reads [rows, read_pages]."""
        return read_table(prepared.requests, chunk.shape.rows, chunk.shape.read_pages)

    def start(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """The first position of the chunk [1]."""
        return np.array([chunk.start], dtype=np.int32)

    def window_table(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Which blocks layers with a window read: [rows, pages of the window's reach and the chunk]."""
        width = self._width(chunk, "window_table")
        return read_table(prepared.requests, chunk.shape.rows, width, self._window_begin(chunk) // self._block_size)

    def window_start(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """The first position of the chunk, counted from where its window table begins [1]."""
        return np.array([chunk.start - self._window_begin(chunk)], dtype=np.int32)

    def _width(self, chunk: PrefillChunk, name: str) -> int:
        (width,) = [entry.shape[1] for entry in self._inputs[chunk.shape] if entry.name == name]
        return width

    def _window_begin(self, chunk: PrefillChunk) -> int:
        return max(0, chunk.start - self._window_reach)

    def row_bounds(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Where each padded row begins in the packed sequence, and the end [rows + 1]. Rows of a ragged pass take whole blocks;
        what none of them fills is a row by itself, or the end of the last where there are as many as can be.
        """
        shape = chunk.shape
        bounds = np.arange(shape.rows + 1, dtype=np.int32) * shape.tokens
        if shape.variant == RAGGED:
            blocks = [block_count(request.length, self._block_size) for request in prepared.requests]
            bounds[1:] = shape.rows * shape.tokens
            bounds[1 : len(blocks) + 1] = np.cumsum(blocks) * self._block_size
            bounds[-1] = shape.rows * shape.tokens
        return bounds

    def last_rows(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """Where each prompt's last token lies in the packed sequence [1, row slots], 0 for padding.

        A prompt that ends in a later chunk has no such row here; its entry is 0 and nothing reads it.
        """
        picked = np.zeros((1, self._row_slots), dtype=np.int32)
        for index, (request, first) in enumerate(zip(prepared.requests, self.row_bounds(prepared, chunk))):
            relative = request.length - 1 - chunk.start
            if relative < chunk.shape.longest_row:
                picked[0, index] = first + relative
        return picked

    def _real(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> list[int]:
        """Real tokens of each padded row in this pass, 0 in rows of padding."""
        counts = [chunk.real_tokens(request) for request in prepared.requests]
        return counts + [0] * (chunk.shape.rows - len(counts))

    def valid(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """1 where a token is real and 0 where it is padding [1, rows x tokens]."""
        counts = np.array(self._real(prepared, chunk))
        return (np.arange(chunk.shape.tokens) < counts[:, None]).astype(np.int32).reshape(1, -1)

    def tail_selection(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """[1, 1, 32, rows x tokens] in float32: 1 where a token of the packed sequence is one of the last of its row, as many as
        the convolution carries over, each in a line of its own; a line is 0 where that token came before the pass.
        """
        carried, places = self._tails(prepared, chunk)
        lines = np.flatnonzero(places >= 0)
        selected = np.zeros((1, 1, TILE, chunk.shape.rows * chunk.shape.tokens), dtype=np.float32)
        selected[0, 0, lines, lines // carried * chunk.shape.tokens + places[lines]] = 1
        return selected

    def tail_picks(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> np.ndarray:
        """What each row carries over after the pass, out of the tails before it, back to back, and behind them what
        `tail_selection` selects [1, carried x rows]: a row with fewer real tokens than it carries keeps some of its old tail.
        """
        carried, places = self._tails(prepared, chunk)
        own = np.arange(len(places))
        row_starts = own // carried * carried
        picked = np.where(places >= 0, len(places) + own, row_starts + carried + places)
        return picked.astype(np.int32).reshape(1, -1)

    def _tails(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> tuple[int, np.ndarray]:
        """Tokens that each row carries over, and their positions in the pass, below 0 where they came before it."""
        carried = self._width(chunk, "tail_picks") // chunk.shape.rows
        ends = np.array(self._real(prepared, chunk)).repeat(carried)
        return carried, ends + np.tile(np.arange(carried), chunk.shape.rows) - carried

    def blank(self, shape: Shape) -> tuple[PreparedPrefill, PrefillChunk]:
        """A plan of `shape` with one token, every position of which counts as cached, so that nothing is written."""
        nothing = np.zeros(1, dtype=np.int32)
        request = PrefillRequest(0, 0, nothing, 0, self._block_size, 1, nothing, True)
        chunk = PrefillChunk(shape, 0, 1)
        return PreparedPrefill((request,), (chunk,), LOGITS, True), chunk

"""The phases of an emitted module called one by one, on tensors made here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from runtime.backend import ttnn
from runtime.phases import Convolved, Projected, Recurred
from runtime.tables import Shape
from tests.support.hybrids import HybridBench
from tests.support.recurrence import Drawn, draw

# One geometry for each form of the recurrence, and one with experts.
PHASED = ("qwen3_5", "qwen3_next", "qwen3_5-more-heads-in-a-wave-than-cores", "qwen3_5-wide-values-tied")


def shape_of(bench: HybridBench, rows: int, tokens: int, chunked: bool = False) -> Shape:
    (found,) = [
        shape
        for shape in bench.module.TRACES
        if (shape.rows, shape.tokens, shape.read_pages > 0) == (rows, tokens, chunked)
    ]
    return found


def on_device(bench: HybridBench, values: Tensor, dtype: Any = None, layout: Any = None) -> Any:
    """By default bfloat16 in tiles, which the emulator's float32 mode does not round."""
    return ttnn.from_torch(
        values.contiguous(), dtype=dtype or ttnn.bfloat16, layout=layout or ttnn.TILE_LAYOUT, device=bench.device
    )


def back(tensor: Any) -> Tensor:
    return ttnn.to_torch(tensor).float()


def inputs_of(bench: HybridBench, shape: Shape, counts: Sequence[int]) -> SimpleNamespace:
    """Which tokens are real and where tails come from, for rows with so many real tokens each."""
    carried = bench.module.TAIL_TOKENS
    counts = [*counts, *[0] * (shape.rows - len(counts))]
    valid, picks = [], []
    selection = torch.zeros(1, 1, 32, shape.rows * shape.tokens)
    for row, count in enumerate(counts):
        valid += [1] * count + [0] * (shape.tokens - count)
        for index in range(carried):
            place = count + index - carried
            own = carried * row + index
            if place >= 0:
                selection[0, 0, own, row * shape.tokens + place] = 1
            picks.append(carried * shape.rows + own if place >= 0 else carried * row + count + index)
    made = {"valid": valid, "tail_picks": picks}
    return SimpleNamespace(
        tail_selection=on_device(bench, selection, layout=ttnn.ROW_MAJOR_LAYOUT),
        **{
            name: on_device(bench, torch.tensor([values]), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
            for name, values in made.items()
        },
    )


def delta_of(bench: HybridBench, shape: Shape, counts: Sequence[int] | None = None) -> Any:
    counts = [shape.tokens] * shape.rows if counts is None else counts
    return bench.module.delta_tables(inputs_of(bench, shape, counts), bench.weights)


def layer_of(bench: HybridBench, kind: str = "gated_delta_net") -> Any:
    return next(layer for layer in bench.weights.layers if layer.kind == kind)


def hidden_of(bench: HybridBench, values: Tensor) -> Any:
    """[tokens, hidden] -> what a layer takes."""
    return on_device(bench, values[None, None])


def convolved_of(bench: HybridBench, drawn: Drawn) -> Convolved:
    """What `convolve` would give: raw heads side by side, rates of all rows back to back."""
    rows = []
    for row in range(drawn.q.shape[0]):
        rows.append(tuple([on_device(bench, part[row].flatten(1)[None]) for part in (drawn.q, drawn.k, drawn.v)]))
    rates = [on_device(bench, part.flatten(0, 1)[None, None], ttnn.float32) for part in (drawn.g, drawn.beta)]
    return Convolved(tuple(rows), Projected(None, None, *rates))


def states_of(bench: HybridBench, drawn: Drawn) -> list[Any]:
    return [on_device(bench, state[None], ttnn.float32) for state in drawn.state]


def scanned(bench: HybridBench, drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Through the module's own phases: what the states gave [rows x value heads, tokens, value_dim], and the states after."""
    module, shape, layer = bench.module, shape_of(bench, drawn.q.shape[0], drawn.q.shape[1]), layer_of(bench)
    delta, states, given = delta_of(bench, shape), states_of(bench, drawn), convolved_of(bench, drawn)
    if hasattr(module, "normalise"):
        given = module.normalise(given, delta, layer, shape)
    recurred = module.recur(given, states, delta, layer, shape)
    assert type(recurred) is Recurred
    return back(recurred.given), torch.cat([back(state) for state in states])


def tails_of(bench: HybridBench, tails: torch.Tensor) -> list[Any]:
    return [on_device(bench, tail[None], layout=ttnn.ROW_MAJOR_LAYOUT) for tail in tails]


def drawn_of(bench: HybridBench, seed: int, rows: int, tokens: int) -> Drawn:
    net = bench.geometry.gated_delta_net
    sizes = {name: getattr(net, name) for name in ("key_heads", "value_heads", "key_dim", "value_dim")}
    return draw(seed, batch=rows, tokens=tokens, **sizes)


def arguments_of(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)

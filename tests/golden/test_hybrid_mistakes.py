"""The comparison of hybrid modules notices a mistake, made on purpose in the module, in its weights or in the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from runtime.backend import ttnn
from runtime.positions import ZERO
from runtime.reference.gated_delta_net import NAME
from runtime.states import States
from runtime.transforms import RULES, offset_vector, vector
from runtime.values import HostValues
from runtime.verify import FLOAT32_ERROR
from tests.support.hybrids import HybridBench, hybrid_bench

FAMILIES = ("qwen3_5", "qwen3_5-wide-values-tied")  # one of each form
WRONG = 20 * FLOAT32_ERROR


def battery(bench: HybridBench) -> dict[str, float]:
    """Largest relative errors over prompts by themselves, waves with padding, chunks and slices, each after other prompts."""
    bench.forget()
    worst: dict[str, float] = {}

    def note(errors: dict[str, float]) -> None:
        for name, error in errors.items():
            worst[name] = max(worst.get(name, 0.0), error)

    for seed, lengths in enumerate([[100], [33, 64, 50], [300, 290, 260]]):
        rows = bench.rows(lengths, seed)
        note(bench.errors(rows, bench.call(rows)))
    first, second = bench.rows([300, 280], seed=5)
    bench.call([first, second], ends=[128, 128], slots=[4, 5], final=False)
    note(bench.state_errors(4, first.tokens[:128]) | bench.state_errors(5, second.tokens[:128]))
    note(bench.errors([first, second], bench.call([first, second], starts=[128, 128], slots=[4, 5]), [4, 5]))
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_the_battery_passes_without_a_mistake(family):
    errors = battery(hybrid_bench(family))
    assert max(errors.values()) <= FLOAT32_ERROR, errors


# --- mistakes of the runtime and the module's functions ----------------------------------------------------------------


class Library:
    """The device library with some operations replaced."""

    def __init__(self, **operations: Any) -> None:
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return self._operations.get(name) or getattr(ttnn, name)


def wrap(module: ModuleType, name: str, around: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """`around` is called with the function and its arguments."""
    inner = getattr(module, name)
    return lambda patch: patch.setattr(module, name, lambda *given: around(inner, *given))


def exchanged(of_rows: Any, shape: Any) -> Any:
    """What belongs to the rows of a pass, in the wrong order."""
    return (*of_rows[: shape.rows][::-1], *of_rows[shape.rows :])


def all_valid(inner: Callable[..., Any], inputs: Any, weights: Any) -> Any:
    made = inner(inputs, weights)
    ones = torch.ones(tuple(made.valid.shape))
    valid = ttnn.from_torch(ones, dtype=made.valid.dtype, layout=made.valid.layout, device=made.valid.device())
    return replace(made, valid=valid)


def last_padded(self: HostValues, prepared: Any, chunk: Any) -> tuple[int, np.ndarray]:
    carried = self._width(chunk, "tail_picks") // chunk.shape.rows
    return carried, chunk.shape.tokens + np.tile(np.arange(carried), chunk.shape.rows) - carried


def tiled_heads(module: ModuleType) -> Callable[[pytest.MonkeyPatch], None]:
    """Value head h reads key head h modulo their number, not h // (value heads a key head)."""

    def repeated(query: Any, key: Any, *others: Any) -> Any:
        shared = module.VALUE_HEADS // module.KEY_HEADS
        return [ttnn.concat([part] * shared, dim=2) for part in (query, key)], others

    def around(inner: Callable[..., Any], *given: Any) -> Any:
        (query, key), others = repeated(*given)
        return inner(query, key, *others)

    if hasattr(module, "normalise"):
        library = Library(repeat_interleave=lambda heads, count, dim, **_: ttnn.concat([heads] * count, dim=dim))
        return lambda patch: patch.setattr(module, "ttnn", library)
    return wrap(module, "delta_rule", around)


def without(name: str, module: ModuleType) -> Callable[[pytest.MonkeyPatch], None]:
    """A multiplication that applies an activation to its second factor, or none, is not made."""

    def mul(left: Any, right: Any, **options: Any) -> Any:
        gates = (
            "input_tensor_b_activations" in options if name == "attention" else right.shape[-1] == module.VALUE_WIDTH
        )
        if gates:
            return ttnn.mul(left, 1.0, dtype=options["dtype"], memory_config=options["memory_config"])
        return ttnn.mul(left, right, **options)

    return lambda patch: patch.setattr(module, "ttnn", Library(mul=mul))


MISTAKES: dict[str, Callable[[ModuleType], Callable[[pytest.MonkeyPatch], None]]] = {
    "rows begin with what the row held": lambda module: lambda patch: patch.setattr(States, "load", lambda *_: None),
    "slices begin with zeros": lambda module: lambda patch: patch.setattr(
        States, "_load", lambda self, row, place, load=States._load: load(self, row, ZERO)
    ),
    "rows begin with another row's state": lambda module: lambda patch: patch.setattr(
        States, "_load", lambda self, row, place, load=States._load: load(self, row ^ 1, place)
    ),
    "states are not kept": lambda module: lambda patch: patch.setattr(States, "_store", lambda *_: None),
    "the tail alone is kept": lambda module: lambda patch: patch.setattr(
        States,
        "_copy",
        lambda self, one, other, copy=States._copy: copy(self, one, other) if len(one.shape) == 3 else None,
    ),
    "the state alone is kept": lambda module: lambda patch: patch.setattr(
        States,
        "_copy",
        lambda self, one, other, copy=States._copy: copy(self, one, other) if len(one.shape) == 4 else None,
    ),
    "padding is valid": lambda module: wrap(module, "delta_tables", all_valid),
    "tails out of the last padded rows": lambda module: lambda patch: patch.setattr(HostValues, "_tails", last_padded),
    "tails of other rows": lambda module: wrap(
        module,
        "convolve",
        lambda inner, projected, tails, delta, layer, inputs, shape: inner(
            projected, exchanged(tails, shape), delta, layer, inputs, shape
        ),
    ),
    "convolution behind no token": lambda module: wrap(
        module, "convolve_row", lambda inner, own, tail, delta, layer: inner(own, of_zeros(tail), delta, layer)
    ),
    "states of other rows": lambda module: wrap(
        module,
        "recur",
        lambda inner, given, states, delta, layer, shape: inner(given, exchanged(states, shape), delta, layer, shape),
    ),
    "key heads of other value heads": tiled_heads,
    "no gate of attention": lambda module: without("attention", module),
    "no gate of the recurrence": lambda module: without("recurrence", module),
}


def of_zeros(tensor: Any) -> Any:
    zeros = torch.zeros(tuple(tensor.shape))
    return ttnn.from_torch(zeros, dtype=tensor.dtype, layout=tensor.layout, device=tensor.device())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_the_comparison(monkeypatch, family, mistake):
    bench = hybrid_bench(family)
    MISTAKES[mistake](bench.module)(monkeypatch)
    errors = battery(bench)
    assert max(errors.values()) > WRONG, errors


# --- mistakes of the weights -------------------------------------------------------------------------------------------


def zeros(name: str) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    return changed(name, torch.zeros_like)


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., dict[str, torch.Tensor]]:
    """A tensor of every recurrent layer, changed."""

    def apply(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        ends = f"{NAME}.{name}"
        assert any(key.endswith(ends) for key in tensors)
        return {key: change(tensor) if key.endswith(ends) else tensor for key, tensor in tensors.items()}

    return apply


WEIGHTS = {
    "no bias of the decay": zeros("dt_bias"),
    "another rate of decay": zeros("A_log"),
    "taps in the other order": changed("conv1d.weight", lambda taps: taps.flip(-1)),
    "taps one token late": changed("conv1d.weight", lambda taps: taps.roll(1, -1)),
    "value norm as an offset": changed("norm.weight", lambda weight: 1 + weight),
    "update as decay": lambda tensors: {
        name.replace("in_proj_a", "in_proj_x")
        .replace("in_proj_b", "in_proj_a")
        .replace("in_proj_x", "in_proj_b"): tensor
        for name, tensor in tensors.items()
    },
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mistake", WEIGHTS)
def test_a_mistaken_weight_fails_the_comparison(family, mistake):
    bench = HybridBench(family)
    bench.load(WEIGHTS[mistake](dict(bench.peer.tensors)))
    errors = battery(bench)
    assert max(errors.values()) > WRONG, errors


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_without_their_offset_fail_the_comparison(monkeypatch, family):
    assert RULES["offset_norm"] is offset_vector
    monkeypatch.setitem(RULES, "offset_norm", vector)
    errors = battery(HybridBench(family))
    assert max(errors.values()) > WRONG, errors

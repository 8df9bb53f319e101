"""The generated calls on the emulator."""

from __future__ import annotations

from typing import Any

import torch

import runtime.emulator as emulator
from runtime.tables import Board
from tests.support.generated_arguments import CALLS
from tests.support.generated_cases import Operand, on_namespace, outcome

BOARDS = {
    "n150": Board("n150", "wormhole_b0", (8, 8), 12, 1072693184, 32, 1393312, 1499136),
    "p150": Board("p150", "blackhole", (11, 10), 8, 4277141376, 64, 1461120, 1572864),
}


def _fill(tensor: Any, operand: Operand) -> None:
    buffer = tensor.ownership.buffer
    values = torch.zeros(operand.volume, dtype=torch.float32 if buffer.spec.is_float else torch.int64)
    stated = torch.tensor(operand.values[: operand.volume])
    values[: len(stated)] = stated.to(values.dtype)
    buffer.values = values.reshape(operand.shape)


def emulated_outcomes(board: str) -> dict[str, str]:
    """What each generated call returns on an emulated board, by the call's name."""
    make = on_namespace(emulator, emulator.open_device(board=BOARDS[board]), _fill)
    return {name: outcome(emulator, call, make) for name, call in CALLS.items()}


def emulated_operations() -> set[str]:
    """The names, below the library's own, of all functions of the emulator that take or make tensors."""
    parts = {
        "": emulator,
        "experimental.": emulator.experimental,
        "experimental.deepseek_prefill.": emulator.experimental.deepseek_prefill,
        "experimental.kda.": emulator.experimental.kda,
        "transformer.": emulator.transformer,
    }
    return {
        f"{prefix}{name}"
        for prefix, namespace in parts.items()
        for name, item in vars(namespace).items()
        if callable(item)
        and not isinstance(item, type)
        and getattr(item, "__module__", "").startswith(("runtime.emulator.operations", "runtime.emulator.transfers"))
    }

"""What callers ask for as `sampling` -> the module's path and each row's own choice, as values of the device."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral, Real
from types import ModuleType
from typing import Any

import numpy as np
import torch

from runtime.backend import ttnn
from runtime.errors import InvalidSampling, RequestError, UnknownSampling
from runtime.request import ARGMAX, LOGITS, PATHS, TOP_K, PreparedPrefill, Sampling
from runtime.tables import Input

GREEDY = Sampling(temperature=0.0)
SMALLEST_BFLOAT16, LARGEST_BFLOAT16 = 2.0**-126, 3.3895313892515355e38
SEEDS = 2**32


def resolve(module: ModuleType, sampling: Any, rows: int) -> tuple[str, tuple[Sampling, ...]]:
    """The path that serves a call, and one choice for each row (none for logits).

    sampling: None or "logits"; "argmax"; "top_k" for the default choice; one Sampling for all rows, or one for each.
    Rows that all take their likeliest token run as argmax. Where only some do, all are drawn and those draw from one
    candidate. Raises UnknownSampling where the module lacks the path, InvalidSampling with the row otherwise.
    """
    if sampling is None or (isinstance(sampling, str) and sampling == LOGITS):
        return _served(module, LOGITS), ()
    if isinstance(sampling, str):
        path = _served(module, sampling)
        choices = (GREEDY if path == ARGMAX else Sampling(),) * rows
    else:
        choices = _choices(sampling, rows)
        path = ""
    limit = getattr(module, "TOP_K", 1)
    for row, choice in enumerate(choices):
        _check(row, choice, limit)
    return path or _served(module, ARGMAX if all([choice.greedy for choice in choices]) else TOP_K), choices


def _served(module: ModuleType, name: str) -> str:
    served = [path for path in PATHS if path in module.SAMPLING]
    if name not in served:
        raise UnknownSampling(f"sampling {name!r} is not served by this module; it serves {', '.join(served)}")
    return name


def _choices(sampling: Any, rows: int) -> tuple[Sampling, ...]:
    if isinstance(sampling, Sampling):
        return (sampling,) * rows
    if not isinstance(sampling, Iterable):
        raise RequestError(
            f"sampling is {type(sampling).__name__}; give None, a path's name, one Sampling, or one for each row"
        )
    given = tuple(sampling)
    if len(given) != rows:
        raise RequestError(f"sampling has {len(given)} entries for {rows} rows of tokens; give one for each row")
    for row, choice in enumerate(given):
        if not isinstance(choice, Sampling):
            raise InvalidSampling(
                row, f"its sampling is {choice!r}; give a Sampling, or ask for logits in another call"
            )
    return given


def _check(row: int, choice: Sampling, candidates: int) -> None:
    def refuse(name: str, rule: str) -> None:
        raise InvalidSampling(row, f"{name} is {getattr(choice, name)!r}; give {rule}")

    if not _is_number(choice.temperature) or choice.temperature < 0:
        refuse("temperature", "0 for the likeliest token, or a number above 0")
    if choice.temperature and not SMALLEST_BFLOAT16 <= 1 / float(choice.temperature) <= LARGEST_BFLOAT16:
        refuse("temperature", "one whose inverse bfloat16 holds, or 0")
    if choice.top_k is not None and not (_is_integer(choice.top_k) and 1 <= choice.top_k <= candidates):
        refuse("top_k", f"1 to {candidates}, or None for {candidates}")
    if not _is_number(choice.top_p) or not 0 < choice.top_p <= 1:
        refuse("top_p", "a number above 0 and up to 1")
    if choice.seed is not None and not (_is_integer(choice.seed) and 0 <= choice.seed < SEEDS):
        refuse("seed", f"0 to {SEEDS - 1}, or None")
    for name in ("presence", "frequency"):
        if not _is_number(getattr(choice, name)) or abs(getattr(choice, name)) > 2:
            refuse(name, "a number from -2 to 2")
    if not _is_number(choice.repetition) or choice.repetition <= 0:
        refuse("repetition", "a number above 0")
    if not isinstance(choice.log_probabilities, bool):
        refuse("log_probabilities", "True or False")


def _is_number(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def wants_log_probabilities(choices: tuple[Sampling, ...]) -> bool:
    return any([choice.log_probabilities for choice in choices])


def choice_values(choices: tuple[Sampling, ...], slots: int, candidates: int) -> dict[str, torch.Tensor]:
    """k, p and 1/T of each picked row, [slots] each. Padding rows, and rows that take their likeliest token, draw from
    one candidate at temperature 1.
    """
    top_k = np.ones(slots, dtype=np.int32)
    top_p = np.ones(slots, dtype=np.float32)
    inverse = np.ones(slots, dtype=np.float32)
    for index, choice in enumerate(choices):
        if not choice.greedy:
            top_k[index] = candidates if choice.top_k is None else choice.top_k
            top_p[index] = choice.top_p
            inverse[index] = 1 / choice.temperature
    return {
        "top_k": torch.from_numpy(top_k),
        "top_p": torch.from_numpy(top_p),
        "inverse_temperature": torch.from_numpy(inverse),
    }


def seed_inputs(slots: int) -> tuple[Input, ...]:
    """Seeds go to the device as a tensor: a seed that is a number would be compiled into a program of its own."""
    return (
        Input("seeds", (slots,), ttnn.uint32, "always"),
        Input("users", (slots,), ttnn.uint32, "never"),
    )


def seed_values(choices: tuple[Sampling, ...], slots: int) -> dict[str, torch.Tensor]:
    """A seed for each picked row, [slots]: its own, or a fresh one where it has none."""
    seeds = [secrets.randbelow(SEEDS) if choice.seed is None else int(choice.seed) for choice in choices]
    seeds += [0] * (slots - len(seeds))
    return {"seeds": torch.tensor(seeds), "users": torch.arange(slots)}


def is_seeded(choices: tuple[Sampling, ...]) -> bool:
    return any([choice.seed is not None for choice in choices])


def carry(
    plans: tuple[PreparedPrefill, ...],
    choices: tuple[Sampling, ...],
    tokens: np.ndarray,
    moves: tuple[tuple[int, int], ...],
) -> tuple[PreparedPrefill, ...]:
    """Plans with what belongs to their rows: choices (by row of the call), the history that penalties count, and the
    call's slot moves in the first plan alone.
    """
    carried = []
    for index, plan in enumerate(plans):
        its = tuple([choices[row] for row in plan.source_rows]) if choices else ()
        counted = history(plan, tokens) if any([choice.penalised for choice in its]) else None
        carried.append(replace(plan, choices=its, history=counted, slot_remap=() if index else moves))
    return tuple(carried)


def history(plan: PreparedPrefill, tokens: np.ndarray) -> np.ndarray:
    """The prompts of a plan's rows, a copy [rows, longest], -1 from each one's length on."""
    width = max([request.length for request in plan.requests])
    kept = np.array(tokens[list(plan.source_rows), :width], dtype=np.int32)
    for row, request in zip(kept, plan.requests):
        row[request.length :] = -1
    return kept

"""Whatever container a caller uses -> numpy matrices and plain integers. Nothing here knows what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np
import torch

from runtime.errors import RequestError


def array(values: Any, name: str) -> np.ndarray:
    """A list, tuple, numpy array or CPU tensor of integers as a numpy array, without a copy where there need be
    none.
    """
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            raise RequestError(f"{name} lies on {values.device}; give a CPU tensor")
        if values.layout != torch.strided or values.is_floating_point():
            raise RequestError(f"{name} holds {values.dtype} as {values.layout}, not integers in a strided tensor")
        found = values.detach().numpy()
    else:
        try:
            found = np.asarray(values)
        except ValueError as error:
            raise RequestError(f"{name} is ragged: every row needs the same width; pad the shorter ones") from error
    if found.dtype.kind not in "iu" and found.size:
        raise RequestError(f"{name} holds {found.dtype}, not integers")
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def matrix(values: Any, name: str) -> np.ndarray:
    """`array` of rank 2."""
    found = array(values, name)
    if found.ndim != 2:
        raise RequestError(f"{name} has rank {found.ndim} (shape {found.shape}), not 2: one row for each prompt")
    return found


def numbers(values: Any, name: str, rows: int) -> list[int]:
    """One integer for each of `rows` rows, from any container of rank 1."""
    if isinstance(values, (torch.Tensor, np.ndarray)):
        found = array(values, name)
        if found.ndim != 1:
            raise RequestError(
                f"{name} has rank {found.ndim} (shape {tuple(found.shape)}), not 1: one number for each row"
            )
        counted = found.tolist()
    else:
        counted = _from_iterable(values, name)
    if len(counted) != rows:
        raise RequestError(f"{name} has {len(counted)} entries for {rows} rows of tokens; give one for each row")
    return counted


def _from_iterable(values: Any, name: str) -> list[int]:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, dict, set, frozenset)):
        raise RequestError(f"{name} is {type(values).__name__}, not a sequence with one number for each row")
    counted = []
    for position, value in enumerate(values):
        if isinstance(value, bool):
            raise RequestError(f"{name}[{position}] is {value}, not an integer")
        try:
            counted.append(index(value))
        except TypeError as error:
            raise RequestError(f"{name}[{position}] is {value!r}, not an integer") from error
    return counted


def flags(value: Any, name: str, rows: int) -> list[bool]:
    """One bool for the whole call, or one for each row."""
    if isinstance(value, bool):
        return [value] * rows
    given = value.tolist() if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) else value
    given = list(given) if isinstance(given, Iterable) else [given] * rows
    if len(given) != rows or not all(isinstance(flag, bool) for flag in given):
        raise RequestError(f"{name} is {value!r}; give one bool, or one bool for each of {rows} rows")
    return given


def largest_unsigned(values: np.ndarray) -> int:
    """The largest entry when negative ones are read as huge: one pass tells whether all lie in [0, bound)."""
    return int(values.view(f"u{values.itemsize}").max(initial=0))

"""What a comparison with the library's numbers is, and how its inputs are drawn.

References get the values that the device holds (float32 tensors, rounded to their types where the device rounds), and return
torch tensors. A reference takes the library's golden function first, which is None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

TILE, ROW_MAJOR = "TILE_LAYOUT", "ROW_MAJOR_LAYOUT"
MOVED = 0.0  # values are moved, or searched: exact
ONE_STEP = 3e-7  # one float32 operation or function: two roundings apart at most
SUMMED = 2e-6  # float32 sums of up to a few hundred terms in another order, relative to the largest result
ATTENDED = 4e-6  # two such sums with an exponential between them


class Value(NamedTuple):
    values: torch.Tensor
    dtype: str = "bfloat16"
    layout: str = TILE


class Comparison(NamedTuple):
    """`call(t, **tensors)` on the emulator `t`; `reference(golden, **values)` in torch; each returns one tensor or several.

    `tolerance` is the largest difference in float32, relative to the largest value of the result, `board` one that has
    the operation.
    """

    operation: str
    inputs: dict[str, Value]
    call: Callable[..., Any]
    reference: Callable[..., Any]
    tolerance: float = MOVED
    board: str = "n150"


def drawn(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def distinct(seed: int, *shape: int) -> torch.Tensor:
    """Values of which no two in a row are equal, in bfloat16 too: powers of two times 1 and 1.5."""
    places = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    values = torch.pow(2.0, torch.div(places, 2, rounding_mode="floor") % 200 - 100) * (1 + places % 2 / 2)
    return torch.where(places < 400, values, -values)


def indices(seed: int, limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(seed))

"""Attention with explicit scores, for the soft cap that no attention operation takes: how its two matmuls are cut.

Every key-value head of every row is a matmul of its own over the whole grid: the queries of its group by its keys, and the
softmax of these scores by its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from generator.matmuls import Matmul, choose_matmul
from generator.tiles import tiles

if TYPE_CHECKING:
    from generator.targets import CoreRates


@dataclass(frozen=True)
class Scores:
    """`product` makes the scores, [group x tokens, tokens], `mixture` weighs the values, [group x tokens, head_dim]."""

    product: Matmul
    mixture: Matmul


@cache
def choose_scores(
    rates: CoreRates,
    tokens: int,
    group: int,
    head_dim: int,
    grid: tuple[int, int],
    l1_bytes: int,
    key_value_dtype: str,
    query_dtype: str,
) -> Scores:
    """The cheapest programs for one key-value head, which `group` query heads share, of a row of `tokens` tokens.

    Raises NoProgram where none fits `l1_bytes` on one core.
    """
    rows, depth, keys = group * tiles(tokens), tiles(head_dim), tiles(tokens)
    place = (grid, l1_bytes, key_value_dtype, "bfloat16")
    product = choose_matmul(rates, rows, depth, keys, *place, left_dtype=query_dtype)
    return Scores(product, choose_matmul(rates, rows, keys, depth, *place))

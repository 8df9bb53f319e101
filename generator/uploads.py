"""What the host copies to the device before a pass: the inputs that `templates/inputs.py.jinja` states, but those that never change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.geometry import RECURRENT
from generator.shapes import window_pages
from generator.tiles import TILE

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.shapes import PassShape

WORD_BYTES, HALF_BYTES = 4, 2  # of an integer, of a bfloat16


def upload_bytes(resolved: Resolved, shape: PassShape) -> tuple[int, ...]:
    """Bytes of each copy. One whose values are those of the pass before is left out at run time, and counted here."""
    return tuple(_copies(resolved, shape))


def upload_seconds(resolved: Resolved, shape: PassShape) -> float:
    """Modelled: each copy is one call of the host, and its bytes take the bus."""
    rates, copies = resolved.board.rates, upload_bytes(resolved, shape)
    return len(copies) * rates.upload_seconds + sum(copies) / rates.upload_bytes_per_second


def _copies(resolved: Resolved, shape: PassShape) -> Iterator[int]:
    tokens = shape.rows * shape.tokens
    yield from (WORD_BYTES * tokens, WORD_BYTES * tokens)  # tokens and positions
    yield WORD_BYTES * shape.fill_pages
    yield WORD_BYTES * TILE  # the last rows
    if resolved.gated_delta_net is not None:
        yield WORD_BYTES * tokens  # which are no padding
        yield HALF_BYTES * TILE * tokens  # which of them make the tail of a row
        yield WORD_BYTES * (resolved.gated_delta_net.kernel - 1) * shape.rows
    if shape.variant == "ragged":
        yield WORD_BYTES * (shape.rows + 1)  # where rows begin
    if not shape.read_pages:
        return
    kinds = set(resolved.kinds) - {RECURRENT}
    for kind, pages in (("full", shape.read_pages), ("sliding", window_pages(resolved, shape.tokens))):
        if kind in kinds:
            yield WORD_BYTES * shape.rows * pages
            yield WORD_BYTES  # where all rows start

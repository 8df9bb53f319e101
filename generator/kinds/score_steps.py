"""The operations of attention with explicit scores, in the order and with the frees of its template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.matmuls import ACCUMULATOR_TILE_BYTES, Matmul, matmul_bytes, program_cycles
from generator.scores import Scores
from generator.steps import Sizes, Step, Tensor
from generator.tiles import TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.shapes import PassShape

SOFTMAX_IN_PIECES = 864256  # bytes


def attend(
    resolved: Resolved,
    shape: PassShape,
    cut: Scores | None,
    size: Sizes,
    operands: tuple[Tensor, Tensor, Tensor],
    attended: Tensor,
) -> Iterator[Step]:
    """From the heads of a pass to what is attended. Without `cut`, only which tensors live is asked."""
    rows = operands
    if shape.rows > 1:
        rows = tuple(Tensor(f"{heads.name}_rows", heads.tiles, heads.dtype, "heads") for heads in operands)
        for heads, row in zip(operands, rows):
            yield Step("transpose", (heads,), (row,), buffer_bytes=2 * TILE_BYTES[heads.dtype], units=heads.tiles)
    query, key, value = rows
    heads = resolved.device_query_heads
    group = heads // resolved.device_key_value_heads
    count = shape.rows * heads * tiles(shape.tokens) ** 2
    scores, capped, masked, shares = (
        Tensor(name, count, size.activation) for name in ("scores", "capped", "masked", "shares")
    )
    mask_bytes = tiles(shape.tokens) ** 2 * TILE_BYTES[size.activation]
    items, tall, wide = shape.rows * resolved.device_key_value_heads, group * tiles(shape.tokens), tiles(shape.tokens)
    tile_bytes = TILE_BYTES[size.activation]

    def matmul(
        name: str, reads: tuple[Tensor, ...], made: Tensor, frees: tuple[Tensor, ...], inner: int, columns: int
    ) -> Step:
        program: Matmul | None = cut and getattr(cut, name)
        if program is None:
            return Step(name, reads, (made,), frees)
        cycles = items * program_cycles(resolved.board.rates.core, program, tall, inner, columns, size.cached)
        buffers = matmul_bytes(program, size.cached, made.dtype, None, reads[0].dtype)
        return Step(name, reads, (made,), frees, buffer_bytes=buffers, cycles=cycles)

    yield matmul("product", (query, key), scores, (), size.head, wide)
    yield Step("mul", (scores,), (capped,), (scores,), buffer_bytes=6 * tile_bytes, units=count)
    yield Step("add", (capped,), (masked,), (capped,), mask_bytes, 6 * tile_bytes, count)
    buffers = softmax_bytes(wide, resolved.board.l1_bank_bytes)
    yield Step("softmax", (masked,), (shares,), (masked,), buffer_bytes=buffers, units=count // wide)
    split = Tensor("mixed", attended.tiles, size.activation, "attended")
    yield matmul("mixture", (shares, value), split, (shares,), wide, size.head)
    yield Step(
        "nlp_concat_heads",
        (split,),
        (attended,),
        (split, *(rows if shape.rows > 1 else ()), *operands),
        buffer_bytes=2 * size.query * tile_bytes,
        units=size.rows * heads,
    )


def softmax_bytes(width_tiles: int, l1_bytes: int) -> int:
    """Buffers of softmax over bfloat16 rows of so many tiles: a row in blocks of up to four, in bfloat16 and in float32, beside eight
    tiles and two blocks; or, where these do not fit, as much as a row read in pieces takes.
    """
    block = min(width_tiles, 4)
    row = -(-width_tiles // block) * block
    whole = row * (TILE_BYTES["bfloat16"] + ACCUMULATOR_TILE_BYTES) + (8 + 2 * block) * TILE_BYTES["bfloat16"]
    return whole if whole <= l1_bytes else SOFTMAX_IN_PIECES

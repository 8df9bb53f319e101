"""What a tile is: the 32 x 32 square of elements that matrices are stored in on a device."""

from __future__ import annotations

TILE = 32
TILE_BYTES = {
    "float32": 4096,
    "bfloat16": 2048,
    "bfloat8_b": 1088,
    "bfloat4_b": 576,
}  # block floats: 64 bytes of exponents beside the mantissas


def tiles(elements: int) -> int:
    """Tiles that a side of so many elements takes."""
    return -(-elements // TILE)


def multiple_near(value: int, step: int, most: int | None = None) -> int:
    """The multiple of `step` closest to `value`, at least one step and at most `most`."""
    close = max(step, (value + step // 2) // step * step)
    return close if most is None or close <= most else max(step, most // step * step)

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

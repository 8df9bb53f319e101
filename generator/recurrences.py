"""How the recurrence of a gated delta net runs: as one operation of the library, or as plain matmuls."""

from __future__ import annotations

CHUNKS = {"operation": 32, "matmuls": 64}  # tokens at a time; the operation takes raw heads in no other
ALONE, WAVE, ROWS, MATMULS = "alone", "wave", "rows", "matmuls"  # what a module states of its passes, by their rows


def form(stated: str | None, key_dim: int, value_dim: int) -> str:
    """The operation unless the manifest says otherwise; it takes equal dims of keys and values only."""
    return stated or ("operation" if key_dim == value_dim else "matmuls")


def route(form: str, rows: int, value_heads: int, cores: int) -> str:
    """How the rows of a pass run: at once where the operation finds a core for every value head of every row, as its phased
    program demands; else one after another.
    """
    if form == "matmuls":
        return MATMULS
    if rows == 1:
        return ALONE
    return WAVE if rows * value_heads <= cores else ROWS

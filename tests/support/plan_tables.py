"""The tables of a module without its body: all that admission, planning and staging read."""

from __future__ import annotations

from types import SimpleNamespace

from runtime.tables import Input, Shape

LENGTHS = (128, 512, 1024)


def plan_tables(
    waves: dict[int, tuple[int, ...]] | None = None,
    chunk_rows: tuple[int, ...] = (1,),
    context: int = 4096,
    chunk: int = 1024,
    block: int = 32,
    blocks: int = 512,
    alignment: int = 128,
    vocabulary: int = 1000,
    lengths: tuple[int, ...] = LENGTHS,
) -> SimpleNamespace:
    """waves: length -> padded rows that have a packed pass. chunk_rows: padded rows that have a chunked one, of every
    length.
    """
    waves = waves or {128: (1, 2, 4, 8), 512: (1, 2, 4, 8), 1024: (1,)}
    packed = [
        Shape("single" if rows == 1 else "batched", rows, tokens, rows * tokens // block, 0, "last", f"{rows}x{tokens}")
        for tokens, sizes in waves.items()
        for rows in sizes
    ]
    reach = (context + chunk) // block
    chunked = [
        Shape("chunked", rows, tokens, rows * tokens // block, reach, "last", f"c{rows}x{tokens}")
        for tokens in lengths
        if tokens <= chunk
        for rows in chunk_rows
    ]
    return SimpleNamespace(
        __name__="tables",
        VOCABULARY=vocabulary,
        CONTEXT=context,
        BLOCK_SIZE=block,
        KEY_VALUE_BLOCKS=blocks,
        PREFILL_CHUNK=chunk,
        ALIGNMENT=alignment,
        ROW_SLOTS=64,
        LENGTHS=lengths,
        TRACES=(*packed, *chunked),
        INPUTS={"single": _packed, "batched": _batched, "chunked": _chunked},
    )


def _packed(shape: Shape) -> tuple[Input, ...]:
    width = shape.rows * shape.tokens
    return (
        Input("tokens", (1, width), None, "always"),
        Input("positions", (1, width), None, "always"),
        Input("fill_table", (1, shape.fill_pages), None, "always"),
        Input("last_rows", (1, 64), None, "changed"),
    )


def _batched(shape: Shape) -> tuple[Input, ...]:
    return (*_packed(shape), Input("row_bounds", (shape.rows + 1,), None, "never"))


def _chunked(shape: Shape) -> tuple[Input, ...]:
    return (
        *_packed(shape),
        Input("read_table", (shape.rows, shape.read_pages), None, "always"),
        Input("start", (1,), None, "always"),
    )

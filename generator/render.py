"""Fill the templates with the numbers of one resolved model: the last stage that knows a model, the first that makes code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from generator import kinds, programs
from generator.geometry import Resolved
from generator.shapes import SAMPLING, PassShape
from generator.source_map import mark
from generator.tiles import tiles

AFTER_LAYER: tuple[str, ...] = ()  # statements after each layer's output: capture, steering, deepstack


class _MarkedLoader(jinja2.BaseLoader):
    """Templates from one folder, each line marked with where it stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_source(self, environment: jinja2.Environment, template: str):
        path = self.folder / template
        if not path.is_file():
            raise jinja2.TemplateNotFound(template)
        return mark(template, path.read_text(encoding="utf-8")), str(path), lambda: True


@cache
def environment(folder: Path) -> jinja2.Environment:
    """Undefined names are errors; nothing is escaped, since every value is a number, a checked name or a literal."""
    built = jinja2.Environment(
        loader=_MarkedLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    built.filters["literal"] = repr
    return built


def because(resolved: Resolved, field: str) -> str:
    """The comment behind a constant: how it was derived, or the manifest key that states it."""
    return resolved.derivations.get(field) or resolved.keys[field]


def matmul_table(resolved: Resolved, shapes: tuple[PassShape, ...]) -> list[tuple[str, int, programs.Matmul]]:
    """One row for each matmul role and number of token tiles that a pass can have, then the head's.

    In a batch-invariant build all sizes of a role sum the inner dimension in the same blocks: the smallest that any of them
    would choose, which the others can take too.
    """
    board, output = resolved.board, resolved.dtypes.activation

    def choose(role: kinds.MatmulRole, token_tiles: int, inner_block: int | None) -> programs.Matmul:
        return programs.choose_matmul(
            token_tiles,
            tiles(role.inner),
            tiles(role.output),
            board.grid,
            board.l1_bank_bytes,
            role.weight_dtype,
            output,
            role.bias_dtype,
            inner_block,
        )

    table = []
    every_size = sorted({shape.token_tiles for shape in shapes})
    for role, sizes in [(r, every_size) for r in kinds.layer_matmuls(resolved)] + [(kinds.head_matmul(resolved), [1])]:
        fixed = min(choose(role, size, None).inner_block for size in sizes) if resolved.batch_invariant else None
        table += [(role.name, size, choose(role, size, fixed)) for size in sizes]
    return table


def attention_table(resolved: Resolved, shapes: tuple[PassShape, ...]) -> list[tuple[PassShape, programs.Attention]]:
    """How attention is cut in each pass; chunked passes also respect every legal start.

    In a batch-invariant build a wave is cut as one of its rows alone.
    """
    board = resolved.board
    return [
        (
            shape,
            programs.choose_attention(
                shape.tokens,
                1 if resolved.batch_invariant else shape.rows,
                resolved.device_query_heads,
                resolved.head_dim,
                board.grid,
                board.l1_bank_bytes,
                resolved.dtypes.key_value,
                resolved.attention_chunk if shape.read_pages else None,
            ),
        )
        for shape in shapes
    ]


def _fidelities(resolved: Resolved) -> list[tuple[str, str, str]]:
    dtypes = resolved.dtypes
    stored = [
        ("MATMUL", dtypes.weights, "weights"),
        ("HEAD", dtypes.head, "head"),
        ("ATTENTION", dtypes.key_value, "keys and values"),
    ]
    rows = [("NORM", "HiFi4", "a small part of a pass"), ("ROTARY", "HiFi4", "a small part of a pass")]
    return rows + [(role, programs.fidelity(dtype), f"{dtype} {what}") for role, dtype, what in stored]


def _shape_lines(shapes: tuple[PassShape, ...]) -> list[str]:
    """Lines of the docstring's table: for each variant, the rows of a pass and the lengths that run with as many."""
    rows: dict[tuple[str, int], list[int]] = {}
    for shape in shapes:
        rows.setdefault((shape.variant, shape.tokens), []).append(shape.rows)
    lengths: dict[tuple[str, str], list[int]] = {}
    for (variant, tokens), sizes in rows.items():
        lengths.setdefault((variant, " ".join(map(str, sizes))), []).append(tokens)
    return [f"{variant:<17}{sizes:<16}{' '.join(map(str, tokens))}" for (variant, sizes), tokens in lengths.items()]


def render(resolved: Resolved, shapes: tuple[PassShape, ...], manifest: str, templates: Path) -> str:
    """Python source with source-map markers, before the rewriting passes. `manifest` is the path shown in the header."""
    return (
        environment(templates)
        .get_template("module.py.jinja")
        .render(
            model=resolved,
            manifest=manifest,
            placement=resolved.placement.upper(),
            shapes=shapes,
            shape_lines=_shape_lines(shapes),
            sampling=SAMPLING,
            matmuls=matmul_table(resolved, shapes),
            attentions=attention_table(resolved, shapes),
            fidelities=_fidelities(resolved),
            model_weights=kinds.model_weights(resolved),
            layer_weights=kinds.layer_weights(resolved),
            parts=[part.__name__.rsplit(".", 1)[1] for part in kinds.LAYER_PARTS],
            after_layer=AFTER_LAYER,
            because=lambda field: because(resolved, field),
        )
    )

"""Fill the templates with the numbers of one resolved model: the last stage that knows a model, the first that makes code."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from generator import kinds, programs, rules, wrappers
from generator.geometry import RECURRENT, Resolved, Rope
from generator.kinds import experts
from generator.kinds.rows import LAYER, WeightRow, routed_tokens
from generator.matmuls import fidelity
from generator.pass_time import microseconds
from generator.placement import choose_programs
from generator.recurrences import UNIT_EPSILON, channel_chunk, fuses, products, route
from generator.shapes import SAMPLING, PassShape, window_pages
from generator.source_map import mark
from generator.steps import PLACES

MANY_WEIGHTS = 12  # of a layer: beyond, rows that leave out what all share keep the module short
FACTORS_OF_A_LINE = 5  # numbers of seventeen digits
KINDS_OF_A_LINE = 8
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


def _fidelities(resolved: Resolved) -> list[tuple[str, str, str]]:
    dtypes = resolved.dtypes
    stored = [
        ("MATMUL", dtypes.weights, "weights"),
        ("HEAD", dtypes.head, "head"),
        ("ATTENTION", dtypes.key_value, "keys and values"),
    ]
    rows = [("NORM", "HiFi4", "a small part of a pass"), ("ROTARY", "HiFi4", "a small part of a pass")]
    if resolved.experts is not None:
        rows.append(("ROUTING", "HiFi4", "whole numbers stay exact"))
    if resolved.gated_delta_net is not None:
        rows.append(("RATE", "HiFi4", "a small part of a pass"))
    return rows + [(role, fidelity(dtype), f"{dtype} {what}") for role, dtype, what in stored]


def _shape_lines(shapes: tuple[PassShape, ...]) -> list[str]:
    """Lines of the docstring's table: for each variant, the rows of a pass and the lengths that run with as many."""
    rows: dict[tuple[str, str], list[str]] = {}
    for shape in shapes:
        ragged = shape.variant == "ragged"
        tokens = f"{shape.rows * shape.tokens} together" if ragged else str(shape.tokens)
        rows.setdefault((shape.variant, tokens), []).append(f"up to {shape.rows}" if ragged else str(shape.rows))
    lengths: dict[tuple[str, str], list[str]] = {}
    for (variant, tokens), sizes in rows.items():
        lengths.setdefault((variant, " ".join(sizes)), []).append(tokens)
    return [
        f"{variant:<17}{sizes:<16}{' '.join(tokens).replace(' together ', ' ')}"
        for (variant, sizes), tokens in lengths.items()
    ]


GEOMETRY_OF_SOME = (  # what the torch reference is told beside the rest where a model has it
    "activation",
    "sliding_window",
    "full_attention_layers",
    "query_scale",
    "attention_soft_cap",
    "logit_soft_cap",
    "sandwich_norms",
    "unit_offset_norms",
    "scaled_embedding",
    "attention_sinks",
    "attention_output_bias",
    "attention_gate",
)
CONSTANTS_OF_SOME = ("sliding_window", "attention_soft_cap", "logit_soft_cap")


def _further_geometry(resolved: Resolved) -> list[str]:
    """Arguments of the emitted geometry that differ from what most models have."""
    stated = {name: getattr(resolved, name) for name in GEOMETRY_OF_SOME}
    return [
        f"{name}={name.upper() if name in CONSTANTS_OF_SOME else repr(value)},"
        for name, value in stated.items()
        if value and value != "silu"
    ]


def _runs_of_kinds(resolved: Resolved) -> list[str]:
    """The kind of each layer, in lines as long as the pattern that repeats, or of a few where none does."""
    kinds = resolved.layer_kinds
    repeats = [size for size in range(1, KINDS_OF_A_LINE) if kinds == (kinds[:size] * len(kinds))[: len(kinds)]]
    pieces = _cut(kinds, repeats[0] if repeats else KINDS_OF_A_LINE)
    return ["".join(f'"{kind}", ' for kind in piece).rstrip() for piece in pieces]


def _layer_weights(resolved: Resolved) -> tuple[tuple[WeightRow, ...], str]:
    """The weights of a layer; where they are many, with the names within it, and what those begin with in a checkpoint."""
    rows = wrappers.published(resolved.wrapper, kinds.layer_weights(resolved))
    prefix = rows[0].sources[0].partition(LAYER)[0] + LAYER
    begins = all(source.startswith(prefix) for row in rows for source in (*row.sources, *row.otherwise))
    whole = resolved.gated_delta_net is None and any(row.otherwise or row.parts > 1 for row in rows)
    if len(rows) <= MANY_WEIGHTS or not begins or whole:
        return rows, ""

    def within(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([source.removeprefix(prefix) for source in sources])

    return tuple([replace(row, sources=within(row.sources), otherwise=within(row.otherwise)) for row in rows]), prefix


def _experts(resolved: Resolved) -> dict[str, Any]:
    """What the parts of the templates that are about experts read; nothing for a dense model."""
    if resolved.experts is None:
        return {}
    return {
        "experts": resolved.experts,
        "expert_cut": experts.cut(resolved),
        "expert_fidelity": fidelity(resolved.dtypes.experts),
        "most_tokens": routed_tokens(resolved),
    }


def _recurrence(resolved: Resolved, shapes: tuple[PassShape, ...]) -> dict[str, Any]:
    """What the parts of the templates about recurrent layers read; nothing for a model without them."""
    net = resolved.gated_delta_net
    if net is None:
        return {}
    rows = sorted({shape.rows for shape in shapes})
    return {
        "recurrence": {
            count: route(net.form, count, net.value_heads, net.value_dim, resolved.board.cores) for count in rows
        },
        "fused_rule": fuses(net.value_heads, net.value_dim, resolved.board.cores),
        "products": products(net.chunk, net.key_dim, net.value_dim),
        "unit_epsilon": UNIT_EPSILON / net.key_dim,
        "channel_chunk": channel_chunk(net.convolution_width),
    }


def _rope_numbers(rope: Rope) -> list[tuple[str, str]]:
    """What the kind of rotary embedding states beside its base; lists are constants of their own."""
    numbers = {key: getattr(rope, key) for key in rules.ROPE_KEYS[rope.kind]}
    return [(key, key.upper() if isinstance(value, tuple) else repr(value)) for key, value in numbers.items()]


def _factor_lists(resolved: Resolved) -> list[tuple[str, list[str]]]:
    """Lists of the rotary embedding by the names of their constants, in lines of a few numbers each."""
    lists = [("SHORT_FACTORS", resolved.rope.short_factors), ("LONG_FACTORS", resolved.rope.long_factors)]
    return [
        (name, ["".join(f"{number!r}, " for number in part).rstrip() for part in _cut(numbers, FACTORS_OF_A_LINE)])
        for name, numbers in lists
        if numbers
    ]


def _cut(values: tuple[Any, ...], size: int) -> list[tuple[Any, ...]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def render(resolved: Resolved, shapes: tuple[PassShape, ...], manifest: str, templates: Path) -> str:
    """Python source with source-map markers, before the rewriting passes. `manifest` is the path shown in the header."""
    layer_weights, layer_prefix = _layer_weights(resolved)
    chosen = choose_programs(resolved, shapes)
    attention_kinds = tuple([kind for kind in resolved.kinds if kind != RECURRENT])
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
            programs=chosen,
            microseconds=microseconds(resolved, chosen, shapes),
            roles_of_places=PLACES,
            fidelities=_fidelities(resolved),
            rope_numbers=_rope_numbers,
            further_geometry=_further_geometry(resolved),
            kinds=resolved.kinds,
            two_kinds=len(resolved.kinds) > 1,
            attention_kinds=attention_kinds,
            two_attentions=len(attention_kinds) > 1,
            packed_kinds=[kind for kind in attention_kinds if programs.packs_rows(resolved, kind)],
            runs_of_kinds=_runs_of_kinds(resolved),
            window_pages={tokens: window_pages(resolved, tokens) for tokens in resolved.lengths},
            factor_lists=_factor_lists(resolved),
            fuses_gate_up=programs.fuses_gate_up(resolved),
            fuses_residual=programs.fuses_residual(resolved),
            norms_in_blocks=programs.norms_in_blocks(resolved),
            heads_dtype=programs.heads_dtype(resolved),
            **_experts(resolved),
            **_recurrence(resolved, shapes),
            any_otherwise=any(row.otherwise for row in layer_weights),
            any_parts=any(row.parts > 1 for row in layer_weights),
            model_weights=wrappers.published(resolved.wrapper, kinds.model_weights(resolved)),
            layer_weights=layer_weights,
            layer_prefix=layer_prefix,
            parts=[part.__name__.rsplit(".", 1)[1] for part in kinds.parts(resolved)],
            after_layer=AFTER_LAYER,
            because=lambda field: because(resolved, field),
        )
    )

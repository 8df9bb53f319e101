"""The rotary embedding of a configuration, in both forms: rope_theta with rope_scaling, and rope_parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from generator.errors import did_you_mean, shown
from generator.importing.config_class import ConfigClass
from generator.importing.fields import Entry, Fields
from generator.importing.refused import FULL, SLIDING
from generator.schema import dotted

OLD, NEW = "rope_scaling", "rope_parameters"
ORIGINAL = "original_max_position_embeddings"
SECTIONS = ("mrope_section", "mrope_interleaved")  # pairs that turn by time, row and column of an image
ALWAYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}

Entries = dict[str, Entry]


def read_rope(
    fields: Fields, kind_of: ConfigClass, head_dim: int, maximum_context: int, layer_type: str = FULL
) -> tuple[Entries, Entry | None]:
    """The entries of [model.rope], and the rotary dimensions where they are fewer than `head_dim`.

    For the layer type SLIDING, those of [model.local_rope]. What is wrong is left in `fields`.
    """
    table = _table(fields, kind_of, layer_type)
    if table is None:
        return {}, None
    rope_type = _kind(fields, table, kind_of)
    reader = READERS.get(rope_type.value)
    if reader is None:
        table.refuse(
            _kind_key(table), "no rotary embedding of this kind is built", did_you_mean(rope_type.value, READERS)
        )
        return {}, None
    read, keys = reader
    always = (*ALWAYS, *SECTIONS) if kind_of.sections else ALWAYS
    _check_sections(table, kind_of)
    for key in table.data:
        if key not in (*always, *keys) and table.data[key] is not None:
            rule = f'changes nothing that is known of kind "{rope_type.value}"'
            table.refuse(key, rule, did_you_mean(key, (*always, *keys), list_all=False))
    rotary = _rotary_dimensions(fields, table, kind_of, head_dim)
    theta = "rope_local_base_freq" if layer_type == SLIDING else "rope_theta"
    entries = {"kind": rope_type, "theta": _theta(fields, table, theta)}
    entries |= read(_Context(fields, table, rotary.value, maximum_context))
    return entries, rotary if rotary.value != head_dim else None


def _check_sections(table: Fields, kind_of: ConfigClass) -> None:
    """A token of text has one position, which is its time, its row and its column: however the pairs are divided, they turn as
    if they were not. So only the form of the keys is checked.
    """
    if not kind_of.sections:
        return
    sections, interleaved = (table.raw(name) for name in SECTIONS)
    if sections is not None and not (
        isinstance(sections, list) and all(type(one) is int and one >= 0 for one in sections)
    ):
        table.refuse("mrope_section", "must be a list of numbers of pairs", "for example [11, 11, 10]")
    if interleaved is not None and type(interleaved) is not bool:
        table.refuse("mrope_interleaved", "must be true or false", "it changes nothing of text")


def _table(fields: Fields, kind_of: ConfigClass, layer_type: str) -> Fields | None:
    """The object that describes the embedding of a layer type; an empty one where there is none."""
    given = {name: fields.raw(name) for name in (OLD, NEW)}
    for name, value in given.items():
        if value is not None and not isinstance(value, dict):
            fields.refuse(name, "must be an object or null", "write null for the plain embedding")
            return None
    if given[OLD] and given[NEW] and given[OLD] != given[NEW]:
        fields.refuse(OLD, f"contradicts {NEW}, which differs", "keep one of the two")
        return None
    name = NEW if given[NEW] else OLD
    table = given[name] or {}
    if not table and kind_of.rope:
        return fields.inside(f"default of {kind_of.name}", data=kind_of.rope, defaults={})
    if not any(isinstance(value, dict) for value in table.values()):
        if kind_of.local_rope and name == NEW and table:
            fields.refuse(name, "must hold an object for each layer type", f"one of them {FULL}, one {SLIDING}")
        if layer_type == SLIDING:  # rope_scaling is for the others
            return fields.inside(name, SLIDING, data={}, defaults={})
        return fields.inside(name, data=table, defaults={})
    nested = table.get(layer_type)
    outer = fields.inside(name, data=table, defaults={})
    for key, value in table.items():
        if not (isinstance(value, dict) or value is None):
            outer.refuse(key, "stands beside objects for layer types", "move it into each of them")
    if nested is None and kind_of.local_rope:
        nested = {}
    if not isinstance(nested, dict):
        outer.refuse(layer_type, "is missing, and the model has layers of this type", f"add it to {name}")
        return None
    return fields.inside(name, layer_type, data=nested, defaults={})


def _kind_key(table: Fields) -> str:
    return "rope_type" if table.data.get("rope_type") is not None else "type"


def _kind(fields: Fields, table: Fields, kind_of: ConfigClass) -> Entry:
    """The kind by our name; transformers takes rope_type before type."""
    new, old = table.raw("rope_type"), table.raw("type")
    key = _kind_key(table)
    if new is not None and old is not None and new != old:
        table.refuse("type", f"contradicts rope_type {shown(new)}", "keep one of the two")
    given = new if new is not None else old
    if given is None:
        return Entry("default", table.key("rope_type"), f"{_unsaid(fields, table)}: the plain embedding")
    if not isinstance(given, str):
        table.refuse(key, "must be a string", f"known: {', '.join(sorted(READERS))}")
        return Entry("default", table.key(key), "")
    taken = kind_of.rope_names.get(given, given)
    renamed = f" = {shown(given)}, which {kind_of.name} takes for {taken}" if taken != given else ""
    return Entry(taken, table.key(key), f"{dotted(table.key(key))}{renamed}")


def _unsaid(fields: Fields, table: Fields) -> str:
    if table.data:
        return f"{table.lacking('rope_type')}, {table.lacking('type')}"
    if table.at[-1] == SLIDING:
        return f"{dotted(table.at)} absent"
    return ", ".join(f"{fields.lacking(name)}{' or empty' if name in fields.data else ''}" for name in (OLD, NEW))


def _theta(fields: Fields, table: Fields, name: str) -> Entry:
    """The base: in the table, else in the configuration under a name of the layer type."""
    if table.data.get("rope_theta") is None:
        table.raw("rope_theta")
        return fields.number(name)
    theta = table.number("rope_theta")
    outer = fields.raw(name)
    if outer is not None and theta.value is not None and outer != theta.value:
        fields.refuse(name, f"contradicts {dotted(theta.key)} {theta.value:g}", "keep one of the two")
    return theta


def _rotary_dimensions(fields: Fields, table: Fields, kind_of: ConfigClass, head_dim: int) -> Entry:
    places = [one for one in (table, fields) if one.raw("partial_rotary_factor") is not None]
    whole = Entry(head_dim, table.key("partial_rotary_factor"), "")
    if not places and kind_of.rotary_share < 1:
        note = f"partial_rotary_factor absent: {kind_of.rotary_share:g}, as {kind_of.name} has it, x {head_dim}"
        return Entry(int(head_dim * kind_of.rotary_share), whole.key, note)
    if not places:
        return whole
    factor = places[0].number("partial_rotary_factor")
    if factor.value is None:
        return whole
    if len(places) == 2 and fields.data["partial_rotary_factor"] != factor.value:
        fields.refuse(
            "partial_rotary_factor", f"contradicts {dotted(factor.key)} {factor.value:g}", "keep one of the two"
        )
    if not 0 < factor.value <= 1:
        places[0].refuse("partial_rotary_factor", "must be over 0 and at most 1", "it is the turned part of each head")
        return whole
    if factor.value < 1 and not kind_of.partial_rotary:
        rule = f"the published code of {kind_of.architecture} turns whole heads"
        places[0].refuse("partial_rotary_factor", rule, "only 1 is supported")
        return whole
    dimensions = int(head_dim * factor.value)
    if dimensions < 2 or dimensions % 2:
        rule = f"makes {dimensions} of {head_dim} dimensions, which must be even and at least 2"
        places[0].refuse("partial_rotary_factor", rule, "correct it")
        return whole
    return Entry(dimensions, factor.key, f"{dotted(factor.key)} {factor.value:g} x {head_dim}")


class _Context:
    """What the readers of the kinds share: where to read, and the sizes that factors follow from."""

    def __init__(self, fields: Fields, table: Fields, dimensions: int, maximum_context: int) -> None:
        self.fields, self.table = fields, table
        self.dimensions, self.maximum_context = dimensions, maximum_context

    def positive(self, name: str) -> Entry:
        entry = self.table.number(name)
        if entry.value is not None and entry.value <= 0:
            self.table.refuse(name, "must be over 0", "correct it")
            return Entry(1.0, entry.key, "")
        return Entry(1.0, entry.key, "") if entry.value is None else entry

    def original(self) -> Entry:
        """The context before scaling: beside the embedding's table, else in it, else the maximum itself."""
        outer = self.fields.raw(ORIGINAL) is not None or ORIGINAL in self.fields.defaults
        if not outer and self.table.raw(ORIGINAL) is None:
            note = f"{self.table.lacking(ORIGINAL)}: max_position_embeddings"
            return Entry(max(self.maximum_context, 2), self.table.key(ORIGINAL), note)  # 1 is refused elsewhere
        entry = (self.fields if outer else self.table).integer(ORIGINAL)
        inner = self.table.raw(ORIGINAL)
        if outer and inner is not None and inner != entry.value:
            self.table.refuse(
                ORIGINAL, f"contradicts {dotted(entry.key)}: {entry.value} ({entry.note})", "make them equal"
            )
        if entry.value is None:
            return Entry(2, entry.key, "")
        if entry.value < 2:
            (self.fields if outer else self.table).refuse(ORIGINAL, "must be at least 2", "correct it")
        return Entry(max(entry.value, 2), entry.key, entry.note)

    def ratio(self, original: Entry) -> Entry:
        """factor, or what a null one stands for."""
        if self.table.raw("factor") is not None:
            return self.positive("factor")
        value = self.maximum_context / original.value
        note = f"{self.table.lacking('factor')}: {self.maximum_context} maximum / {original.value} original context"
        return Entry(value, self.table.key("factor"), note)

    def attention_factor(self, rule: Callable[[], tuple[float, str]]) -> Entry:
        if self.table.raw("attention_factor") is not None:
            return self.positive("attention_factor")
        value, note = rule()
        return Entry(value, self.table.key("attention_factor"), f"{self.table.lacking('attention_factor')}: {note}")

    def factors(self, name: str) -> Entry:
        given, length = self.table.raw(name), self.dimensions // 2
        entry = Entry([], self.table.key(name), dotted(self.table.key(name)))
        if name not in self.table.data:
            self.table.refuse(name, "is missing", "kind longrope needs it")
        elif not isinstance(given, list) or not all(type(one) in (int, float) for one in given):
            self.table.refuse(name, "must be a list of numbers", f"{length} of them")
        elif len(given) != length:
            rule = f"has {len(given)} factors, not the {length} of {self.dimensions} rotary dimensions / 2"
            self.table.refuse(name, rule, "correct the list or the head width")
        elif bad := [index for index, one in enumerate(given) if one <= 0]:
            self.table.refuse_element(name, bad[0], given[bad[0]], "must be over 0", "correct it")
        else:
            return Entry([float(one) for one in given], entry.key, entry.note)
        return entry


def _default(context: _Context) -> Entries:
    return {}


def _linear(context: _Context) -> Entries:
    return {"factor": context.positive("factor")}


def _llama3(context: _Context) -> Entries:
    return {
        "factor": context.positive("factor"),
        "low_frequency_factor": context.positive("low_freq_factor"),
        "high_frequency_factor": context.positive("high_freq_factor"),
        "original_context": context.original(),
    }


def _yarn(context: _Context) -> Entries:
    original, table = context.original(), context.table
    factor = context.ratio(original) if "factor" in table.data else context.positive("factor")
    scales = {name: table.number(name, null=True).value for name in ("mscale", "mscale_all_dim") if name in table.data}

    def magnitude(scale: float) -> float:
        return 0.1 * scale * math.log(factor.value) + 1.0 if factor.value > 1 else 1.0

    def inferred() -> tuple[float, str]:
        mscale, all_dim = scales.get("mscale"), scales.get("mscale_all_dim")
        if mscale and all_dim and mscale > 0 and all_dim > 0:
            value = magnitude(mscale) / magnitude(all_dim)
            return value, f"(0.1 {mscale:g} ln {factor.value:g} + 1) / (0.1 {all_dim:g} ln {factor.value:g} + 1)"
        return magnitude(1.0), f"0.1 ln {factor.value:g} + 1"

    for name, value in scales.items():
        if value is not None and value < 0:
            table.refuse(name, "must be at least 0", "correct it")
    truncate = table.raw("truncate")
    if truncate is not None and type(truncate) is not bool:
        table.refuse("truncate", "must be true or false", "leave it out for true")
    truncate_note = f"{table.lacking('truncate')}: true" if truncate is None else dotted(table.key("truncate"))
    return {
        "factor": factor,
        "original_context": original,
        **{name: _beta(context, name) for name in BETAS},
        "truncate": Entry(truncate is not False, table.key("truncate"), truncate_note),
        "attention_factor": context.attention_factor(inferred),
    }


def _beta(context: _Context, name: str) -> Entry:
    given = context.table.raw(name)
    if given is None or (given == 0 and given is not False):
        how = context.table.lacking(name) if given is None else f"{name} = 0"
        return Entry(BETAS[name], context.table.key(name), f"{how}: {BETAS[name]:g}")
    return context.positive(name)


def _longrope(context: _Context) -> Entries:
    original = context.original()
    factor = context.ratio(original).value

    def inferred() -> tuple[float, str]:
        if factor <= 1:
            return 1.0, f"1, as factor {factor:g} is not over 1"
        value = math.sqrt(1 + math.log(factor) / math.log(original.value))
        return value, f"sqrt(1 + ln {factor:g} / ln {original.value})"

    return {
        "original_context": original,
        "attention_factor": context.attention_factor(inferred),
        "short_factors": context.factors("short_factor"),
        "long_factors": context.factors("long_factor"),
    }


Reader = tuple[Callable[[_Context], Entries], tuple[str, ...]]
READERS: Mapping[Any, Reader] = {
    "default": (_default, ()),
    "linear": (_linear, ("factor",)),
    "llama3": (_llama3, ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL)),
    "yarn": (
        _yarn,
        ("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": (_longrope, ("factor", ORIGINAL, "attention_factor", "short_factor", "long_factor")),
}

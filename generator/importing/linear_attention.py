"""Layers of linear attention of a configuration: which they are, and the sizes of their heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from generator.errors import did_you_mean
from generator.importing.config_class import ConfigClass
from generator.importing.fields import Entry, Fields
from generator.importing.refused import FULL, LAYER_TYPES, LINEAR, asks_for
from generator.schema import dotted

INTERVAL, TYPES = "full_attention_interval", "layer_types"
KINDS = {LINEAR: "gated_delta_net", FULL: "full"}  # what a manifest calls them
SIZES = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_dim": "linear_key_head_dim",
    "value_dim": "linear_value_head_dim",
    "kernel": "linear_conv_kernel_dim",
}


def read_sizes(fields: Fields, kind_of: ConfigClass) -> Mapping[str, Entry]:
    """The [model.gated_delta_net] table; empty for a class without such layers."""
    if not kind_of.linear_attention:
        return {}
    for name, values in kind_of.stated.items():
        given = fields.raw(name)
        if name in fields.data and not any(type(given) is type(one) and given == one for one in values):
            words = " or ".join(str(one).lower() if isinstance(one, bool) else f'"{one}"' for one in values)
            fields.refuse(name, f"must be {words}: no other {kind_of.name} models are built", f"write {words}")
    return {ours: fields.integer(theirs) for ours, theirs in SIZES.items()}


def read_kinds(fields: Fields, kind_of: ConfigClass, layers: int) -> tuple[dict[str, Entry], str]:
    """layer_kinds as a manifest states it, the shortest pattern that repeats over the layers; and in words who sees what."""
    every = _interval(fields, kind_of)
    if every.value is None:
        return {}, ""
    by_interval = [FULL if (index + 1) % every.value == 0 else LINEAR for index in range(layers)]
    types, how = by_interval, f"1 layer in {every.value} is full attention ({every.note})"
    if fields.raw(TYPES) is not None:
        types, how = _listed(fields, layers), dotted(fields.key(TYPES))
        if types is not None and INTERVAL in fields.data and types != by_interval:
            index = next(index for index in range(layers) if types[index] != by_interval[index])
            rule = f"contradicts {dotted(every.key)} {every.value}"
            fields.refuse_element(TYPES, index, types[index], rule, "keep one of the two, or make them agree")
    if types is None:
        return {}, ""
    key = TYPES if fields.raw(TYPES) is not None else INTERVAL
    for one in (LINEAR, FULL):
        if one not in types and not fields.problems:
            fields.refuse(key, f"makes no layer of {layers} {one}", "models of both kinds of layers are built")
    pattern = [KINDS[one] for one in shortest_pattern(types)]
    full = types.count(FULL)
    seen = (
        f"{full} of {layers} layers see all tokens before each, the others are linear attention with a recurrent state"
    )
    return {"layer_kinds": Entry(pattern, fields.key(key), f"{how}; repeats over the layers")}, seen


def shortest_pattern(types: Sequence[str]) -> Sequence[str]:
    """The shortest beginning that, repeated whole, gives all."""
    lengths = (length for length in range(1, len(types) + 1) if len(types) % length == 0)
    return next(types[:length] for length in lengths if list(types[:length]) * (len(types) // length) == list(types))


def _interval(fields: Fields, kind_of: ConfigClass) -> Entry:
    """Of so many layers the last is full attention; None where the value is refused."""
    if fields.raw(INTERVAL) is None:
        note = f"{fields.lacking(INTERVAL)}: {kind_of.every}, as {kind_of.name} has it"
        return Entry(kind_of.every, fields.key(INTERVAL), note)
    every = fields.integer(INTERVAL)
    if every.value is not None and every.value < 1:
        fields.refuse(INTERVAL, "must be at least 1", "of so many layers the last is full attention")
        return Entry(None, every.key, "")
    return every


def _listed(fields: Fields, layers: int) -> list[str] | None:
    """The per-layer list, where it names known types and is as long as there are layers."""
    given = fields.raw(TYPES)
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        fields.refuse(TYPES, "must be a list of strings", f"one of {', '.join(KINDS)} for each layer")
        return None
    if len(given) != layers:
        rule = f"has {len(given)} entries for {layers} layers (num_hidden_layers)"
        fields.refuse(TYPES, rule, "correct the list or the number of layers")
        return None
    unknown = [one for one in dict.fromkeys(given) if one not in KINDS]
    for one in unknown:
        words = LAYER_TYPES.get(one)
        rule = asks_for(words, fields.owner) if words else "is no layer type that is known"
        fields.refuse_element(TYPES, given.index(one), one, rule, did_you_mean(one, KINDS))
    return None if unknown else given

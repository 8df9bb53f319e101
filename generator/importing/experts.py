"""The experts of a configuration: how many there are, how many see a token, how wide they are, and how they are weighed."""

from __future__ import annotations

from collections.abc import Mapping

from generator import unsupported
from generator.importing.config_class import ConfigClass
from generator.importing.fields import Entry, Fields

ALWAYS = "the published code of {} always divides by the sum of the chosen"


def read_experts(fields: Fields, kind_of: ConfigClass) -> Mapping[str, Entry]:
    """The [model.experts] table; empty for a dense class. Layers without experts are refused."""
    keys = kind_of.experts
    if keys is None:
        return {}
    if keys.some_layers:
        _check_every_layer(fields)
    renormalise = (
        fields.boolean(keys.renormalise)
        if keys.renormalise
        else Entry(True, fields.key("model_type"), ALWAYS.format(kind_of.name))
    )
    per_token = fields.integer("num_experts_per_tok")
    for name in keys.also:
        given = fields.raw(name)
        if given not in (None, per_token.value):
            fields.refuse(name, f"contradicts num_experts_per_tok {per_token.value}", "make them equal")
    entries = {
        "count": fields.integer(_count_key(fields, keys.count)),
        "per_token": per_token,
        "intermediate": fields.integer(keys.intermediate),
        "renormalise": renormalise,
    }
    if keys.shared:
        entries["shared_intermediate"] = fields.integer(keys.shared)
    return entries


def _count_key(fields: Fields, names: tuple[str, ...]) -> str:
    """The key that says how many experts there are: transformers 5 writes another one than the hub has."""
    present = [name for name in names if name in fields.data]
    if len(present) > 1 and fields.data[present[0]] != fields.data[present[1]]:
        fields.refuse(present[1], f"contradicts {present[0]} {fields.data[present[0]]}", "make them equal")
    for name in present[1:]:
        fields.raw(name)
    return present[0] if present else next(name for name in names if name in fields.defaults)


def _check_every_layer(fields: Fields) -> None:
    """Every layer must have experts, and no dense feed-forward in their place."""
    dense = fields.raw("mlp_only_layers")
    if dense not in (None, []):
        rule = f"asks for {unsupported.DENSE_LAYERS}, which is not built"
        fields.refuse("mlp_only_layers", rule, "only an empty list is supported")
    if "decoder_sparse_step" not in fields.defaults:
        return
    step = fields.integer("decoder_sparse_step")
    if step.value != 1:
        rule = f"asks for {unsupported.DENSE_LAYERS}, which is not built"
        fields.refuse("decoder_sparse_step", rule, "only 1, experts in every layer, is supported")

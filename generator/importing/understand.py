"""A configuration understood: the family, and every value of a manifest's [model] with where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from generator.errors import shown
from generator.importing import refused
from generator.importing.classes import TABLE, WRAPPERS
from generator.importing.config_class import ConfigClass, Wrapper
from generator.importing.experts import read_experts
from generator.importing.fields import Entry, Fields
from generator.importing.linear_attention import read_kinds, read_sizes
from generator.importing.refused import SLIDING, supported
from generator.importing.rope import NEW, OLD, read_rope
from generator.importing.windows import read_windows
from generator.schema import dotted
from generator.toml_source import Source

SIZES = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "layers": "num_hidden_layers",
    "query_heads": "num_attention_heads",
}
UNREACHED = 1e18  # over every context that a manifest takes, and an integer
HARMLESS = frozenset(
    "architectures attention_dropout auto_map bos_token_id classifier_dropout dtype embd_pdrop eos_token_id hidden_dropout "
    "initializer_range model_type pad_token_id pretraining_tp resid_pdrop text_config torch_dtype transformers_version "
    "use_cache image_token_id image_token_index video_token_id spatial_merge_size boi_token_index eoi_token_index "
    "mm_tokens_per_image cache_implementation".split()
)


@dataclass(frozen=True)
class Understood:
    """`model`, `rope`, `local_rope`, `experts` and `gated_delta_net` are the tables of a manifest by key, the last three empty
    where the model has none, and `wrapper` is the model_type around the text model. `notes` say what holds for the whole model, `unread` are keys of
    the configuration that nothing here depends on.
    """

    family: str
    config_class: str
    wrapper: str | None
    model: Mapping[str, Entry]
    rope: Mapping[str, Entry]
    local_rope: Mapping[str, Entry]
    experts: Mapping[str, Entry]
    gated_delta_net: Mapping[str, Entry]
    notes: tuple[str, ...]
    unread: tuple[str, ...]


def understand(data: Mapping[str, Any], source: Source, path: str) -> Understood:
    """A configuration's object -> the model. Raises ManifestError with every reason why it is none that can be built."""
    outer = Fields(path, source, (), data, "the configuration", {})
    kind_of, wrapper = _config_class(outer)
    fields = outer
    if wrapper is not None:
        fields = _text_fields(outer, wrapper, kind_of)
    fields.owner, fields.defaults = kind_of.name, kind_of.defaults
    others = wrapper.others if wrapper is not None else frozenset()
    for one in dict.fromkeys((outer, fields)):
        refused.refuse_options(one, kind_of.reads | (others if one is outer else frozenset()))
    model = _model(fields, outer, kind_of)
    experts, delta_net = read_experts(fields, kind_of), read_sizes(fields, kind_of)
    fields.stop()
    for table in (model, experts, delta_net):
        _check_positive(fields, table)
    fields.stop()
    head_dim = _head_dim(fields, kind_of, model)
    if fields.data.get("head_dim") is not None or kind_of.defaults["head_dim"] is not None:
        model["head_dim"] = head_dim
    maximum = model["maximum_context"].value
    rope, rotary = read_rope(fields, kind_of, head_dim.value, maximum)
    fields.stop()
    model["maximum_context"] = _maximum_context(model["maximum_context"], rope)
    if rotary is not None:
        model["rotary_dimensions"] = rotary
    if kind_of.linear_attention:
        kinds, seen = read_kinds(fields, kind_of, model["layers"].value)
    else:
        kinds, seen = read_windows(fields, kind_of, model["layers"].value, model["maximum_context"].value)
    fields.stop()
    model |= kinds
    rope, local_rope = _ropes(fields, kind_of, head_dim.value, maximum, rope, model)
    fields.stop()
    notes = [
        f"{_form(fields)}; absent keys have the defaults of {kind_of.name} of transformers",
        f"Attention: {seen}",
    ]
    if "head_dim" not in model:
        notes.append(f"Head width {head_dim.value}: {head_dim.note}")
    if wrapper is not None:
        notes.append(f"Only the text model of {wrapper.architecture}: image input is no part of it")
    around = wrapper.model_type if wrapper is not None else None
    tables = (_in_order(model), rope, local_rope, experts, delta_net)
    return Understood(kind_of.family, kind_of.name, around, *tables, tuple(notes), _unread(outer, fields, kind_of))


def _ropes(
    fields: Fields,
    kind_of: ConfigClass,
    head_dim: int,
    maximum_context: int,
    rope: Mapping[str, Entry],
    model: Mapping[str, Entry],
) -> tuple[Mapping[str, Entry], Mapping[str, Entry]]:
    """The embedding of most layers, and that of layers with a window where the class has one and there are both kinds."""
    if not kind_of.local_rope or "sliding_window" not in model:
        return rope, {}
    local, _ = read_rope(fields, kind_of, head_dim, maximum_context, SLIDING)
    return (rope, local) if model["full_attention_layers"].value else (local, {})


def _config_class(outer: Fields) -> tuple[ConfigClass, Wrapper | None]:
    """The class of the configuration, from model_type or, where that is absent, from its only architecture."""
    name, architecture = outer.raw("model_type"), _architecture(outer)
    by_architecture = {one.architecture: one.model_type for one in (*TABLE.values(), *WRAPPERS.values())}
    if name is None:
        if architecture not in by_architecture:
            given = f" ({shown(architecture)} tells none)" if architecture else ""
            outer.refuse("model_type", f"is missing, and so is an architecture that tells it{given}", supported())
            outer.stop()
        name = by_architecture[architecture]
    if not isinstance(name, str):
        outer.refuse("model_type", "must be a string", supported())
    elif name not in TABLE and name not in WRAPPERS:
        outer.refuse("model_type", *refused.model_type(name))
    if outer.problems:
        for one in _objects(outer):
            refused.refuse_options(one, frozenset())
        outer.stop()
    found = TABLE.get(name) or WRAPPERS[name]
    if architecture is not None and architecture != found.architecture:
        other = by_architecture.get(architecture)
        if other is not None:
            rule = f'contradicts model_type "{name}": it belongs to "{other}"'
        else:
            rule = f"is no architecture of {name} that gives logits for a next token"
        outer.refuse("architectures", rule, f'"{found.architecture}" is supported')
    if isinstance(found, Wrapper):
        return TABLE[found.text], found
    return found, None


def _architecture(outer: Fields) -> str | None:
    given = outer.raw("architectures")
    if given is None or given == []:
        return None
    if not isinstance(given, list) or not isinstance(given[0], str) or len(given) > 1:
        outer.refuse("architectures", "must be a list of one name", 'for example ["LlamaForCausalLM"]')
        return None
    return given[0]


def _objects(outer: Fields) -> list[Fields]:
    """The configuration and, where there is one, the text model's within it."""
    text = outer.data.get("text_config")
    return [outer, outer.inside("text_config", data=text, defaults={})] if isinstance(text, dict) else [outer]


def _text_fields(outer: Fields, wrapper: Wrapper, kind_of: ConfigClass) -> Fields:
    """The text model's object, which may not contradict the object around it."""
    text = outer.raw("text_config")
    if not isinstance(text, dict):
        rule = "is missing" if "text_config" not in outer.data else "must be an object"
        outer.refuse("text_config", rule, f"{wrapper.name} holds the text model there")
        outer.stop()
    fields = outer.inside("text_config", data=text, defaults={})
    given = fields.raw("model_type")
    if given is not None and given != wrapper.text:
        fields.refuse(
            "model_type", f'contradicts model_type "{wrapper.model_type}" around it', f'write "{wrapper.text}"'
        )
    for name in (*kind_of.defaults, OLD, NEW):
        if name in outer.data and name in text and outer.data[name] != text[name]:
            outer.refuse(name, f"contradicts {dotted(fields.key(name))} {shown(text[name])}", "make them equal")
    return fields


def _model(fields: Fields, outer: Fields, kind_of: ConfigClass) -> dict[str, Entry]:
    if fields is outer and fields.raw("text_config") is not None:
        fields.refuse("text_config", f"contradicts the text model {kind_of.name} that is its own", "leave it out")
    dense = kind_of.experts is None
    model = {ours: fields.integer(theirs) for ours, theirs in SIZES.items() if dense or ours != "intermediate"}
    model["key_value_heads"] = _key_value_heads(fields, model["query_heads"])
    model["maximum_context"] = fields.integer("max_position_embeddings")
    model["norm_epsilon"] = fields.number("rms_norm_eps")
    model["activation"] = _activation(fields, kind_of)
    _check_fixed(fields, kind_of)
    model["tied_embeddings"] = _tied(fields, outer)
    for ours, theirs in kind_of.scores.items():
        cap = ours.endswith("cap")
        entry = fields.number(theirs, null=True) if cap else fields.integer(theirs)
        if entry.value is not None:
            model[ours] = entry
    return model


def _check_positive(fields: Fields, model: Mapping[str, Entry]) -> None:
    """Nothing below divides by, or counts up to, a size that is none."""
    for entry in model.values():
        if type(entry.value) is int and entry.value < 1:
            fields.refuse(str(entry.key[-1]), "must be at least 1", "correct it")


def _key_value_heads(fields: Fields, query_heads: Entry) -> Entry:
    entry = fields.integer("num_key_value_heads", null=True)
    if entry.value is not None:
        return entry
    how = f"{fields.lacking('num_key_value_heads')}: as many as query heads"
    return Entry(query_heads.value, entry.key, how)


def _head_dim(fields: Fields, kind_of: ConfigClass, model: Mapping[str, Entry]) -> Entry:
    """The width of a head; a manifest need not say it where it is hidden / query heads."""
    entry = fields.integer("head_dim", null=kind_of.null_head_dim)
    fields.stop()
    if entry.value is None:
        hidden, heads = model["hidden"].value, model["query_heads"].value
        return Entry(hidden // heads, entry.key, f"{fields.lacking('head_dim')}: {hidden} hidden / {heads} query heads")
    return entry


def _check_fixed(fields: Fields, kind_of: ConfigClass) -> None:
    """Keys of which one value is built, a number or true or false."""
    for name in kind_of.fixed:
        built = kind_of.defaults[name]
        read = fields.boolean if isinstance(built, bool) else fields.number
        if read(name).value != built:
            fields.refuse(
                name, f"must be {shown(built)}: no other {kind_of.name} models are built", f"write {shown(built)}"
            )


def _activation(fields: Fields, kind_of: ConfigClass) -> Entry:
    entry = fields.text(kind_of.activation)
    if entry.value not in kind_of.activations:
        rule = f"asks for another activation than {fields.owner} models have here"
        fields.refuse(kind_of.activation, rule, f'only "{next(iter(kind_of.activations))}" is built')
        return entry
    ours = kind_of.activations[entry.value]
    return replace(entry, value=ours, note=entry.note if ours == entry.value else f"{entry.note}: {entry.value}")


def _tied(fields: Fields, outer: Fields) -> Entry:
    """Around a text model the outer key decides; where neither says, the text model's class."""
    if fields is not outer and "tie_word_embeddings" in outer.data:
        return outer.boolean("tie_word_embeddings")
    return fields.boolean("tie_word_embeddings")


def _maximum_context(entry: Entry, rope: Mapping[str, Entry]) -> Entry:
    """Yarn is switched on to go past max_position_embeddings, which some publishers leave at the original context."""
    if rope["kind"].value != "yarn":
        return entry
    reached = int(min(rope["factor"].value * rope["original_context"].value, UNREACHED))
    if reached <= entry.value:
        return entry
    note = f"yarn: factor {rope['factor'].value:g} x original context {rope['original_context'].value}, over "
    return Entry(reached, rope["factor"].key, f"{note}{dotted(entry.key)} {entry.value}")


def _in_order(model: dict[str, Entry]) -> dict[str, Entry]:
    order = (*SIZES, "key_value_heads", "head_dim", "rotary_dimensions")
    return {name: model[name] for name in (*order, *(one for one in model if one not in order)) if name in model}


def _form(fields: Fields) -> str:
    if NEW in fields.data:
        return f"Configuration in the form of transformers 5 ({NEW})"
    if OLD in fields.data or "rope_theta" in fields.data:
        return f"Configuration in the form of transformers 4 (rope_theta, {OLD})"
    return "Configuration without a rotary embedding of its own"


def _unread(outer: Fields, fields: Fields, kind_of: ConfigClass) -> tuple[str, ...]:
    """Keys that nothing read: of the outer and the inner object, without notes (a leading _) and what never matters."""
    found = [one.key(name) for one in dict.fromkeys((outer, fields)) for name in one.data]
    known = HARMLESS.union(refused.OPTIONS, kind_of.harmless)
    return tuple(
        dotted(key)
        for key in found
        if key not in outer.read and key[-1] not in known and not str(key[-1]).startswith("_")
    )

"""Which layers of a configuration see only a window of the tokens before them, from per-layer lists or the older keys."""

from __future__ import annotations

from generator import unsupported
from generator.errors import did_you_mean
from generator.importing.families import EVERY_LAYER, LAYERS_IF_USED, UPPER_LAYERS, ConfigClass
from generator.importing.fields import Entry, Fields
from generator.importing.refused import LAYER_TYPES, LAYERS_BUILT


def check_layers(fields: Fields, kind_of: ConfigClass, layers: int, maximum_context: int) -> str:
    """Refuse every layer whose attention is not causal over the whole context; say in words why none is."""
    types = _layer_types(fields, layers)
    if kind_of.window == EVERY_LAYER:
        return _check_window(fields, _window(fields), range(layers), maximum_context)
    if kind_of.window == LAYERS_IF_USED:
        used = fields.boolean("use_sliding_window")
        if used.value:
            return _check_window(fields, _window(fields), range(layers), maximum_context)
        return f"use_sliding_window is false ({used.note}): every layer sees all tokens before it"
    if kind_of.window == UPPER_LAYERS:
        return _upper_layers(fields, kind_of, types, layers, maximum_context)
    for index, one in enumerate(types or ()):
        if one == "sliding_attention":
            rule = f"asks for {unsupported.WINDOW}, which {kind_of.name} does not have"
            fields.refuse_element("layer_types", index, one, rule, "write full_attention")
    return f"{kind_of.name} has no window: every layer sees all tokens before it"


def _layer_types(fields: Fields, layers: int) -> list[str] | None:
    """The per-layer list, where there is one that is as long as there are layers."""
    given = fields.raw("layer_types")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        fields.refuse("layer_types", "must be a list of strings", f"one of {', '.join(LAYERS_BUILT)} for each layer")
        return None
    if len(given) != layers:
        rule = f"has {len(given)} entries for {layers} layers (num_hidden_layers)"
        fields.refuse("layer_types", rule, "correct the list or the number of layers")
        return None
    for one in dict.fromkeys(given):
        if one not in LAYERS_BUILT:
            words = LAYER_TYPES.get(one)
            rule = f"asks for {words}, which is not built" if words else "is no layer type that is known"
            fields.refuse_element("layer_types", given.index(one), one, rule, did_you_mean(one, LAYERS_BUILT))
    return given


def _window(fields: Fields) -> Entry:
    entry = fields.integer("sliding_window", null=True)
    if entry.value is not None and entry.value < 1:
        fields.refuse("sliding_window", "must be at least 1", "write null for none")
    return entry


def _upper_layers(
    fields: Fields, kind_of: ConfigClass, types: list[str] | None, layers: int, maximum_context: int
) -> str:
    """Qwen's keys: a window is for the layers that layer_types names, else from max_window_layers on, if it is used at all."""
    used = fields.boolean("use_sliding_window")
    first = fields.integer("max_window_layers", null=True)
    sliding = [index for index, one in enumerate(types or ()) if one == "sliding_attention"]
    if not used.value:
        for index in sliding[:1]:
            rule = f"contradicts use_sliding_window ({used.note}): a layer with a window and none in use"
            hint = "write full_attention or use_sliding_window true"
            fields.refuse_element("layer_types", index, "sliding_attention", rule, hint)
        return f"use_sliding_window is false ({used.note}): every layer sees all tokens before it"
    if types is None:
        if first.value is None:
            fields.refuse("max_window_layers", "must be an integer", "it is the first layer with a window")
        return _check_window(fields, _window(fields), range(max(first.value or 0, 0), layers), maximum_context)
    return _check_window(fields, _window(fields), sliding, maximum_context)


def _check_window(fields: Fields, window: Entry, layers: range | list[int], maximum_context: int) -> str:
    if not layers:
        return "no layer has a window: every layer sees all tokens before it"
    if window.value is None:
        return f"no window ({window.note}): every layer sees all tokens before it"
    if window.value >= maximum_context:
        return (
            f"window {window.value} ({window.note}) holds all {maximum_context} tokens: every layer sees all before it"
        )
    source = "" if "sliding_window" in fields.data else f" ({window.note})"
    rule = (
        f"asks for {unsupported.WINDOW} of {window.value} tokens in a context of {maximum_context}{source}, not built"
    )
    hint = f"null, or a window that holds the whole context, is supported; first of {len(layers)} layers: {layers[0]}"
    fields.refuse("sliding_window", rule, hint)
    return ""

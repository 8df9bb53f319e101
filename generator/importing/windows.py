"""Which layers of a configuration see only a window of the tokens before them, from per-layer lists or the older keys."""

from __future__ import annotations

from collections.abc import Iterable

from generator import unsupported
from generator.errors import did_you_mean
from generator.importing.config_class import EVERY_LAYER, LAYERS_IF_USED, PATTERN, UPPER_LAYERS, ConfigClass
from generator.importing.fields import Entry, Fields
from generator.importing.refused import FULL, LAYER_TYPES, LAYERS_BUILT, SLIDING, asks_for
from generator.schema import dotted

SLIDING_PATTERN = "sliding_window_pattern"
Windows = tuple[dict[str, Entry], str]


def read_windows(fields: Fields, kind_of: ConfigClass, layers: int, maximum_context: int) -> Windows:
    """sliding_window and full_attention_layers as a manifest states them, or neither; and in words who sees what."""
    types = _layer_types(fields, layers)
    if kind_of.window == EVERY_LAYER:
        window = _window(fields)
        if window.value is not None and window.value < maximum_context:
            _refuse_first(fields, types, FULL, f"contradicts sliding_window ({window.note}), which is for every layer")
        return _windows(window, range(layers), layers, maximum_context, f"for every layer of {kind_of.name}")
    if kind_of.window == LAYERS_IF_USED:
        used = fields.boolean("use_sliding_window")
        if used.value:
            return _windows(
                _window(fields), range(layers), layers, maximum_context, f"use_sliding_window ({used.note})"
            )
        return {}, f"use_sliding_window is false ({used.note}): every layer sees all tokens before it"
    if kind_of.window == UPPER_LAYERS:
        return _upper_layers(fields, kind_of, types, layers, maximum_context)
    if kind_of.window == PATTERN:
        return _pattern(fields, kind_of, types, layers, maximum_context)
    _refuse_first(fields, types, SLIDING, f"asks for {unsupported.WINDOW}, which {kind_of.name} does not have")
    return {}, f"{kind_of.name} has no window: every layer sees all tokens before it"


def _refuse_first(fields: Fields, types: list[str] | None, kind: str, rule: str) -> None:
    for index in [index for index, one in enumerate(types or ()) if one == kind][:1]:
        fields.refuse_element("layer_types", index, kind, rule, f"write {SLIDING if kind == FULL else FULL}")


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
            rule = asks_for(words, fields.owner) if words else "is no layer type that is known"
            fields.refuse_element("layer_types", given.index(one), one, rule, did_you_mean(one, LAYERS_BUILT))
    return given


def _window(fields: Fields) -> Entry:
    entry = fields.integer("sliding_window", null=True)
    if entry.value is not None and entry.value < 1:
        fields.refuse("sliding_window", "must be at least 1", "write null for none")
        return Entry(None, entry.key, entry.note)
    return entry


def _sliding(types: Iterable[str]) -> list[int]:
    return [index for index, one in enumerate(types) if one == SLIDING]


def _upper_layers(
    fields: Fields, kind_of: ConfigClass, types: list[str] | None, layers: int, maximum_context: int
) -> Windows:
    """Qwen's keys: a window is for the layers that layer_types names, else from max_window_layers on, if it is used at all."""
    used = fields.boolean("use_sliding_window")
    first = fields.integer("max_window_layers", null=True)
    if not used.value:
        for index in _sliding(types or ())[:1]:
            rule = f"contradicts use_sliding_window ({used.note}): a layer with a window and none in use"
            hint = "write full_attention or use_sliding_window true"
            fields.refuse_element("layer_types", index, SLIDING, rule, hint)
        return {}, f"use_sliding_window is false ({used.note}): every layer sees all tokens before it"
    if types is None:
        if first.value is None:
            fields.refuse("max_window_layers", "must be an integer", "it is the first layer with a window")
        upper = range(max(first.value or 0, 0), layers)
        return _windows(_window(fields), upper, layers, maximum_context, f"max_window_layers ({first.note})")
    return _windows(_window(fields), _sliding(types), layers, maximum_context, dotted(fields.key("layer_types")))


def _pattern(
    fields: Fields, kind_of: ConfigClass, types: list[str] | None, layers: int, maximum_context: int
) -> Windows:
    """Gemma's: layer_types, else each so many'th layer has no window. Layers that turn otherwise keep any window."""
    how = dotted(fields.key("layer_types"))
    every = Entry(kind_of.every, fields.key(SLIDING_PATTERN), f"always of {kind_of.name}")
    if SLIDING_PATTERN in kind_of.defaults:
        every = fields.integer(SLIDING_PATTERN)
        if every.value is not None and every.value < 1:
            fields.refuse(SLIDING_PATTERN, "must be at least 1", "of so many layers the last has no window")
            return {}, ""
    if types is None:
        types = [FULL if (index + 1) % every.value == 0 else SLIDING for index in range(layers)]
        how = f"1 layer in {every.value} has none ({every.note})"
    sliding, window = _sliding(types), _window(fields)
    if sliding and window.value is None and not fields.problems:
        fields.refuse("sliding_window", f"must be an integer: {len(sliding)} layers have a window", "write its tokens")
        return {}, ""
    return _windows(window, sliding, layers, None if kind_of.local_rope else maximum_context, how)


def _windows(window: Entry, sliding: range | list[int], layers: int, maximum_context: int | None, how: str) -> Windows:
    """Without a window that holds less than the context, if it is stated, every layer is alike."""
    if not sliding:
        return {}, "no layer has a window: every layer sees all tokens before it"
    if window.value is None:
        return {}, f"no window ({window.note}): every layer sees all tokens before it"
    if maximum_context is not None and window.value >= maximum_context:
        holds = f"window {window.value} ({window.note}) holds all {maximum_context} tokens"
        return {}, f"{holds}: every layer sees all before it"
    full = [layer for layer in range(layers) if layer not in sliding]
    entries = {"sliding_window": window, "full_attention_layers": Entry(full, window.key, how)}
    return (
        entries,
        f"{len(sliding)} of {layers} layers see a window of {window.value} tokens, the others all before each",
    )

"""Rules of a manifest about what some families add to attention: windows, a second rotary embedding, scales and caps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.errors import shown
from generator.families import FAMILIES
from generator.families.family import OPTIONS
from generator.rules import Problem

if TYPE_CHECKING:
    from generator.manifest import Manifest, Model


def problems(manifest: Manifest) -> Iterator[Problem]:
    """Every broken rule."""
    yield from _of_family(manifest.family, manifest.model)
    options = FAMILIES[manifest.family].options
    if "sliding_window" in options or manifest.model.sliding_window is None:
        yield from _windows(manifest.model)
    if manifest.model.attention_soft_cap and "attention_soft_cap" in FAMILIES[manifest.family].options:
        yield from _one_pass(manifest)
    if "local_rope" in options and manifest.model.local_rope is not None and manifest.model.sliding_window is None:
        rule = "turns the heads of layers with a window, and none has one"
        yield Problem(("model", "local_rope"), "", rule, "add sliding_window or leave it out")


def _one_pass(manifest: Manifest) -> Iterator[Problem]:
    """A soft cap leaves no chunks, so that the longest pass must hold the longest prompt."""
    for name, table in manifest.target.items():
        if table.prefill_chunk != table.context:
            rule = (
                f"must be the context {table.context}: chunked_scaled_dot_product_attention takes no soft cap on {name} nor on "
                f"any other board, so that a prompt runs in one pass, with explicit scores"
            )
            hint = f"write context = {table.prefill_chunk}, or {table.context} here and as the last of lengths"
            yield Problem(("target", name, "prefill_chunk"), str(table.prefill_chunk), rule, hint)


def _of_family(name: str, model: Model) -> Iterator[Problem]:
    family = FAMILIES[name]
    if model.activation != family.activation:
        rule = f"family {name} has another activation"
        yield Problem(("model", "activation"), shown(model.activation), rule, f'write "{family.activation}"')
    for option in OPTIONS:
        value = getattr(model, option)
        if value is not None and option not in family.options:
            having = ", ".join(other for other, one in FAMILIES.items() if option in one.options)
            hint = f"leave it out; families that may have it: {having}" if having else "leave it out"
            yield Problem(
                ("model", option), "" if option == "local_rope" else shown(value), f"family {name} has none", hint
            )


def _windows(model: Model) -> Iterator[Problem]:
    full, key = model.full_attention_layers, ("model", "full_attention_layers")
    if model.sliding_window is None:
        if full is not None:
            rule = "belongs beside sliding_window: without one every layer sees all tokens before it"
            yield Problem(key, shown(full), rule, "leave it out")
        return
    if full is None:
        yield Problem(key, "", "is missing", "add it to [model]: the layers without a window, from 0 on; [] for none")
        return
    last = model.layers - 1
    for index, layer in enumerate(full):
        if layer > last:
            rule = f"is no layer: there are {model.layers}, from 0 to {last}"
            yield Problem((*key, index), str(layer), rule, f"nearest legal value {last}")
        elif index and layer <= full[index - 1]:
            rule = f"must be over {full[index - 1]} before it: ascending, each once"
            yield Problem((*key, index), str(layer), rule, f"write {shown(sorted(set(full)))}")
    if set(full) >= set(range(model.layers)):
        rule = "names every layer, so that none has a window"
        yield Problem(key, shown(full), rule, "leave out full_attention_layers and sliding_window")
    elif model.local_rope is not None and not full:
        rule = "names no layer, so that none is turned by [model.rope]"
        yield Problem(key, shown(full), rule, "write the embedding of all layers as [model.rope]")

"""Rules of layers with a recurrent state in a manifest: which layers, which sizes, how many sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.families import FAMILIES
from generator.problems import Problem
from generator.recurrences import CHUNKS, form
from generator.tiles import TILE, multiple_near

if TYPE_CHECKING:
    from generator.manifest import GatedDeltaNet, Manifest, Model, TargetTable

KINDS = ("gated_delta_net", "full")
FORMS = tuple(CHUNKS)
KERNEL = 4  # taps of the one convolution operation
MOST_ROWS = 8  # of the sizes of waves
KEY = ("model", "gated_delta_net")


def problems(manifest: Manifest) -> Iterator[Problem]:
    """Recurrent layers exactly where the family has them; the tables of targets alike."""
    family, model = FAMILIES[manifest.family], manifest.model
    if not family.gated_delta_net:
        yield from _none(manifest)
        return
    for key in ("gated_delta_net", "layer_kinds"):
        if getattr(model, key) is None:
            rule = f"family {manifest.family} needs it"
            yield Problem(("model", key), "", "is missing", rule)
    if model.full_attention_layers is not None:
        rule = "belongs to families with windows"
        yield Problem(("model", "full_attention_layers"), "", rule, "leave it out; layer_kinds names the layers")
    if model.layer_kinds is not None:
        yield from _layer_kinds(model)
    if model.gated_delta_net is not None:
        yield from _sizes(model.gated_delta_net)
        for name, table in manifest.target.items():
            yield from _table(name, table, model.gated_delta_net)


def _none(manifest: Manifest) -> Iterator[Problem]:
    having = ", ".join(name for name, one in FAMILIES.items() if one.gated_delta_net)
    rule = f"belongs to families with linear attention, and {manifest.family} has none"
    hint = f"leave it out; families that have it: {having}"
    for key in ("gated_delta_net", "layer_kinds"):
        if getattr(manifest.model, key) is not None:
            yield Problem(("model", key), "", rule, hint)
    for name, table in manifest.target.items():
        for key in ("state_slots", "recurrence"):
            if getattr(table, key) is not None:
                yield Problem(("target", name, key), str(getattr(table, key)), rule, hint)
        if table.dtypes.state is not None:
            yield Problem(("target", name, "dtypes", "state"), table.dtypes.state, rule, hint)


def _layer_kinds(model: Model) -> Iterator[Problem]:
    kinds, key = model.layer_kinds, ("model", "layer_kinds")
    if model.layers % len(kinds):
        sizes = [size for size in range(1, model.layers + 1) if model.layers % size == 0]
        close = min(sizes, key=lambda size: abs(size - len(kinds)))
        rule = f"has {len(kinds)} entries, which do not repeat evenly over {model.layers} layers"
        yield Problem(key, "", rule, f"write a pattern of {close}, or the kind of each layer")
    for kind in KINDS:
        if kind not in kinds:
            yield Problem(key, "", f"names no layer of kind {kind}", "both kinds are needed")


def _sizes(net: GatedDeltaNet) -> Iterator[Problem]:
    for name in ("key_dim", "value_dim"):
        value = getattr(net, name)
        if value % TILE:
            close = multiple_near(value, TILE)
            yield Problem(
                (*KEY, name), str(value), f"must be a multiple of {TILE}, a tile", f"nearest legal value {close}"
            )
    if net.value_heads % net.key_heads:
        close = max(net.key_heads, net.value_heads // net.key_heads * net.key_heads)
        rule = f"must be a multiple of the {net.key_heads} key heads, each of which serves as many value heads"
        yield Problem((*KEY, "value_heads"), str(net.value_heads), rule, f"nearest legal value {close}")


def _table(name: str, table: TargetTable, net: GatedDeltaNet) -> Iterator[Problem]:
    key, most = ("target", name), max(table.waves)
    if table.state_slots is None:
        rule = "add it to the table: sequences whose recurrent state is held at a time"
        yield Problem((*key, "state_slots"), "", "is missing", rule)
    elif table.state_slots < most:
        rule = f"must be at least {most}, the rows of the largest wave: each row has a slot of its own"
        yield Problem((*key, "state_slots"), str(table.state_slots), rule, f"nearest legal value {most}")
    for index, wave in enumerate(table.waves):
        if wave * (KERNEL - 1) > TILE:
            rule = f"is over the {MOST_ROWS} rows whose last {KERNEL - 1} tokens are selected in one tile"
            yield Problem((*key, "waves", index), str(wave), rule, f"nearest legal value {MOST_ROWS}")
    if table.recurrence == "operation" and net.key_dim != net.value_dim:
        rule = f"takes equal dims of keys and values, and key_dim is {net.key_dim} and value_dim {net.value_dim}"
        yield Problem((*key, "recurrence"), "operation", rule, 'leave it out or write "matmuls"')
    if table.batch_invariant:
        rule = "is not built with recurrent layers"
        yield Problem((*key, "batch_invariant"), "true", rule, "write false or leave it out")
    chunk = CHUNKS[form(table.recurrence, net.key_dim, net.value_dim)]
    for index, length in enumerate(table.lengths):
        if length % chunk:
            rule = f"must be a multiple of {chunk}, the tokens that the recurrence takes at a time"
            close = max(chunk, length // chunk * chunk)
            yield Problem((*key, "lengths", index), str(length), rule, f"nearest legal value {close}")

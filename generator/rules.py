"""Rules between the numbers of one manifest: what no single value can break alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

from generator.errors import did_you_mean, shown
from generator.families import FAMILIES
from generator.tiles import TILE

if TYPE_CHECKING:
    from generator.manifest import Manifest, Model, Rope, TargetTable

WIDEST_HEAD = 256
LLAMA3_KEYS = ("factor", "low_frequency_factor", "high_frequency_factor", "original_context")


@dataclass(frozen=True)
class Problem:
    """A broken rule at a key of a manifest; `value` is as the author wrote it."""

    key: tuple[str | int, ...]
    value: str
    rule: str
    hint: str


def problems(manifest: Manifest, targets: Collection[str]) -> Iterator[Problem]:
    """Every broken rule of a manifest; `targets` are the boards there are."""
    yield from _model(manifest.model)
    yield from _rope(manifest.family, manifest.model.rope)
    for name, table in manifest.target.items():
        if name not in targets:
            yield Problem(("target", name), "", "no target of this name", did_you_mean(name, targets))
        yield from _lengths(("target", name), table)
        yield from _waves(("target", name), table)
        yield from _context(("target", name), table, manifest.model.maximum_context)


def alignment(table: TargetTable) -> int:
    """Tokens that every start and every cut of a prompt is a multiple of."""
    return lcm(table.block_size, table.attention_chunk)


def multiple_near(value: int, step: int, most: int | None = None) -> int:
    """The multiple of `step` closest to `value`, at least one step and at most `most`."""
    close = max(step, (value + step // 2) // step * step)
    return close if most is None or close <= most else max(step, most // step * step)


def _multiple(
    key: tuple[str | int, ...], value: int, step: int, why: str, most: int | None = None
) -> Iterator[Problem]:
    if value % step:
        hint = f"nearest legal value {multiple_near(value, step, most)}"
        yield Problem(key, str(value), f"must be a multiple of {why}", hint)


def _model(model: Model) -> Iterator[Problem]:
    yield from _multiple(("model", "hidden"), model.hidden, TILE, f"{TILE}, a tile")
    yield from _multiple(("model", "intermediate"), model.intermediate, TILE, f"{TILE}, a tile")
    if model.query_heads % model.key_value_heads:
        divisors = [heads for heads in range(1, model.query_heads + 1) if model.query_heads % heads == 0]
        close = min(divisors, key=lambda heads: abs(heads - model.key_value_heads))
        rule = f"must divide the {model.query_heads} query heads"
        yield Problem(("model", "key_value_heads"), str(model.key_value_heads), rule, f"nearest legal value {close}")
    if model.head_dim is not None:
        yield from _multiple(("model", "head_dim"), model.head_dim, TILE, f"{TILE}, a tile")
        return
    quotient, rest = divmod(model.hidden, model.query_heads)
    if rest or quotient % TILE or quotient > WIDEST_HEAD:
        division = f"{model.hidden} hidden / {model.query_heads} query heads"
        limits = f"which must be a multiple of {TILE} and at most {WIDEST_HEAD}"
        rule = f"makes head_dim {model.hidden / model.query_heads:g} ({division}), {limits}"
        close = multiple_near(quotient, TILE, WIDEST_HEAD)
        yield Problem(
            ("model", "query_heads"), str(model.query_heads), rule, f"write head_dim = {close} or correct the heads"
        )


def _rope(family: str, rope: Rope) -> Iterator[Problem]:
    kinds = FAMILIES[family].rope_kinds
    if rope.kind not in kinds:
        rule = f"family {family} has no rotary embedding of this kind"
        yield Problem(("model", "rope", "kind"), shown(rope.kind), rule, did_you_mean(rope.kind, kinds))
    for key in LLAMA3_KEYS:
        value = getattr(rope, key)
        if rope.kind == "llama3" and value is None:
            yield Problem(("model", "rope", key), "", "is missing", "add it to [model.rope]: kind llama3 needs it")
        if rope.kind == "default" and value is not None:
            yield Problem(("model", "rope", key), shown(value), "belongs to kind llama3 only", "leave it out")
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    if low is not None and high is not None and low >= high:
        rule = f"must be over low_frequency_factor {low:g}"
        yield Problem(
            ("model", "rope", "high_frequency_factor"), shown(high), rule, "published configurations have 1 and 4"
        )


def _ascending(key: tuple[str | int, ...], values: tuple[int, ...]) -> Iterator[Problem]:
    for index in range(1, len(values)):
        if values[index] <= values[index - 1]:
            rule = f"must be over {values[index - 1]} before it: ascending, each once"
            yield Problem((*key, index), str(values[index]), rule, f"write {shown(sorted(set(values)))}")


def _lengths(key: tuple[str | int, ...], table: TargetTable) -> Iterator[Problem]:
    for index, length in enumerate(table.lengths):
        if length > table.context:
            rule = f"must be at most the context {table.context}"
            fits = multiple_near(table.context, table.block_size, table.context)
            yield Problem((*key, "lengths", index), str(length), rule, f"nearest legal value {fits}")
        yield from _multiple(
            (*key, "lengths", index), length, table.block_size, f"block_size {table.block_size}", table.context
        )
    yield from _ascending((*key, "lengths"), table.lengths)
    step = alignment(table)
    why = f"the alignment {step}, lcm({table.block_size} block_size, {table.attention_chunk} attention_chunk)"
    yield from _multiple((*key, "prefill_chunk"), table.prefill_chunk, step, why, table.context)
    longest = max(table.lengths)
    if table.prefill_chunk != longest:
        rule = f"must be the largest of lengths, {longest}"
        yield Problem((*key, "prefill_chunk"), str(table.prefill_chunk), rule, f"write {longest} or add it to lengths")


def _waves(key: tuple[str | int, ...], table: TargetTable) -> Iterator[Problem]:
    yield from _ascending((*key, "waves"), table.waves)
    if 1 not in table.waves:
        yield Problem(
            (*key, "waves"), shown(table.waves), "must contain 1", f"write {shown(sorted({1, *table.waves}))}"
        )
    if table.wave_tokens < table.prefill_chunk:
        rule = f"must hold one row of prefill_chunk {table.prefill_chunk}"
        yield Problem((*key, "wave_tokens"), str(table.wave_tokens), rule, f"nearest legal value {table.prefill_chunk}")
    shortest = min(table.lengths)
    for index, wave in enumerate(table.waves):
        if wave > 1 and wave * shortest > table.wave_tokens >= table.prefill_chunk:
            rule = f"never runs: {wave} x {shortest} tokens is over wave_tokens {table.wave_tokens}"
            hint = f"leave it out or write wave_tokens = {wave * shortest}"
            yield Problem((*key, "waves", index), str(wave), rule, hint)


def _context(key: tuple[str | int, ...], table: TargetTable, maximum: int) -> Iterator[Problem]:
    if table.context > maximum:
        rule = f"must be at most model.maximum_context {maximum}"
        fits = multiple_near(maximum, table.block_size, maximum)
        yield Problem((*key, "context"), str(table.context), rule, f"nearest legal value {fits}")
    yield from _multiple((*key, "context"), table.context, table.block_size, f"block_size {table.block_size}", maximum)
    blocks = -(-table.context // table.block_size)
    if table.key_value_blocks < blocks:
        held = f"{table.key_value_blocks} x {table.block_size} = {table.key_value_blocks * table.block_size}"
        rule = f"must hold one whole context: {held} of {table.context} tokens"
        yield Problem((*key, "key_value_blocks"), str(table.key_value_blocks), rule, f"nearest legal value {blocks}")

"""Rules between the numbers of one manifest: what no single value can break alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import lcm
from typing import TYPE_CHECKING

from generator.errors import did_you_mean, shown
from generator import expert_rules
from generator.families import FAMILIES
from generator.problems import Problem
from generator.recurrences import CHUNKS, form
from generator.shapes import RAGGED_BLOCKS
from generator.tiles import TILE, multiple_near

if TYPE_CHECKING:
    from generator.manifest import Manifest, Model, Rope, TargetTable

WIDEST_HEAD = 256
ROPE_KEYS = {  # of each kind of rotary embedding, beside kind and theta
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_frequency_factor", "high_frequency_factor", "original_context"),
    "yarn": ("factor", "original_context", "beta_fast", "beta_slow", "truncate", "attention_factor"),
    "longrope": ("original_context", "short_factors", "long_factors", "attention_factor"),
}


def problems(manifest: Manifest, targets: Collection[str]) -> Iterator[Problem]:
    """Every broken rule of a manifest; `targets` are the boards there are."""
    yield from _model(manifest.model)
    yield from expert_rules.problems(manifest)
    yield from _rotary_dimensions(manifest.family, manifest.model)
    for table in ("rope", "local_rope"):
        rope = getattr(manifest.model, table)
        if rope is not None:
            yield from _rope(manifest.family, manifest.model, table, rope)
    for name, table in manifest.target.items():
        if name not in targets:
            yield Problem(("target", name), "", "no target of this name", did_you_mean(name, targets))
        yield from _lengths(("target", name), manifest.model, table)
        yield from _waves(("target", name), table)
        yield from _ragged(("target", name), table)
        yield from _context(("target", name), table, manifest.model.maximum_context)


def alignment(model: Model, table: TargetTable) -> int:
    """Tokens that every start and every cut of a prompt is a multiple of: the context where there is no chunk but the first."""
    return table.context if model.attention_soft_cap else lcm(*units(model, table).values())


def units(model: Model, table: TargetTable) -> dict[str, int]:
    """Tokens of whatever a cut must not divide, by its name."""
    found = {"block": table.block_size, "attention chunk": table.attention_chunk}
    net = model.gated_delta_net
    if net is not None:
        found["recurrent chunk"] = CHUNKS[form(table.recurrence, net.key_dim, net.value_dim)]
    return found


def units_in_words(model: Model, table: TargetTable) -> str:
    """How the alignment came about."""
    return f"lcm({', '.join(f'{tokens} {name}' for name, tokens in units(model, table).items())})"


def _multiple(
    key: tuple[str | int, ...], value: int, step: int, why: str, most: int | None = None
) -> Iterator[Problem]:
    if value % step:
        hint = f"nearest legal value {multiple_near(value, step, most)}"
        yield Problem(key, str(value), f"must be a multiple of {why}", hint)


def _model(model: Model) -> Iterator[Problem]:
    yield from _multiple(("model", "hidden"), model.hidden, TILE, f"{TILE}, a tile")
    if model.intermediate is not None:
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


def head_dim(model: Model) -> int:
    """Columns of a head: what the file states, or an equal share of hidden."""
    return model.head_dim or model.hidden // model.query_heads


def _rotary_dimensions(family: str, model: Model) -> Iterator[Problem]:
    turned, whole, key = model.rotary_dimensions, head_dim(model), ("model", "rotary_dimensions")
    if turned is None or not whole:
        return
    if turned > whole:
        yield Problem(key, str(turned), f"must be at most head_dim {whole}", f"nearest legal value {whole}")
    elif turned % 2:
        yield Problem(
            key, str(turned), "must be even, since dimensions turn in pairs", f"nearest legal value {turned - 1}"
        )
    elif turned < whole and not FAMILIES[family].partial_rotary:
        families = ", ".join(name for name, one in FAMILIES.items() if one.partial_rotary)
        rule = f"family {family} turns whole heads, {whole} dimensions"
        yield Problem(key, str(turned), rule, f"leave it out; families that turn a part of each head: {families}")


def _rope(family: str, model: Model, table: str, rope: Rope) -> Iterator[Problem]:
    """Rules of [model.rope] and of [model.local_rope], one of which `table` names."""
    kinds = FAMILIES[family].rope_kinds
    if rope.kind not in kinds:
        rule = f"family {family} has no rotary embedding of this kind"
        yield Problem(("model", table, "kind"), shown(rope.kind), rule, did_you_mean(rope.kind, kinds))
    for key in dict.fromkeys(key for keys in ROPE_KEYS.values() for key in keys):
        value = getattr(rope, key)
        needed = key in ROPE_KEYS[rope.kind]
        if needed and value is None:
            rule = f"add it to [model.{table}]: kind {rope.kind} needs it"
            yield Problem(("model", table, key), "", "is missing", rule)
        if not needed and value is not None:
            having = [kind for kind, keys in ROPE_KEYS.items() if key in keys]
            listed = f"kind {having[0]}" if len(having) == 1 else f"kinds {', '.join(having[:-1])} and {having[-1]}"
            yield Problem(("model", table, key), shown(value), f"belongs to {listed} only", "leave it out")
    if rope.kind == "yarn" and rope.theta <= 1:
        rule = "must be over 1 in kind yarn, which takes its logarithm"
        yield Problem(
            ("model", table, "theta"), shown(rope.theta), rule, "published configurations have 10000 and more"
        )
    for low, high, published in (
        ("low_frequency_factor", "high_frequency_factor", "1 and 4"),
        ("beta_slow", "beta_fast", "1 and 32"),
    ):
        least, most = getattr(rope, low), getattr(rope, high)
        if least is not None and most is not None and least >= most:
            rule = f"must be over {low} {least:g}"
            yield Problem(("model", table, high), shown(most), rule, f"published configurations have {published}")
    pairs = (model.rotary_dimensions or head_dim(model)) // 2
    for key in ("short_factors", "long_factors"):
        value = getattr(rope, key)
        if value is not None and rope.kind == "longrope" and len(value) != pairs:
            each = f"one for each pair of the {2 * pairs} dimensions that turn"
            rule = f"must have {pairs} entries, {each}, not {len(value)}"
            yield Problem(("model", table, key), shown(value), rule, "copy the list of the published configuration")


def _ascending(key: tuple[str | int, ...], values: tuple[int, ...]) -> Iterator[Problem]:
    for index in range(1, len(values)):
        if values[index] <= values[index - 1]:
            rule = f"must be over {values[index - 1]} before it: ascending, each once"
            yield Problem((*key, index), str(values[index]), rule, f"write {shown(sorted(set(values)))}")


def _lengths(key: tuple[str | int, ...], model: Model, table: TargetTable) -> Iterator[Problem]:
    for index, length in enumerate(table.lengths):
        if length > table.context:
            rule = f"must be at most the context {table.context}"
            fits = multiple_near(table.context, table.block_size, table.context)
            yield Problem((*key, "lengths", index), str(length), rule, f"nearest legal value {fits}")
        yield from _multiple(
            (*key, "lengths", index), length, table.block_size, f"block_size {table.block_size}", table.context
        )
    yield from _ascending((*key, "lengths"), table.lengths)
    if not model.attention_soft_cap:  # whose one pass is the context
        step = alignment(model, table)
        why = f"the alignment {step}, {units_in_words(model, table)}"
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


def _ragged(key: tuple[str | int, ...], table: TargetTable) -> Iterator[Problem]:
    """Of waves whose rows are of any lengths."""
    tokens = table.ragged_tokens or ()
    yield from _ascending((*key, "ragged_tokens"), tokens)
    for index, total in enumerate(tokens):
        here, step = (*key, "ragged_tokens", index), RAGGED_BLOCKS * table.block_size
        why = f"{step}, {RAGGED_BLOCKS} blocks of {table.block_size}: so many rows share it"
        yield from _multiple(here, total, step, why, table.wave_tokens)
        if total > table.wave_tokens:
            rule = f"must be at most wave_tokens {table.wave_tokens}"
            yield Problem(here, str(total), rule, f"nearest legal value {table.wave_tokens // step * step}")


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

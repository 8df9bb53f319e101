"""Rules of mixtures of experts in a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.experts import MOST_ROUTED_TOKENS, WIDEST_HIDDEN
from generator.families import FAMILIES
from generator.problems import Problem
from generator.shapes import largest_pass
from generator.tiles import TILE, multiple_near

if TYPE_CHECKING:
    from generator.manifest import Experts, Manifest, TargetTable

KEY = ("model", "experts")


def problems(manifest: Manifest) -> Iterator[Problem]:
    """Experts exactly where the family has them, in place of the dense width; the tables of targets alike."""
    family, model = FAMILIES[manifest.family], manifest.model
    if not family.experts:
        if model.experts is not None:
            having = ", ".join(name for name, one in FAMILIES.items() if one.experts)
            rule = f"belongs to families with experts, and {manifest.family} is dense"
            yield Problem(KEY, "", rule, f"leave the table out; families with experts: {having}")
        if model.intermediate is None:
            yield Problem(("model", "intermediate"), "", "is missing", "add intermediate to [model]")
        for name, table in manifest.target.items():
            if table.dtypes.experts is not None:
                key = ("target", name, "dtypes", "experts")
                yield Problem(
                    key,
                    table.dtypes.experts,
                    f"belongs to families with experts, and {manifest.family} is dense",
                    "leave it out",
                )
        return
    if model.experts is None:
        rule = f"family {manifest.family} needs it: count, per_token, intermediate and renormalise"
        yield Problem(KEY, "", "is missing", rule)
        return
    if model.intermediate is not None:
        rule = "belongs to dense families: every layer here has experts"
        yield Problem(
            ("model", "intermediate"), str(model.intermediate), rule, "leave it out; the width is experts.intermediate"
        )
    if model.hidden > WIDEST_HIDDEN:
        rule = f"is over the {WIDEST_HIDDEN} columns that the weighted sum of a token's experts takes"
        yield Problem(("model", "hidden"), str(model.hidden), rule, f"nearest legal value {WIDEST_HIDDEN}")
    yield from _experts(model.experts, family.renormalises, manifest.family)
    yield from _shared(model.experts, family.shared_expert, manifest.family)
    for name, table in manifest.target.items():
        yield from _table(name, table)


def _experts(experts: Experts, renormalises: bool | None, family: str) -> Iterator[Problem]:
    if experts.per_token > experts.count:
        rule = f"must be at most count {experts.count}"
        yield Problem((*KEY, "per_token"), str(experts.per_token), rule, f"nearest legal value {experts.count}")
    if experts.intermediate % TILE:
        close = max(2 * TILE, multiple_near(experts.intermediate, TILE))
        rule = f"must be a multiple of {TILE}, a tile"
        yield Problem((*KEY, "intermediate"), str(experts.intermediate), rule, f"nearest legal value {close}")
    if renormalises is not None and experts.renormalise is not renormalises:
        text = str(renormalises).lower()
        rule = f"family {family} always has {text}"
        yield Problem((*KEY, "renormalise"), str(experts.renormalise).lower(), rule, f"write {text}")


def _shared(experts: Experts, expected: bool, family: str) -> Iterator[Problem]:
    """Exactly where the family has an expert that every token sees."""
    width, key = experts.shared_intermediate, (*KEY, "shared_intermediate")
    if expected and width is None:
        yield Problem(key, "", "is missing", f"family {family} has an expert that sees every token; add its width")
    elif width is not None and not expected:
        having = ", ".join(name for name, one in FAMILIES.items() if one.shared_expert)
        rule = f"belongs to families with an expert that sees every token, and {family} has none"
        yield Problem(key, str(width), rule, f"leave it out; families that have one: {having}")
    elif width is not None and width % TILE:
        close = multiple_near(width, TILE)
        yield Problem(key, str(width), f"must be a multiple of {TILE}, a tile", f"nearest legal value {close}")


def _table(name: str, table: TargetTable) -> Iterator[Problem]:
    tokens = largest_pass(table.lengths, table.waves, table.wave_tokens, table.ragged_tokens or ())
    if tokens > MOST_ROUTED_TOKENS:
        rule = f"allows passes of {tokens} tokens: experts are counted exactly up to {MOST_ROUTED_TOKENS}"
        yield Problem(
            ("target", name, "wave_tokens"),
            str(table.wave_tokens),
            rule,
            f"write at most {MOST_ROUTED_TOKENS} and no longer length",
        )
    if table.batch_invariant:
        rule = "is not built with experts: which rows share an expert's blocks depends on the wave"
        yield Problem(("target", name, "batch_invariant"), "true", rule, "write false or leave it out")

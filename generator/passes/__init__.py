"""The rewriting passes, in the order they run. Each takes a parsed module and returns one.

Templates state every alternative as a plain Python branch on a literal and bring definitions in whatever order suits their
files; the passes leave only what this module needs, in reading order. Markers of the source map ride along as comments.
"""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from generator.passes.fold import fold_constants
from generator.passes.invariants import check_invariants
from generator.passes.order import order_definitions
from generator.passes.prune import prune_unused
from generator.passes.variants import drop_variants

PASSES: tuple[tuple[str, Callable[[cst.Module], cst.Module]], ...] = (
    ("fold_constants", fold_constants),
    ("drop_variants", drop_variants),
    ("prune_unused", prune_unused),
    ("order_definitions", order_definitions),
    ("check_invariants", check_invariants),
)

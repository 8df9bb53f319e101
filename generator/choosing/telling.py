"""A choice in numbers for machines, and in words with what each further length gains and costs."""

from __future__ import annotations

from typing import Any

from generator.choosing.choose import Choice
from generator.choosing.command import Found
from generator.choosing.limits import trace_bytes
from generator.choosing.search import Calls


def to_json(found: Found) -> dict[str, Any]:
    tried, chosen, board = found.tried, found.tried.chosen, found.resolved.board
    return {
        "model": found.resolved.name,
        "target": found.resolved.target,
        "workload": found.name,
        "window": found.window,
        "lengths": list(chosen.lengths),
        "chunk": chosen.chunk,
        "waves": list(found.waves),
        "ragged_tokens": list(chosen.ragged_tokens),
        "requests": found.tried.asked.requests,
        "empty": found.empty,
        "refused": found.tried.asked.refused,
        "tokens_saved": found.tried.asked.cached,
        "real_tokens": found.tried.asked.real,
        **_numbers(chosen, found),
        "calls": None if tried.looked_at is None else vars(tried.looked_at),
        "trace_bytes": chosen.programs * trace_bytes(found.tried.operations, board),
        "now": {"lengths": list(found.tried.now.lengths), **_numbers(found.tried.now, found)},
        "by_number_of_lengths": [
            {"lengths": list(choice.lengths), **_numbers(choice, found)} for choice in found.tried.choices
        ],
    }


def _numbers(choice: Choice, found: Found) -> dict[str, Any]:
    return {
        "programs": choice.programs,
        "compile_seconds": found.compile_seconds(choice),
        "passes": choice.passes,
        "computed_tokens": choice.computed,
        "computed_over_real": choice.computed / found.tried.asked.real,
        "modelled_seconds": choice.seconds,
        "modelled_time_over_ideal": choice.over_ideal,
    }


def _looked_at(calls: Calls | None) -> list[str]:
    """Which calls the numbers are of, where not of all."""
    if calls is None or (calls.chosen_for, calls.compared) == (calls.all, calls.to_pack):
        return []
    told = f"chosen for {calls.chosen_for} of {calls.all} calls, evenly spread"
    if calls.to_pack:
        told += f"; the table packs {calls.compared} of {calls.to_pack} that have rows to pack, what is taken {calls.packed}"
    return [told]


def lines(found: Found) -> list[str]:
    """The choice in words, with what each further length gains and costs."""
    chosen, resolved, asked = found.tried.chosen, found.resolved, found.tried.asked
    per_trace = trace_bytes(found.tried.operations, resolved.board)
    told = [
        f"{resolved.name} on {resolved.target}, {found.name}: {asked.requests} requests, "
        f"{asked.refused} over the context of {resolved.context}, {found.empty} without tokens",
        f"{asked.real} tokens to compute, {asked.cached} saved by cached prefixes; "
        + (f"together what arrives within {found.window:g} s" if found.window else "every prompt by itself"),
        "",
        f"  {'lengths':>7} {'seconds':>9} {'time':>7} {'tokens':>7} {'gain':>6} {'programs':>8} {'traces, MB':>10} {'compile, s':>10}  which",
    ]
    before = None
    for choice in (*found.tried.choices, found.tried.now):
        is_now = choice is found.tried.now
        gain = "" if is_now or before is None else f"{1 - choice.seconds / before.seconds:.1%}"
        which = ", ".join(map(str, choice.lengths)) + ("  (the manifest's now)" if is_now else "")
        told.append(
            f"  {len(choice.lengths):>7} {choice.seconds:>9.1f} {choice.over_ideal:>6.3f}x {choice.computed / asked.real:>6.3f}x {gain:>6} "
            f"{choice.programs:>8} {choice.programs * per_trace / 1e6:>10.1f} {found.compile_seconds(choice):>10.0f}  {which}"
        )
        before = choice
    return [
        *told,
        "",
        *_looked_at(found.tried.looked_at),
        "time: modelled, over passes of exactly the tokens asked for; tokens: computed over asked for; gain: over the line before",
        "compile: estimated seconds of a processor until all programs are compiled, where no kernel is cached",
        f"lengths = {list(chosen.lengths)}",
        f"prefill_chunk = {chosen.chunk}",
        f"waves = {list(found.waves)}",
        *([f"ragged_tokens = {list(chosen.ragged_tokens)}"] if chosen.ragged_tokens else []),
        f"{asked.requests - asked.refused} requests in {chosen.passes} passes, {chosen.seconds:.1f} s modelled; "
        f"under the manifest's lengths {found.tried.now.seconds:.1f} s",
    ]

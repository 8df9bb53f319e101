"""`codegen shapes`: the choice for one model on one board, in numbers, in words, and in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from generator import catalog, geometry, manifest, targets
from generator.choosing import waves
from generator.choosing.choose import Choice, choose, evaluate, programs_of
from generator.choosing.limits import most_traces, trace_bytes
from generator.choosing.rows import Asked, cut
from generator.choosing.times import Times, times
from generator.choosing.workload import Workload, read, require_usable
from generator.choosing.writing import rewritten
from generator.errors import Diagnostic, ManifestError
from generator.geometry import Resolved
from generator.manifest import ModelFile
from generator.publish import write_new

CHUNKS = (512, 1024, 2048, 4096)  # tried where none is named, beside the manifest's own
LENGTHS = 9  # at most, where nothing else is said: what more of them gain is under a hundredth on every log looked at
DRAWN = 20000  # lengths that stand for a distribution


@dataclass(frozen=True)
class Found:
    """The choice for a workload, and beside it those of fewer lengths and what the manifest has now."""

    resolved: Resolved
    file: ModelFile
    name: str  # of the workload
    window: float  # seconds, 0 where every prompt runs by itself
    asked: Asked
    empty: int
    operations: int
    waves: tuple[int, ...]
    now: Choice
    choices: tuple[Choice, ...]  # of the chosen chunk, by their number of lengths

    @property
    def chosen(self) -> Choice:
        """The quickest of them."""
        return _quickest(self.choices)


def log_uniform(context: int) -> Workload:
    """A stand-in where no log is at hand: lengths up to the context, as many between any two as between twice the two."""
    lengths = np.ceil(context ** ((np.arange(DRAWN) + 0.5) / DRAWN)).astype(np.int64)
    one = np.ones(DRAWN, dtype=np.int64)
    return Workload(lengths, np.zeros(DRAWN, dtype=np.int64), one, None, 0, False)


def find(
    manifests: Path,
    model: str,
    target: str | None,
    workload: Path | None,
    most_lengths: int | None,
    most_programs: int | None,
    chunk: int | None,
    window: float = 0.0,
    progress: Callable[[int], None] = lambda lines: None,
) -> Found:
    """The choice for a model on `target`, or on its manifest's first. Raises ManifestError."""
    file = manifest.load(manifests, model)
    name = target or next(iter(file.manifest.target))
    resolved = geometry.resolve(file, targets.load_board(manifests, name))
    log = log_uniform(resolved.context) if workload is None else read(workload, progress)
    source = "log-uniform lengths" if workload is None else workload.name
    require_usable(log, source if workload is None else str(workload), resolved.context, window)
    search = _Search(
        file,
        resolved,
        log,
        1 if resolved.attention_soft_cap else 2,
        LENGTHS if most_lengths is None else most_lengths,
        most_programs,
    )
    if not window:
        tried = search.alone(_chunks(file, resolved, chunk))
    else:
        chunks = _chunks(file, resolved, resolved.prefill_chunk if chunk is None else chunk)
        tried = search.in_waves(chunks[0], window)
    choices, sizes, asked, now, operations = tried
    shortest = _quickest(choices).lengths[0]
    running = tuple(size for size in sizes if size == 1 or size * shortest <= resolved.wave_tokens)
    return Found(resolved, file, source, window, asked, log.empty, operations, running, now, tuple(choices))


def _quickest(choices: Sequence[Choice]) -> Choice:
    """Of choices as quick, the one with the fewest lengths."""
    return min(choices, key=lambda choice: (choice.seconds, len(choice.lengths)))


Tried = tuple[list[Choice], tuple[int, ...], Asked, Choice, int]


@dataclass(frozen=True)
class _Search:
    """What is looked for. Both ways give the choices for the quickest chunk or waves, those waves, what is asked of them, the
    manifest's own lengths as a choice, and the operations of a pass.
    """

    file: ModelFile
    resolved: Resolved
    log: Workload
    variants: int
    most: int
    most_programs: int | None

    def alone(self, chunks: Sequence[int]) -> Tried:
        """Every prompt by itself, whose waves are then the manifest's: nothing that is seen speaks for or against them."""
        resolved = self.resolved
        found = times(resolved, max(*chunks, resolved.prefill_chunk))
        costs, budget = self._costs(found, resolved.waves), self._budget(found)
        tried = []
        for chunk in chunks:
            asked = cut(self.log, resolved, chunk)
            tried.append((choose(asked, found, chunk, costs, self.most, budget), asked))
        tried = [(choices, asked) for choices, asked in tried if choices]
        if not tried:
            raise _too_few(self.file, resolved, chunks, costs, found.step, budget, self.most_programs)
        choices, asked = min(tried, key=lambda one: _quickest(one[0]).seconds)
        programs = sum(costs[length // found.step - 1] for length in resolved.lengths)
        now = evaluate(cut(self.log, resolved, resolved.prefill_chunk), found, resolved.lengths, programs)
        return choices, resolved.waves, asked, now, found.operations

    def in_waves(self, chunk: int, window: float) -> Tried:
        """Prompts that arrive within a window together, in the waves of the manifest up to each size."""
        resolved, log = self.resolved, self.log
        by_rows = waves.wave_times(resolved, max(chunk, resolved.prefill_chunk))
        found = by_rows[1]
        budget = self._budget(found)
        calls = waves.calls_of(log.arrivals, window, resolved.board.maximum_wave)
        groups = waves.groups_of(log, resolved, chunk, calls, found)
        tried = []
        for count in range(1, len(resolved.waves) + 1):
            sizes = resolved.waves[:count]
            costs = self._costs(found, sizes)
            choices = waves.choose_in_waves(groups, by_rows, sizes, chunk, costs, self.most, budget)
            if choices:
                tried.append((choices, sizes))
        if not tried:
            raise _too_few(self.file, resolved, [chunk], costs, found.step, budget, self.most_programs)
        choices, sizes = min(tried, key=lambda one: _quickest(one[0]).seconds)
        costs = self._costs(found, resolved.waves)
        programs = sum(costs[length // found.step - 1] for length in resolved.lengths)
        own = waves.groups_of(log, resolved, resolved.prefill_chunk, calls, found)
        gaps = waves.gaps_of(own, by_rows, resolved.prefill_chunk)
        now = waves.evaluate(own, gaps, resolved.lengths, programs, found.step)
        return choices, sizes, cut(log, resolved, chunk), now, found.operations

    def _costs(self, found: Times, sizes: Sequence[int]) -> list[int]:
        tokens = self.resolved.wave_tokens
        return [programs_of(length, sizes, tokens, self.variants) for length in found.lengths.tolist()]

    def _budget(self, found: Times) -> int:
        held = most_traces(found.operations, self.resolved.board)
        return held if self.most_programs is None else min(held, self.most_programs)


def _chunks(file: ModelFile, resolved: Resolved, named: int | None) -> list[int]:
    """Prefill chunks to try, shortest first: those that the manifest could have on this board."""
    if resolved.attention_soft_cap:  # whose only pass is the whole prompt
        wanted = {resolved.prefill_chunk if named is None else named}
    else:
        wanted = {*CHUNKS, resolved.prefill_chunk} if named is None else {named}
    legal, refused = [], None
    for chunk in sorted(wanted):
        try:
            _resolved(file, resolved, {"lengths": (chunk,), "prefill_chunk": chunk, "waves": (1,)})
            legal.append(chunk)
        except ManifestError as error:
            refused = error
    if not legal:
        raise refused
    return legal


def _resolved(file: ModelFile, resolved: Resolved, values: dict[str, Any]) -> Resolved:
    """The model with other values in its target's table, under every rule of a manifest. Raises ManifestError."""
    data = file.manifest.model_dump(exclude_none=True)
    data["target"][resolved.target] |= values
    checked = manifest.check(data, file.path, file.source, tuple(file.manifest.target))
    return geometry.resolve(checked, resolved.board)


def _too_few(
    file: ModelFile,
    resolved: Resolved,
    chunks: Sequence[int],
    costs: Sequence[int],
    step: int,
    budget: int,
    asked: int | None,
) -> ManifestError:
    """No choice is within the budget: say the smallest that can be met."""
    least, chunk = min((costs[chunk // step - 1], chunk) for chunk in chunks)
    key, value = ("--max-programs", str(budget)) if asked == budget else ("dram.trace_region_bytes", "")
    rule = f"is under the {least} programs of the one length {chunk} with waves {list(resolved.waves)}"
    return ManifestError([Diagnostic(file.path, None, key, value, rule, f"the smallest that can be met is {least}")])


def write(found: Found, manifests: Path) -> bool:
    """Put the choice into the manifest, whole or not at all; whether anything changed. Raises ManifestError."""
    resolved, chosen = found.resolved, found.chosen
    values: dict[str, Any] = {"lengths": chosen.lengths, "prefill_chunk": chosen.chunk, "waves": found.waves}
    _resolved(found.file, resolved, values)
    held = found.file.manifest.target[resolved.target]
    values = {key: value for key, value in values.items() if getattr(held, key) != value}
    if not values:
        return False
    path = catalog.find(manifests, catalog.MODELS, resolved.name)
    shown = "".join(character if character.isprintable() else "?" for character in found.name)
    reason = f"codegen shapes: {chosen.over_ideal:.3f}x the modelled time of no padding on {shown}"
    text = rewritten(catalog.read(path), found.file, resolved.target, values, reason)
    made = manifest.parse(text, str(path), catalog.names(manifests, catalog.TARGETS)).manifest
    wanted = held.model_copy(update=values)
    if made != found.file.manifest.model_copy(
        update={"target": {**found.file.manifest.target, resolved.target: wanted}}
    ):
        rule = "is laid out so that the choice cannot be put in its place"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, "give each key a line of its own")])
    write_new(path, text.encode())
    return True


def to_json(found: Found) -> dict[str, Any]:
    chosen, board = found.chosen, found.resolved.board
    return {
        "model": found.resolved.name,
        "target": found.resolved.target,
        "workload": found.name,
        "window": found.window,
        "lengths": list(chosen.lengths),
        "chunk": chosen.chunk,
        "waves": list(found.waves),
        "requests": found.asked.requests,
        "empty": found.empty,
        "refused": found.asked.refused,
        "tokens_saved": found.asked.cached,
        "real_tokens": found.asked.real,
        **_numbers(chosen, found),
        "trace_bytes": chosen.programs * trace_bytes(found.operations, board),
        "now": {"lengths": list(found.now.lengths), **_numbers(found.now, found)},
        "by_number_of_lengths": [
            {"lengths": list(choice.lengths), **_numbers(choice, found)} for choice in found.choices
        ],
    }


def _numbers(choice: Choice, found: Found) -> dict[str, Any]:
    return {
        "programs": choice.programs,
        "passes": choice.passes,
        "computed_tokens": choice.computed,
        "computed_over_real": choice.computed / found.asked.real,
        "modelled_seconds": choice.seconds,
        "modelled_time_over_ideal": choice.over_ideal,
    }


def lines(found: Found) -> list[str]:
    """The choice in words, with what each further length gains and costs."""
    chosen, resolved, asked = found.chosen, found.resolved, found.asked
    per_trace = trace_bytes(found.operations, resolved.board)
    told = [
        f"{resolved.name} on {resolved.target}, {found.name}: {asked.requests} requests, "
        f"{asked.refused} over the context of {resolved.context}, {found.empty} without tokens",
        f"{asked.real} tokens to compute, {asked.cached} saved by cached prefixes; "
        + (f"together what arrives within {found.window:g} s" if found.window else "every prompt by itself"),
        "",
        f"  {'lengths':>7} {'time':>7} {'tokens':>7} {'gain':>6} {'programs':>8} {'traces, MB':>10}  which",
    ]
    before = None
    for choice in (*found.choices, found.now):
        is_now = choice is found.now
        gain = "" if is_now or before is None else f"{1 - choice.seconds / before.seconds:.1%}"
        which = ", ".join(map(str, choice.lengths)) + ("  (the manifest's now)" if is_now else "")
        told.append(
            f"  {len(choice.lengths):>7} {choice.over_ideal:>6.3f}x {choice.computed / asked.real:>6.3f}x {gain:>6} "
            f"{choice.programs:>8} {choice.programs * per_trace / 1e6:>10.1f}  {which}"
        )
        before = choice
    return [
        *told,
        "",
        "time: modelled, over passes of exactly the tokens asked for; tokens: computed over asked for; gain: over the line before",
        f"lengths = {list(chosen.lengths)}",
        f"prefill_chunk = {chosen.chunk}",
        f"waves = {list(found.waves)}",
        f"{asked.requests - asked.refused} requests in {chosen.passes} passes, {chosen.seconds:.1f} s modelled; "
        f"under the manifest's lengths {found.now.seconds:.1f} s",
    ]

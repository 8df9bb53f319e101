"""`codegen shapes`: the choice for one model on one board, in numbers, in words, and in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from generator import catalog, geometry, manifest, targets
from generator.choosing import waves
from generator.choosing.choose import Accept, Choice, any_lengths, choose, evaluate, programs_of
from generator.choosing.compiling import Compiling, compiling, passes_of
from generator.choosing.default import MOST_LENGTHS, alike, default_ragged, log_uniform, variants_of, worthwhile
from generator.choosing.limits import most_traces, trace_bytes
from generator.choosing.ragged import Packer, Together, pack_all, sizes_for, together
from generator.choosing.rows import Asked, cut
from generator.choosing.times import Times, ragged_times, times
from generator.choosing.workload import Workload, read, require_usable
from generator.choosing.writing import rewritten
from generator.errors import Diagnostic, ManifestError
from generator.geometry import Resolved
from generator.manifest import ModelFile
from generator.publish import write_new

CHUNKS = (512, 1024, 2048, 4096)  # tried where none is named, beside the manifest's own


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
    compiling: Compiling
    waves: tuple[int, ...]
    now: Choice
    choices: tuple[Choice, ...]  # of the chosen chunk, by their number of lengths
    chosen: Choice  # one of them

    def compile_seconds(self, choice: Choice) -> float:
        """Estimated processor seconds until all passes are compiled, where nothing is."""
        waves = self.resolved.waves if choice is self.now else self.waves
        return self.compiling.seconds(passes_of(self.resolved, choice.lengths, waves, choice.ragged_tokens))


def find(
    manifests: Path,
    model: str,
    target: str | None,
    workload: Path | None,
    most_lengths: int | None,
    most_programs: int | None,
    chunk: int | None,
    packer: Packer,
    window: float = 0.0,
    most_compile_seconds: float | None = None,
    progress: Callable[[int], None] = lambda lines: None,
) -> Found:
    """The choice for a model on `target`, or on its manifest's first. Without a log it is the one that import writes, as many
    lengths as are worth their programs; else the quickest. `packer` is the runtime's. Raises ManifestError.
    """
    file = manifest.load(manifests, model)
    name = target or next(iter(file.manifest.target))
    resolved = geometry.resolve(file, targets.load_board(manifests, name))
    log = log_uniform(resolved.context) if workload is None else read(workload, progress)
    source = "log-uniform lengths" if workload is None else workload.name
    require_usable(log, source if workload is None else str(workload), resolved.context, window)
    most = MOST_LENGTHS if most_lengths is None else most_lengths
    search = Search(resolved, log, most, most_programs, packer, file.path, most_compile_seconds)
    if workload is None:
        tried = search.without_log(_chunks(file, resolved, resolved.prefill_chunk if chunk is None else chunk)[0])
    elif not window:
        tried = search.alone(_chunks(file, resolved, chunk))
    else:
        chunks = _chunks(file, resolved, resolved.prefill_chunk if chunk is None else chunk)
        tried = search.in_waves(chunks[0], window)
    choices, chosen, sizes, asked, now, operations = tried
    running = tuple(size for size in sizes if size == 1 or size * chosen.lengths[0] <= resolved.wave_tokens)
    return Found(
        resolved,
        file,
        source,
        window,
        asked,
        log.empty,
        operations,
        search.compiling,
        running,
        now,
        tuple(choices),
        chosen,
    )


def _quickest(choices: Sequence[Choice]) -> Choice:
    """Of choices as quick, the one with the fewest lengths."""
    return min(choices, key=lambda choice: (choice.seconds, len(choice.lengths)))


Tried = tuple[list[Choice], Choice, tuple[int, ...], Asked, Choice, int]


@dataclass(frozen=True)
class Search:
    """What is looked for. Each way gives the choices for the quickest chunk or waves, the one that is taken, those waves, what is
    asked of them, the manifest's own lengths as a choice, and the operations of a pass.
    """

    resolved: Resolved
    log: Workload
    most: int
    most_programs: int | None
    packer: Packer
    path: str = ""  # of the manifest, for errors
    most_compile_seconds: float | None = None

    @cached_property
    def compiling(self) -> Compiling:
        return compiling(self.resolved)

    def without_log(self, chunk: int) -> Tried:
        """Lengths for which prompts of any length count alike, as in a manifest that import writes."""
        resolved = self.resolved
        found = times(resolved, max(chunk, resolved.prefill_chunk))
        costs = self._costs(found, resolved.waves)
        ragged = self._ragged(found, costs, [chunk])
        budget = self._budget(found) - len(ragged)
        asked = cut(self.log, resolved, chunk)
        accept = self._accept(resolved.waves, ragged)
        by_ratio = choose(alike(asked, found, chunk), found, chunk, costs, self.most, budget, accept)
        if not by_ratio:
            raise self._too_few([chunk], resolved.waves, found, ragged)
        choices = [evaluate(asked, found, choice.lengths, choice.programs) for choice in by_ratio]
        chosen = choices[by_ratio.index(worthwhile(by_ratio))]
        return self._tried(choices, chosen, ragged, asked, self._now(found, costs), found.operations)

    def alone(self, chunks: Sequence[int]) -> Tried:
        """Every prompt by itself, whose waves are then the manifest's: nothing that is seen speaks for or against them."""
        resolved = self.resolved
        found = times(resolved, max(*chunks, resolved.prefill_chunk))
        costs = self._costs(found, resolved.waves)
        ragged = self._ragged(found, costs, chunks)
        budget = self._budget(found) - len(ragged)
        tried = []
        for chunk in chunks:
            asked = cut(self.log, resolved, chunk)
            accept = self._accept(resolved.waves, ragged)
            tried.append((choose(asked, found, chunk, costs, self.most, budget, accept), asked))
        tried = [(choices, asked) for choices, asked in tried if choices]
        if not tried:
            raise self._too_few(chunks, resolved.waves, found, ragged)
        choices, asked = min(tried, key=lambda one: _quickest(one[0]).seconds)
        return self._tried(choices, _quickest(choices), ragged, asked, self._now(found, costs), found.operations)

    def _ragged(self, found: Times, costs: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
        """Ragged waves, of which nothing that is seen speaks for or against any: the manifest's, or fewer where they would take more
        than half of the programs or of the time to compile, or more than one length leaves.
        """
        held, budget = self.resolved.ragged_tokens, self._budget(found)
        most = min(budget // 2, budget - min(costs[chunk // found.step - 1] for chunk in chunks))
        if self.most_compile_seconds is not None:
            most = min(most, self._ragged_to_compile(self.most_compile_seconds / 2))
            most = min(most, max(self._left_to_compile(chunk, self.resolved.waves) for chunk in chunks))
        return held if len(held) <= most or not held else default_ragged(self.resolved, max(most, 1))

    def _left_to_compile(self, chunk: int, waves: Sequence[int]) -> int:
        """Ragged waves whose compilation one length leaves time for."""
        return self._ragged_to_compile(self.most_compile_seconds - self._compile_seconds((chunk,), waves, ()))

    def _ragged_to_compile(self, seconds: float) -> int:
        return int(max(seconds, 0.0) / self.compiling.seconds_of_a_size("ragged"))

    def _compile_seconds(self, lengths: Sequence[int], waves: Sequence[int], ragged: Sequence[int]) -> float:
        return self.compiling.seconds(passes_of(self.resolved, lengths, waves, ragged))

    def _accept(self, waves: Sequence[int], ragged: Sequence[int]) -> Accept:
        """Whether lengths, with these waves beside them, are compiled in the time there is."""
        if self.most_compile_seconds is None:
            return any_lengths
        return lambda lengths: self._compile_seconds(lengths, waves, ragged) <= self.most_compile_seconds

    def _tried(
        self,
        choices: list[Choice],
        chosen: Choice,
        ragged: tuple[int, ...],
        asked: Asked,
        now: Choice,
        operations: int,
    ) -> Tried:
        def beside(choice: Choice, ragged: tuple[int, ...]) -> Choice:
            return replace(choice, programs=choice.programs + len(ragged), ragged_tokens=ragged)

        now = beside(now, self.resolved.ragged_tokens)
        choices, chosen = [beside(choice, ragged) for choice in choices], beside(chosen, ragged)
        return choices, chosen, self.resolved.waves, asked, now, operations

    def _now(self, found: Times, costs: Sequence[int]) -> Choice:
        """What the manifest's own lengths come to, every prompt by itself."""
        resolved = self.resolved
        programs = sum(costs[length // found.step - 1] for length in resolved.lengths)
        return evaluate(cut(self.log, resolved, resolved.prefill_chunk), found, resolved.lengths, programs)

    def in_waves(self, chunk: int, window: float) -> Tried:
        """Prompts that arrive within a window together, in the waves of the manifest up to each size; where it has ragged waves, rows
        from the start of prompts are packed into those.
        """
        resolved, log = self.resolved, self.log
        by_rows = waves.wave_times(resolved, max(chunk, resolved.prefill_chunk))
        found = by_rows[1]
        budget = self._budget(found)
        calls = waves.calls_of(log.arrivals, window, resolved.board.maximum_wave)
        shared, groups = self._grouped(chunk, calls, found)
        sizes_of = self._sizes_for(shared, found, chunk, budget) if shared else ()
        tried = []
        for count in range(1, len(resolved.waves) + 1):
            sizes = resolved.waves[:count]
            costs = self._costs(found, sizes)
            left, accept = budget - len(sizes_of), self._accept(sizes, sizes_of)
            choices = waves.choose_in_waves(groups, by_rows, sizes, chunk, costs, self.most, left, accept)
            if choices:
                tried.append((choices, sizes))
        if not tried:
            raise self._too_few([chunk], (1,), found, sizes_of)
        choices, sizes = min(tried, key=lambda one: _quickest(one[0]).seconds)
        choices = [
            self._packed(choice, shared, {"lengths": choice.lengths, "prefill_chunk": chunk, "waves": sizes}, sizes_of)
            for choice in choices
        ]
        return (
            choices,
            _quickest(choices),
            sizes,
            cut(log, resolved, chunk),
            self._now_in_waves(by_rows, calls),
            found.operations,
        )

    def _grouped(self, chunk: int, calls: np.ndarray, found: Times) -> tuple[Together | None, waves.Groups]:
        """Rows that may share ragged waves, where the model has any, and the others by what they share passes with."""
        shared = together(self.log, self.resolved, chunk, calls) if self.resolved.ragged_tokens else None
        elsewhere = shared.members if shared else None
        return shared, waves.groups_of(self.log, self.resolved, chunk, calls, found, elsewhere)

    def _sizes_for(self, shared: Together, found: Times, chunk: int, budget: int) -> tuple[int, ...]:
        """Ragged waves within the programs, and the time to compile, that one length leaves."""
        left = budget - self._costs(found, (1,))[chunk // found.step - 1]
        if self.most_compile_seconds is not None:
            left = min(left, self._left_to_compile(chunk, (1,)))
        return sizes_for(shared, ragged_times(self.resolved), self.resolved.block_size, max(left, 1))

    def _now_in_waves(self, by_rows: dict[int, Times], calls: np.ndarray) -> Choice:
        """What the manifest's own lengths and waves come to."""
        resolved, found, chunk = self.resolved, by_rows[1], self.resolved.prefill_chunk
        programs = sum(self._costs(found, resolved.waves)[length // found.step - 1] for length in resolved.lengths)
        shared, own = self._grouped(chunk, calls, found)
        gaps = waves.gaps_of(own, by_rows, chunk)
        now = waves.evaluate(own, gaps, resolved.lengths, programs, found.step)
        return self._packed(now, shared, {}, resolved.ragged_tokens)

    def _packed(
        self, choice: Choice, shared: Together | None, values: dict[str, Any], ragged_tokens: tuple[int, ...]
    ) -> Choice:
        """A choice with what is packed into ragged waves beside it."""
        if shared is None:
            return choice
        packed = pack_all(shared, replace(self.resolved, **values, ragged_tokens=ragged_tokens), self.packer)
        return replace(
            choice,
            programs=choice.programs + len(ragged_tokens),
            seconds=choice.seconds + packed.seconds,
            passes=choice.passes + packed.passes,
            computed=choice.computed + packed.computed,
            ragged_tokens=ragged_tokens,
        )

    def _costs(self, found: Times, sizes: Sequence[int]) -> list[int]:
        """Programs of each length. Where waves from the start of prompts are ragged, only chunks have waves of equal rows."""
        tokens, lengths = self.resolved.wave_tokens, found.lengths.tolist()
        if self.resolved.ragged_tokens:
            return [1 + programs_of(length, sizes, tokens, 1) for length in lengths]
        return [programs_of(length, sizes, tokens, variants_of(self.resolved)) for length in lengths]

    def _too_few(
        self, chunks: Sequence[int], waves: Sequence[int], found: Times, ragged: Sequence[int]
    ) -> ManifestError:
        """No choice is within the limits: say the smallest that can be met."""
        costs, budget = self._costs(found, waves), self._budget(found)
        least, chunk = min((len(ragged) + costs[chunk // found.step - 1], chunk) for chunk in chunks)
        key, value, needed = "--max-programs", str(self.most_programs), f"{least} programs"
        if least <= budget:
            seconds, chunk = min((self._compile_seconds((chunk,), waves, ragged), chunk) for chunk in chunks)
            least = ceil(seconds)
            key, value, needed = "--max-compile-seconds", f"{self.most_compile_seconds:g}", f"{least} s of compiling"
        elif budget != self.most_programs:
            key, value = "dram.trace_region_bytes", ""
        beside = f" and {len(ragged)} ragged ones" if ragged else ""
        rule = f"is under the {needed} of the one length {chunk} with waves {list(waves)}{beside}"
        return ManifestError(
            [Diagnostic(self.path, None, key, value, rule, f"the smallest that can be met is {least}")]
        )

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


def write(found: Found, manifests: Path) -> bool:
    """Put the choice into the manifest, whole or not at all; whether anything changed. Raises ManifestError."""
    resolved, chosen = found.resolved, found.chosen
    values: dict[str, Any] = {"lengths": chosen.lengths, "prefill_chunk": chosen.chunk, "waves": found.waves}
    if chosen.ragged_tokens:
        values["ragged_tokens"] = chosen.ragged_tokens
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
        "ragged_tokens": list(chosen.ragged_tokens),
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
        "compile_seconds": found.compile_seconds(choice),
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
        f"  {'lengths':>7} {'time':>7} {'tokens':>7} {'gain':>6} {'programs':>8} {'traces, MB':>10} {'compile, s':>10}  which",
    ]
    before = None
    for choice in (*found.choices, found.now):
        is_now = choice is found.now
        gain = "" if is_now or before is None else f"{1 - choice.seconds / before.seconds:.1%}"
        which = ", ".join(map(str, choice.lengths)) + ("  (the manifest's now)" if is_now else "")
        told.append(
            f"  {len(choice.lengths):>7} {choice.over_ideal:>6.3f}x {choice.computed / asked.real:>6.3f}x {gain:>6} "
            f"{choice.programs:>8} {choice.programs * per_trace / 1e6:>10.1f} {found.compile_seconds(choice):>10.0f}  {which}"
        )
        before = choice
    return [
        *told,
        "",
        "time: modelled, over passes of exactly the tokens asked for; tokens: computed over asked for; gain: over the line before",
        "compile: estimated seconds of a processor until all programs are compiled, where no kernel is cached",
        f"lengths = {list(chosen.lengths)}",
        f"prefill_chunk = {chosen.chunk}",
        f"waves = {list(found.waves)}",
        *([f"ragged_tokens = {list(chosen.ragged_tokens)}"] if chosen.ragged_tokens else []),
        f"{asked.requests - asked.refused} requests in {chosen.passes} passes, {chosen.seconds:.1f} s modelled; "
        f"under the manifest's lengths {found.now.seconds:.1f} s",
    ]

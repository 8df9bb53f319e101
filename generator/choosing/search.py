"""Where a choice is looked for: chunks, waves, ragged waves and lengths, within what programs and their compilation may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from generator.choosing import waves
from generator.choosing.choose import Accept, Choice, any_lengths, choose, evaluate, programs_of
from generator.choosing.compiling import Compiling, compiling, passes_of
from generator.choosing.default import alike, default_ragged, variants_of, worthwhile
from generator.choosing.limits import most_traces
from generator.choosing.ragged import Packer, Together, pack_all, sizes_for, together
from generator.choosing.rows import Asked, cut
from generator.choosing.times import Times, ragged_times, times
from generator.choosing.workload import Workload
from generator.errors import Diagnostic, ManifestError
from generator.geometry import Resolved


@dataclass(frozen=True)
class Tried:
    """What a search gives: of the quickest chunk or waves the best choices by their number of lengths and the one that is taken, those
    waves, what is asked of them, the manifest's own lengths as a choice, and the operations of a pass.
    """

    choices: tuple[Choice, ...]
    chosen: Choice
    waves: tuple[int, ...]
    asked: Asked
    now: Choice
    operations: int


@dataclass(frozen=True)
class Search:
    """What is looked for: lengths for prompts without a log, for those of a log by themselves, or for those that arrive together."""

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
        told = tuple([beside(choice, ragged) for choice in choices])
        return Tried(told, beside(chosen, ragged), self.resolved.waves, asked, now, operations)

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
        values = {"prefill_chunk": chunk, "waves": sizes}
        told = tuple(
            [self._packed(choice, shared, {"lengths": choice.lengths, **values}, sizes_of) for choice in choices]
        )
        now = self._now_in_waves(by_rows, calls)
        return Tried(told, _quickest(told), sizes, cut(log, resolved, chunk), now, found.operations)

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


def _quickest(choices: Sequence[Choice]) -> Choice:
    """Of choices as quick, the one with the fewest lengths."""
    return min(choices, key=lambda choice: (choice.seconds, len(choice.lengths)))

"""Where a choice is looked for: chunks, waves, ragged waves and lengths, within what programs and their compilation may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np

from generator.choosing import waves
from generator.choosing.choose import Accept, Choice, any_lengths, best_lengths, choose, evaluate, grids
from generator.choosing.compiling import Compiling, compiling, passes_of
from generator.choosing.default import WORTHWHILE, alike, default_ragged, worthwhile
from generator.choosing.limits import most_traces
from generator.choosing.prices import Prices
from generator.choosing.ragged import Packer, Together, pack_all, sizes_for, together
from generator.choosing.rows import Asked, cut
from generator.choosing.times import Times, ragged_times, times
from generator.choosing.workload import Workload
from generator.errors import Diagnostic, ManifestError
from generator.geometry import Resolved

CHOSEN_FOR = 2000  # calls that lengths are chosen for: of more, some that are evenly spread
COMPARED = 300  # calls whose rows are packed to compare choices by
PACKED = 20000  # calls that are packed to say what the choice, and what the manifest has, come to


@dataclass(frozen=True)
class Calls:
    """How many a log has; those that lengths were chosen for; those with rows to pack; those of them that were packed to compare choices,
    and to say what the one that is taken comes to.
    """

    all: int
    chosen_for: int
    to_pack: int
    compared: int
    packed: int


@dataclass(frozen=True)
class Tried:
    """What a search gives: of the quickest chunk or waves the best choices by their number of lengths and the one that is taken, those
    waves, what is asked of them, the manifest's own lengths as a choice, the operations of a pass, and which calls were looked at.
    """

    choices: tuple[Choice, ...]
    chosen: Choice
    waves: tuple[int, ...]
    asked: Asked
    now: Choice
    operations: int
    looked_at: Calls | None = None  # where prompts make calls


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
    progress: Callable[[str], None] = lambda doing: None

    @cached_property
    def compiling(self) -> Compiling:
        return compiling(self.resolved)

    # Every prompt by itself

    def without_log(self, chunk: int) -> Tried:
        """Lengths for which prompts of any length count alike, as in a manifest that import writes."""
        found = times(self.resolved, max(chunk, self.resolved.prefill_chunk))
        by_ratio, sizes, ragged = self._by_themselves([chunk], found, lambda asked: alike(asked, found, chunk))
        asked = cut(self.log, self.resolved, chunk)
        choices = [evaluate(asked, found, choice.lengths, choice.programs) for choice in by_ratio]
        return self._tried(choices, choices[by_ratio.index(worthwhile(by_ratio))], sizes, ragged, asked, found)

    def alone(self, chunks: Sequence[int]) -> Tried:
        """Waves are the manifest's, of which nothing that is seen speaks for or against any, or fewer where the limits leave lengths
        too few beside them.
        """
        found = times(self.resolved, max(*chunks, self.resolved.prefill_chunk))
        choices, sizes, ragged = self._by_themselves(chunks, found, lambda asked: asked)
        asked = cut(self.log, self.resolved, choices[0].chunk)
        return self._tried(choices, _quickest(choices), sizes, ragged, asked, found)

    def _by_themselves(
        self, chunks: Sequence[int], found: Times, weigh: Callable[[Asked], Asked]
    ) -> tuple[list[Choice], tuple[int, ...], tuple[int, ...]]:
        """The choices of the quickest chunk, and what runs beside them: no fewer waves than what is worthwhile is gained by."""
        asked = {chunk: weigh(cut(self.log, self.resolved, chunk)) for chunk in chunks}
        best: list[Choice] = []
        for sizes, ragged in self._beside(found):
            if best and not self._is_limited:
                break
            costs, budget = self._costs(found, sizes), self._budget(found) - len(ragged)
            accept = self._accept(sizes, ragged)
            tried = [choose(asked[chunk], found, chunk, costs, self.most, budget, accept) for chunk in chunks]
            tried = [choices for choices in tried if choices]
            choices = min(tried, key=lambda one: _quickest(one).seconds, default=[])
            if choices and (not best or _quickest(choices).seconds < (1 - WORTHWHILE) * _quickest(best).seconds):
                best, taken = choices, (sizes, ragged)
        if not best:
            raise self._too_few(chunks, found, ragged)
        return best, *taken

    def _beside(self, found: Times) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Waves and ragged waves: the manifest's, then fewer of both, down to none and to one."""
        held = self._held_ragged(found)
        yield self.resolved.waves, held
        fewer = [default_ragged(self.resolved, most) for most in _halves(len(held))] if held else [()]
        for count in reversed(range(1, len(self.resolved.waves) + 1)):
            yield from ((self.resolved.waves[:count], ragged) for ragged in fewer)

    def _held_ragged(self, found: Times) -> tuple[int, ...]:
        """The manifest's ragged waves, or fewer where they would take more than half of the programs or of the time to compile."""
        held, most = self.resolved.ragged_tokens, self._budget(found) // 2
        if self.most_compile_seconds is not None:
            most = min(most, self._ragged_to_compile(self.most_compile_seconds / 2))
        return held if len(held) <= most or not held else default_ragged(self.resolved, max(most, 1))

    def _tried(
        self,
        choices: Sequence[Choice],
        chosen: Choice,
        sizes: tuple[int, ...],
        ragged: tuple[int, ...],
        asked: Asked,
        found: Times,
    ) -> Tried:
        """Of the choice and of the manifest's lengths the seconds are those of their modules' own programs, which every length shares
        with whatever waves have as many tokens.
        """
        resolved = self.resolved

        def as_built(
            asked: Asked, lengths: tuple[int, ...], sizes: tuple[int, ...], ragged: tuple[int, ...], programs: int
        ) -> Choice:
            own = self._prices(lengths, sizes, ragged).times(found, 1)
            return _with(evaluate(asked, own, lengths, programs), ragged)

        programs, whole = self._own_programs(found), cut(self.log, resolved, resolved.prefill_chunk)
        now = as_built(whole, resolved.lengths, resolved.waves, resolved.ragged_tokens, programs)
        taken = as_built(asked, chosen.lengths, sizes, ragged, chosen.programs)
        return Tried(_rising([_with(choice, ragged) for choice in choices]), taken, sizes, asked, now, found.operations)

    def _prices(self, lengths: tuple[int, ...], sizes: tuple[int, ...], ragged: tuple[int, ...]) -> Prices:
        """Of the module that has these lengths, whose chunk is the last of them."""
        values = {"lengths": lengths, "prefill_chunk": lengths[-1], "waves": sizes, "ragged_tokens": ragged}
        return Prices(replace(self.resolved, **values))

    # What arrives together

    def in_waves(self, chunk: int, window: float) -> Tried:
        """Prompts that arrive within a window together, in the waves of the manifest up to each size; where it has ragged waves, rows
        from the start of prompts are packed into those. What is quicker under the manifest's own lengths stays with them.
        """
        resolved, log = self.resolved, self.log
        self.progress("timing passes")
        by_rows = waves.wave_times(resolved, max(chunk, resolved.prefill_chunk))
        found = by_rows[1]
        calls = waves.calls_within(log, resolved.context, window, resolved.board.maximum_wave)
        shared, groups = self._grouped(chunk, calls, found)
        count = int(calls.max()) + 1
        every = -(-count // CHOSEN_FOR)
        few = groups if every == 1 else waves.groups_of(log, resolved, chunk, calls, found, _members(shared), every)
        compared, asked = shared.thinned(COMPARED) if shared else None, cut(log, resolved, chunk)
        best: list[tuple[Choice, Choice]] = []  # with rows that were packed to compare it, and without
        for ragged in self._ragged_in_waves(shared, found, chunk):
            self.progress(f"choosing lengths beside {len(ragged)} ragged waves")
            choices, sizes = self._lengths_in_waves(few, asked, by_rows, ragged, chunk)
            tried = [
                (self._packed(choice, compared, self._prices(choice.lengths, sizes, ragged), ragged), choice)
                for choice in choices
            ]
            if tried and (not best or _first(tried)[0].seconds < _first(best)[0].seconds):
                best, taken = tried, (sizes, ragged)
        if not best:
            raise self._too_few([chunk], found, ragged)
        self.progress("packing what is chosen")
        all_calls = shared.thinned(PACKED) if shared else None
        chosen = self._as_built(_first(best)[1], groups, all_calls, by_rows, *taken)
        if resolved.prefill_chunk == chunk:
            now = self._now_in_waves(groups, all_calls, by_rows)
        else:
            own, other_groups = self._grouped(resolved.prefill_chunk, calls, found)
            now = self._now_in_waves(other_groups, own.thinned(PACKED) if own else None, by_rows)
        if now.chunk == chunk and now.seconds < chosen.seconds and self._allows(now, found):
            chosen, taken = now, (resolved.waves, resolved.ragged_tokens)
        told = _rising([choice for choice, _ in best])
        counts = [len(one.lengths) if one else 0 for one in (shared, compared, all_calls)]
        looked_at = Calls(count, -(-count // every), *counts)
        return Tried(told, chosen, taken[0], asked, now, found.operations, looked_at)

    def _grouped(self, chunk: int, calls: np.ndarray, found: Times) -> tuple[Together | None, waves.Groups]:
        """Rows that may share ragged waves, where the model has any, and the others by what they share passes with."""
        shared = together(self.log, self.resolved, chunk, calls) if self.resolved.ragged_tokens else None
        return shared, waves.groups_of(self.log, self.resolved, chunk, calls, found, _members(shared))

    def _ragged_in_waves(self, shared: Together | None, found: Times, chunk: int) -> Iterator[tuple[int, ...]]:
        """Ragged waves within the programs, and the time to compile, that one length leaves; under limits fewer too."""
        if shared is None:
            yield ()
            return
        left = self._budget(found) - self._costs(found, (1,))[chunk // found.step - 1]
        if self.most_compile_seconds is not None:
            seconds = self.most_compile_seconds - self._compile_seconds((chunk,), (1,), ())
            left = min(left, self._ragged_to_compile(seconds))
        quickest, block = ragged_times(self.resolved), self.resolved.block_size
        most = sizes_for(shared, quickest, block, max(left, 1))
        yield most
        if self._is_limited:
            yield from (sizes_for(shared, quickest, block, count) for count in _halves(len(most) // 2))

    def _lengths_in_waves(
        self, groups: waves.Groups, asked: Asked, by_rows: dict[int, Times], ragged: tuple[int, ...], chunk: int
    ) -> tuple[list[Choice], tuple[int, ...]]:
        """The best for rows that share no ragged wave, in the waves that are quickest for them, and with ragged waves those for all rows
        each by itself: which of the others share one is not known before they are packed.
        """
        found, step, best = by_rows[1], by_rows[1].step, []
        sizes: tuple[int, ...] = (1,)
        for count in range(1, len(self.resolved.waves) + 1):
            prefix = self.resolved.waves[:count]
            gaps = waves.gaps_of(groups, {rows: by_rows[rows] for rows in prefix if rows in by_rows}, chunk)
            costs, budget = self._costs(found, prefix)[: chunk // step], self._budget(found) - len(ragged)
            accept = self._accept(prefix, ragged)
            lengths = [
                one
                for grid in grids(costs, budget, accept)
                for one in best_lengths(gaps[0], step, grid, self.most, budget, accept)
            ]
            if ragged:
                alone = choose(asked, found, chunk, costs, self.most, budget, accept)
                lengths += [(choice.lengths, choice.programs) for choice in alone]
            choices = [waves.evaluate(groups, gaps, some, programs, step) for some, programs in dict(lengths).items()]
            if choices and (not best or _quickest(choices).seconds < _quickest(best).seconds):
                best, sizes = choices, prefix
        return best, sizes

    def _now_in_waves(self, groups: waves.Groups, shared: Together | None, by_rows: dict[int, Times]) -> Choice:
        """What the manifest's own lengths and waves come to, of rows that are cut into its chunks."""
        resolved = self.resolved
        now = Choice(resolved.lengths, self._own_programs(by_rows[1]), 0.0, groups.ideal_seconds, 0, 0)
        return self._as_built(now, groups, shared, by_rows, resolved.waves, resolved.ragged_tokens)

    def _as_built(
        self,
        choice: Choice,
        groups: waves.Groups,
        shared: Together | None,
        by_rows: dict[int, Times],
        sizes: tuple[int, ...],
        ragged: tuple[int, ...],
    ) -> Choice:
        """What a choice comes to in passes with its module's own programs."""
        prices, step = self._prices(choice.lengths, sizes, ragged), by_rows[1].step
        own = {rows: prices.times(by_rows[rows], rows) for rows in sizes if rows in by_rows}
        gaps = waves.gaps_of(groups, own, choice.chunk, choice.lengths)
        whole = waves.evaluate(groups, gaps, choice.lengths, choice.programs, step)
        return self._packed(whole, shared, prices, ragged)

    def _packed(self, choice: Choice, shared: Together | None, prices: Prices, ragged: tuple[int, ...]) -> Choice:
        """A choice with what is packed into ragged waves beside it."""
        if shared is None:
            return choice
        packed = pack_all(shared, prices, self.resolved.block_size, self.packer)
        return replace(
            _with(choice, ragged),
            seconds=choice.seconds + packed.seconds,
            passes=choice.passes + packed.passes,
            computed=choice.computed + packed.computed,
        )

    # Limits

    @property
    def _is_limited(self) -> bool:
        """Whether less is asked for than what the trace region holds."""
        return self.most_programs is not None or self.most_compile_seconds is not None

    def _costs(self, found: Times, sizes: Sequence[int]) -> list[int]:
        """Programs of each length."""
        return [len([*passes_of(self.resolved, (length,), sizes, ())]) for length in found.lengths.tolist()]

    def _own_programs(self, found: Times) -> int:
        """Programs of the manifest's lengths, without ragged waves."""
        costs = self._costs(found, self.resolved.waves)
        return sum(costs[length // found.step - 1] for length in self.resolved.lengths)

    def _budget(self, found: Times) -> int:
        held = most_traces(found.operations, self.resolved.board)
        return held if self.most_programs is None else min(held, self.most_programs)

    def _compile_seconds(self, lengths: Sequence[int], sizes: Sequence[int], ragged: Sequence[int]) -> float:
        return self.compiling.seconds(passes_of(self.resolved, lengths, sizes, ragged))

    def _ragged_to_compile(self, seconds: float) -> int:
        """Ragged waves that are compiled in so long."""
        return int(max(seconds, 0.0) / self.compiling.seconds_of_a_size("ragged"))

    def _accept(self, sizes: Sequence[int], ragged: Sequence[int]) -> Accept:
        """Whether lengths, with these waves beside them, are compiled in the time there is."""
        if self.most_compile_seconds is None:
            return any_lengths
        return lambda lengths: self._compile_seconds(lengths, sizes, ragged) <= self.most_compile_seconds

    def _allows(self, now: Choice, found: Times) -> bool:
        accept = self._accept(self.resolved.waves, now.ragged_tokens)
        return len(now.lengths) <= self.most and now.programs <= self._budget(found) and accept(now.lengths)

    def _too_few(self, chunks: Sequence[int], found: Times, ragged: Sequence[int]) -> ManifestError:
        """Not even one length by itself, with the fewest ragged waves, is within the limits: say the smallest that can be met."""
        costs, budget = self._costs(found, (1,)), self._budget(found)
        least, chunk = min((len(ragged) + costs[chunk // found.step - 1], chunk) for chunk in chunks)
        key, value, needed = "--max-programs", str(self.most_programs), f"{least} programs"
        if least <= budget:
            seconds, chunk = min((self._compile_seconds((chunk,), (1,), ragged), chunk) for chunk in chunks)
            least = ceil(seconds)
            key, value, needed = "--max-compile-seconds", f"{self.most_compile_seconds:g}", f"{least} s of compiling"
        elif budget != self.most_programs:
            key, value = "dram.trace_region_bytes", ""
        beside = f" and {len(ragged)} ragged wave" if ragged else ""
        rule = f"is under the {needed} of the one length {chunk}{beside}"
        return ManifestError(
            [Diagnostic(self.path, None, key, value, rule, f"the smallest that can be met is {least}")]
        )


def _with(choice: Choice, ragged: tuple[int, ...]) -> Choice:
    """A choice with the programs of ragged waves beside it."""
    return replace(choice, programs=choice.programs + len(ragged), ragged_tokens=ragged)


def _members(shared: Together | None) -> np.ndarray | None:
    """Which requests may share ragged waves; None where the model has none."""
    return None if shared is None else shared.members


def _halves(count: int) -> Iterator[int]:
    """A count and its halves, rounded down, to 1."""
    while count > 1:
        yield count
        count //= 2
    yield 1


def _quickest(choices: Sequence[Choice]) -> Choice:
    """Of choices as quick, the one with the fewest lengths."""
    return min(choices, key=lambda choice: (choice.seconds, len(choice.lengths)))


def _first(tried: Sequence[tuple[Choice, Choice]]) -> tuple[Choice, Choice]:
    return min(tried, key=lambda one: (one[0].seconds, len(one[0].lengths)))


def _rising(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Of choices with as many lengths the quickest, in the order of their number, without those that more lengths do not gain by."""
    found: list[Choice] = []
    for choice in sorted(choices, key=lambda one: (len(one.lengths), one.seconds)):
        if not found or (len(choice.lengths) > len(found[-1].lengths) and choice.seconds < found[-1].seconds):
            found.append(choice)
    return tuple(found)

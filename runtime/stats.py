"""What a runtime did and how long it took: counters that only grow, and a frozen view of them.

Counts of work are of attempts where a call may fail half way (calls, tokens, seconds) and of successes where something
was submitted (passes, replays, uploads), so that a failing device shows as a difference between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns

from runtime.request import PrefillChunk, PreparedPrefill

PLAN, STAGE, DISPATCH, READ = "plan", "stage", "dispatch", "read"
PHASES = (PLAN, STAGE, DISPATCH, READ)


@dataclass(frozen=True)
class Phase:
    """How often a phase was entered and the host seconds spent in it. `read` is the time spent waiting for the device."""

    entered: int
    seconds: float


@dataclass(frozen=True)
class Variant:
    """Passes of one variant that were submitted, those of them that were replays, and their tokens.

    `tokens_real` are positions of prompts, `tokens_computed` all positions of the padded passes.
    """

    passes: int
    replays: int
    tokens_real: int
    tokens_computed: int


@dataclass(frozen=True)
class Recomputed:
    """Rows and tokens of theirs that were cached and computed again."""

    rows: int
    tokens: int


@dataclass(frozen=True)
class Snapshot:
    """Everything counted since the runtime was made.

    `calls` and `tokens` are of plans that were begun, `failed` of those that raised. `waves` are plans of more than one
    row, `chunks` passes of chunked variants, `wave_layers` layers x passes of more than one row. `upload_bytes` are
    elements times their size, without the device's own padding. Of recurrent state: `state_copies` between where it is held
    and where passes work on it, `routes` passes by the form of their recurrence, and `recomputed`, by the reason, what was
    cached and computed again by plans that are through.
    """

    calls: int
    failed: int
    tokens: int
    waves: int
    chunks: int
    wave_layers: int
    uploads: int
    upload_bytes: int
    phases: dict[str, Phase]
    variants: dict[str, Variant]
    state_copies: int = 0
    routes: dict[str, int] = field(default_factory=dict)
    recomputed: dict[str, Recomputed] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        return sum(variant.passes for variant in self.variants.values())

    @property
    def replays(self) -> int:
        return sum(variant.replays for variant in self.variants.values())

    @property
    def tokens_computed(self) -> int:
        return sum(variant.tokens_computed for variant in self.variants.values())

    @property
    def uploads_per_pass(self) -> float:
        return self.uploads / self.passes if self.passes else 0.0

    @property
    def bytes_per_pass(self) -> float:
        return self.upload_bytes / self.passes if self.passes else 0.0

    def line(self) -> str:
        """The whole in one line, for a log."""
        padding = self.tokens_computed / self.tokens if self.tokens else 0.0
        states = f", {self.state_copies} state copies" if self.state_copies else ""
        phases = ", ".join(f"{name} {1e3 * phase.seconds:.1f} ms" for name, phase in self.phases.items())
        return (
            f"{self.calls} calls ({self.failed} failed), {self.passes} passes ({self.replays} replays), "
            f"{self.waves} waves, {self.chunks} chunks, {self.tokens} tokens as {self.tokens_computed} "
            f"({padding:.2f}x), {self.uploads} uploads of {self.upload_bytes} B{states}; {phases}"
        )


class Stats:
    """The counters of one runtime."""

    def __init__(self, layers: int = 0) -> None:
        self._layers = layers
        self._calls = self._failed = self._tokens = self._waves = self._chunks = self._wave_layers = 0
        self._uploads = self._upload_bytes = 0
        self._in_call = False
        self._phases = {name: [0, 0] for name in PHASES}
        self._variants: dict[str, list[int]] = {}
        self._state_copies = 0
        self._routes: dict[str, int] = {}
        self._recomputed: dict[str, list[int]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block, also one that fails."""
        began = perf_counter_ns()
        try:
            yield
        finally:
            self.spent(name, began)

    def spent(self, name: str, began: int) -> None:
        """Add the time since `began` (of perf_counter_ns) to a phase."""
        counted = self._phases[name]
        counted[0] += 1
        counted[1] += perf_counter_ns() - began

    @contextmanager
    def call(self, prepared: PreparedPrefill) -> Iterator[None]:
        """Count a plan when it begins, and that it failed if it does."""
        self._calls += 1
        self._tokens += sum([request.length - request.begin for request in prepared.requests])
        self._waves += len(prepared.requests) > 1
        self._in_call = True
        try:
            yield
        except BaseException:
            self._failed += 1
            raise
        finally:
            self._in_call = False

    def submitted(self, prepared: PreparedPrefill, chunk: PrefillChunk, replayed: bool) -> None:
        """One pass is on the device's queue."""
        shape = chunk.shape
        counted = self._variants.setdefault(shape.variant, [0, 0, 0, 0])
        real = sum([chunk.real_tokens(request) for request in prepared.requests])
        for index, more in enumerate((1, int(replayed), real, shape.rows * shape.tokens)):
            counted[index] += more
        self._chunks += shape.read_pages > 0
        self._wave_layers += self._layers * (shape.rows > 1)
        if prepared.routes:
            taken = prepared.routes[prepared.chunks.index(chunk)]
            self._routes[taken] = self._routes.get(taken, 0) + 1

    def through(self, prepared: PreparedPrefill) -> None:
        """Every pass of a plan was submitted. Counted only now, so that a plan that is tried again counts once."""
        for request in prepared.requests:
            if request.recomputed:
                counted = self._recomputed.setdefault(request.recomputed, [0, 0])
                counted[0] += 1
                counted[1] += request.cached - request.begin

    def copied(self) -> None:
        """One part of one layer's state of one sequence. Those of warm-up belong to no call and are not counted."""
        self._state_copies += self._in_call

    def uploaded(self, size: int) -> None:
        """One host value of `size` bytes reached the device. Those of warm-up and capture belong to no call and are not
        counted.
        """
        if self._in_call:
            self._uploads += 1
            self._upload_bytes += size

    def snapshot(self) -> Snapshot:
        return Snapshot(
            calls=self._calls,
            failed=self._failed,
            tokens=self._tokens,
            waves=self._waves,
            chunks=self._chunks,
            wave_layers=self._wave_layers,
            uploads=self._uploads,
            upload_bytes=self._upload_bytes,
            phases={name: Phase(entered, nanoseconds / 1e9) for name, (entered, nanoseconds) in self._phases.items()},
            variants={name: Variant(*counted) for name, counted in self._variants.items()},
            state_copies=self._state_copies,
            routes=dict(self._routes),
            recomputed={reason: Recomputed(*counted) for reason, counted in self._recomputed.items()},
        )

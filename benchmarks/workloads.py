"""What the default policy and `power-of-two` make of request logs, side by side: passes, tokens and refusals.

Nothing runs on a device. The default policy is the runtime's own admission and planner over tables that the generator makes;
power-of-two is `generator/choosing/power_of_two.py`. A row that either refuses is left out of its call, so that passes and
tokens are those of the rows that are served; how many rows would have gone with a refused one's call is counted beside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

from benchmarks import planning, request_logs
from benchmarks.measure import Figure
from benchmarks.request_logs import Request
from generator.choosing import power_of_two
from runtime.replay import Replay

CONTEXTS = ((131072, 4096), (40960, 4096), (8192, 2048), (5120, 2048))  # context and longest prefill chunk, tokens
ROWS, SECONDS = 32, 1.0  # a call is what arrives within a second, at most 32 rows
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
WAVE_TOKENS = 8192
POLICIES = ("default", "power-of-two")


@dataclass
class Count:
    """Sums over the calls of one log. `real` are tokens of served rows that were not cached."""

    served: int = 0
    passes: int = 0
    computed: int = 0
    real: int = 0
    refused: int = 0
    refused_with_their_call: int = 0
    zero_rows: int = 0

    @property
    def padding(self) -> float:
        """Computed over real tokens."""
        return self.computed / self.real if self.real else 0.0


@dataclass(frozen=True)
class Comparison:
    log: str
    context: int
    chunk: int
    requests: int
    over_context: int  # longer than the context: no policy can serve them, and they are in neither count
    counts: dict[str, Count] = field(default_factory=dict)


class Default:
    """The runtime's own plans over the tables of one geometry."""

    def __init__(self, module: SimpleNamespace) -> None:
        self._replay = Replay(module)

    def add(self, call: list[Request], count: Count) -> None:
        planned = self._replay.plan([request.length for request in call], [request.cached for request in call])
        count.refused += len(planned.refused)
        count.refused_with_their_call += bool(planned.refused) * (len(call) - 1)
        for plan in planned.plans:
            count.passes += len(plan.chunks)
            count.computed += sum(chunk.shape.rows * chunk.shape.tokens for chunk in plan.chunks)
            count.served += len(plan.requests)
            count.real += sum(max(row.length - row.cached, 1) for row in plan.requests)


def add_power_of_two(call: list[Request], limits: power_of_two.Limits, count: Count) -> None:
    lengths = [request.length for request in call]
    cached = [request.cached for request in call]
    whole = len(call)
    while lengths:
        try:
            plan = power_of_two.plan(lengths, cached, limits)
            break
        except power_of_two.Refused as error:
            count.refused += 1
            count.refused_with_their_call += len(lengths) == whole and whole - 1
            del lengths[error.row], cached[error.row]
    else:
        return
    count.passes += len(plan.passes)
    count.computed += sum(made.computed for made in plan.passes)
    count.zero_rows += len(plan.empty)
    count.served += len(lengths) - len(plan.empty)
    count.real += sum(length - prefix for length, prefix in zip(lengths, cached))


def module_tables(context: int, chunk: int) -> SimpleNamespace:
    lengths = tuple(length for length in LENGTHS if length <= chunk)
    return planning.tables(
        planning.resolve(planning.manifest(context, chunk, WAVE_TOKENS, lengths, ROWS * context // planning.BLOCK))
    )


def compare(name: str, log: list[Request], context: int, chunk: int) -> Comparison:
    """Both policies over one log at one context, given the same calls."""
    fitting = [request for request in log if request.length <= context]
    made = Comparison(name, context, chunk, len(fitting), len(log) - len(fitting), {p: Count() for p in POLICIES})
    default, limits = Default(module_tables(context, chunk)), power_of_two.Limits(context, chunk)
    for call in request_logs.calls(fitting, ROWS, SECONDS):
        default.add(call, made.counts["default"])
        add_power_of_two(call, limits, made.counts["power-of-two"])
    return made


def table(comparisons: Iterable[Comparison]) -> str:
    """One line for each log, context and policy."""
    lines = [
        f"{'log':<10} {'context':>7} {'requests':>8} {'over':>5}  {'policy':<12} {'passes':>7} {'computed':>11} "
        f"{'real':>11} {'x real':>6} {'refused':>7} {'with call':>9} {'zero rows':>9}"
    ]
    for one in comparisons:
        for policy, count in one.counts.items():
            lines.append(
                f"{one.log:<10} {one.context:>7} {one.requests:>8} {one.over_context:>5}  {policy:<12} {count.passes:>7} "
                f"{count.computed:>11} {count.real:>11} {count.padding:>6.3f} {count.refused:>7} "
                f"{count.refused_with_their_call:>9} {count.zero_rows:>9}"
            )
    return "\n".join(lines)


def compare_all(logs: dict[str, list[Request]] | None = None) -> list[Comparison]:
    found = request_logs.available() if logs is None else logs
    return [compare(name, log, *sizes) for name, log in found.items() for sizes in CONTEXTS]


def measure() -> list[Figure]:
    """Prints the table; its numbers go into the record as figures. The default policy may refuse no row of any log."""
    comparisons = compare_all()
    print(table(comparisons))
    figures = []
    for one in comparisons:
        for policy, count in one.counts.items():
            where = f"{one.log} {one.context} {policy}"
            limit = 0 if policy == "default" else None
            figures += [
                Figure(f"{where}: passes", "", (count.passes,)),
                Figure(f"{where}: computed tokens", "", (count.computed,)),
                Figure(f"{where}: real tokens", "", (count.real,)),
                Figure(f"{where}: refused requests", "", (count.refused,), limit),
            ]
    return figures

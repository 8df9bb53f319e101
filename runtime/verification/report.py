"""What a verification found: frozen values, one JSON object, and tables for a reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runtime.verification.comparison import Agreement

PEERS = ("emitted", "reference", "transformers")


@dataclass(frozen=True)
class Gate:
    """What every case of one precision must reach.

    Either at most a relative error, which holds logits and each block of keys and values alike; or at least a
    correlation `pcc` of the logits and `cache_pcc` of each block, since the logits of a whole pass do not depend on
    what it wrote to the cache.
    """

    precision: str
    relative_error: float | None = None
    pcc: float | None = None
    cache_pcc: float | None = None

    def holds(self, logits: Agreement, caches: Sequence[Agreement]) -> bool:
        """Written so that a NaN fails."""
        if self.relative_error is not None:
            return all(one.max_relative_error <= self.relative_error for one in (logits, *caches))
        return logits.pcc >= self.pcc and all(one.pcc >= self.cache_pcc for one in caches)

    def __str__(self) -> str:
        if self.relative_error is not None:
            return f"{self.precision}: relative error <= {self.relative_error:g}"
        return f"{self.precision}: PCC of logits >= {self.pcc:g}, of the cache >= {self.cache_pcc:g}"


@dataclass(frozen=True)
class Case:
    """One prompt on one way through the module, compared with the reference.

    `pcc_logits`, `max_relative_error` and `top1_match` are about the logits of the last token. The cache is compared
    apart, correlations and relative errors being those of the worst block of any layer. `top1_margin` says how near
    the reference's own two likeliest tokens are, in the measure of `max_relative_error`: rounding may swap them where
    it is less than twice that error. `peer_relative_error` is the reference's own distance from transformers.
    `likeliest` holds the five likeliest next tokens of each of PEERS, as ids and as text (ids again where there is no
    tokenizer).
    """

    name: str
    prompt: int
    route: str
    backend: str
    precision: str
    tokens: int
    passes: tuple[str, ...]
    pcc_logits: float
    max_relative_error: float
    top1_match: bool
    top1_margin: float
    keys_pcc: float
    keys_max_relative_error: float
    values_pcc: float
    values_max_relative_error: float
    peer_relative_error: float
    likeliest: dict[str, tuple[int, ...]]
    likeliest_text: dict[str, tuple[str, ...]]
    seconds: dict[str, float]
    passed: bool


@dataclass(frozen=True)
class LayerRow:
    """One layer in one precision: its output for one prompt, and its cache in the worst of all cases."""

    precision: str
    layer: int
    hidden_pcc: float
    hidden_max_relative_error: float
    keys_pcc: float
    keys_max_relative_error: float
    values_pcc: float
    values_max_relative_error: float


@dataclass(frozen=True)
class Report:
    """`prompts` are as given, or said by their number of tokens where weights have no tokenizer. `peak_memory_bytes` is
    the process's own high-water mark, everything it did before included."""

    model: str
    target: str
    backend: str
    weights: str
    prompts: tuple[str, ...]
    gates: tuple[Gate, ...]
    cases: tuple[Case, ...]
    layers: tuple[LayerRow, ...]
    peak_memory_bytes: int

    @property
    def passed(self) -> bool:
        """A report without cases has shown nothing."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    @property
    def top1_agreement(self) -> float:
        """Share of cases whose likeliest token is the reference's."""
        return sum(case.top1_match for case in self.cases) / len(self.cases) if self.cases else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings, numbers and booleans. JSON has no infinity: an error that is not finite
        is null.
        """
        return _plain({"passed": self.passed, "top1_agreement": self.top1_agreement, **asdict(self)})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render(report: Report) -> list[Any]:
    """What a reader sees, as rich renderables that 80 columns hold: prompts, routes, layers, every case that failed, and a
    last line."""
    failed = [_failure(case) for case in report.cases if not case.passed]
    return [*_prompts(report), "", _routes(report), "", _layers(report), "", *failed, _summary(report)]


def brief(report: Report) -> list[str]:
    """What a reader of many reports sees: what ran, every case that failed, and a last line."""
    failed = [_failure(case) for case in report.cases if not case.passed]
    return [
        f"[bold]{report.model} on {report.target} ({report.backend}), {_escape(report.weights)}[/bold]",
        *failed,
        _summary(report),
    ]


def _prompts(report: Report) -> list[str]:
    """Each prompt by itself, in the precision that a device computes in where it was run: the likeliest next tokens of
    the three under each other, with the time each took, and how far they agree."""
    precision = report.gates[-1].precision
    lines = [
        f"[bold]{report.model} on {report.target} ({report.backend}), {precision} precision: likeliest next tokens[/bold]"
    ]
    for case in report.cases:
        if case.route == "alone" and case.precision == precision:
            passes = ", ".join(case.passes)
            lines += ["", f"{_escape(_ending(report.prompts[case.prompt]))}  [dim]{case.tokens} tokens: {passes}[/dim]"]
            for peer in PEERS:
                tokens = "  ".join(case.likeliest_text[peer])
                lines.append(f"  {peer:<13}{_escape(f'{tokens:<54}')} {case.seconds[peer]:6.2f} s")
            top1 = "yes" if case.top1_match else f"[red]no[/red], {case.top1_margin:.1e} apart"
            lines.append(
                f"  PCC {case.pcc_logits:.6f}, relative error {case.max_relative_error:.1e}, top-1 match {top1}"
            )
    return lines


def _routes(report: Report) -> Any:
    """The worst of all prompts on each way through the module."""
    table = _table("ways through the module, worst prompt of each")
    table.add_column("way", overflow="fold")
    for heading in ("PCC", "logits", "keys", "values", "top 1", "passed"):
        table.add_column(heading, justify="right", no_wrap=True)
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in report.cases:
        groups.setdefault((case.precision, case.route), []).append(case)
    for (precision, route), cases in groups.items():
        table.add_row(
            f"{route}, {precision}",
            f"{min(case.pcc_logits for case in cases):.6f}",
            f"{max(case.max_relative_error for case in cases):.1e}",
            f"{max(case.keys_max_relative_error for case in cases):.1e}",
            f"{max(case.values_max_relative_error for case in cases):.1e}",
            f"{sum(case.top1_match for case in cases)} of {len(cases)}",
            f"{sum(case.passed for case in cases)} of {len(cases)}",
        )
    return table


def _layers(report: Report) -> Any:
    """Layer by layer: the correlation of its output, and the relative errors of output, keys and values."""
    table = _table("layer by layer")
    for heading in ("precision", "layer", "PCC", "output", "keys", "values"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.layers:
        table.add_row(
            row.precision,
            str(row.layer),
            f"{row.hidden_pcc:.6f}",
            f"{row.hidden_max_relative_error:.1e}",
            f"{row.keys_max_relative_error:.1e}",
            f"{row.values_max_relative_error:.1e}",
        )
    return table


def _failure(case: Case) -> str:
    return (
        f"[red]FAILED[/red] {_escape(case.name)} ({case.precision}; {', '.join(case.passes)}):"
        f" PCC {case.pcc_logits:.6f}, relative error of logits {case.max_relative_error:.1e},"
        f" keys {case.keys_max_relative_error:.1e}, values {case.values_max_relative_error:.1e};"
        f" reference against transformers {case.peer_relative_error:.1e}"
    )


def _summary(report: Report) -> str:
    colour, word = ("green", "passed") if report.passed else ("red", "FAILED")
    count = sum(case.passed for case in report.cases)
    return (
        f"[{colour}]{word}[/{colour}]: {count} of {len(report.cases)} cases;"
        f" top-1 agreement {report.top1_agreement:.1%}; gates {'; '.join(map(str, report.gates))};"
        f" peak memory {report.peak_memory_bytes / 1e9:.2f} GB"
    )


def _table(title: str) -> Any:
    from rich.table import Table

    return Table(title=title, title_justify="left")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _ending(text: str, length: int = 48) -> str:
    """The end of a prompt, which is what the next token follows, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"...{line[-length:]}"

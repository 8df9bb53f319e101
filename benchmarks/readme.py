"""The README's tables of modelled figures, from the record that `make bench` leaves.

python -m benchmarks.readme      writes them between their marks in README.md
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks import first_token, shapes
from benchmarks.measure import PROJECT
from benchmarks.run import RESULTS

README = PROJECT / "README.md"
BEGIN, END = "<!-- modelled figures, by python -m benchmarks.readme -->", "<!-- end of modelled figures -->"
LOGS = ("azure", "mooncake", "mooncake, prefixes cached")


def tables(record: Mapping[str, Any]) -> str:
    """Markdown of the figures of `shapes` and `first-token`. Raises KeyError with the name of a figure that is not there."""
    figures = {figure["name"]: figure["median"] for figure in record["figures"]}
    return "\n\n".join("\n".join(part(figures)) for part in (_lengths, _waves, _first_token))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*names: str) -> Iterator[str]:
    yield _row(names)
    yield _row(["---"] * len(names))


def _lengths(figures: Mapping[str, float]) -> Iterator[str]:
    """Time and tokens of each log, by the number of lengths."""
    columns = ["hand-written", *(f"{count} lengths" for count in shapes.COUNTS)]
    yield from _head(
        "every prompt by itself", "hand-written rule", *(name.replace("1 lengths", "1 length") for name in columns[1:])
    )
    for log in LOGS:
        for what in ("modelled time", "computed tokens"):
            yield _row([f"{log}: {what}", *(f"{figures[f'{log}: {what}, {name}']:.3f}x" for name in columns)])


def _waves(figures: Mapping[str, float]) -> Iterator[str]:
    """Time of each log and window, by which rows may share a wave."""
    ways = (shapes.ALONE, shapes.EQUAL, *shapes.RAGGED)
    yield from _head("sharing waves, 9 lengths: modelled time", *ways)
    for log in LOGS[:2]:
        for window in shapes.WINDOWS:
            times = (f"{figures[shapes.wave_figure(log, window, way)]:.4f}x" for way in ways)
            yield _row([f"{log}, within {window:g} s", *times])


def _first_token(figures: Mapping[str, float]) -> Iterator[str]:
    """Modelled beside published seconds."""
    yield from _head(
        "model", "board", "tokens", "modelled here", "published, measured", "published, theory", "measured / modelled"
    )
    for one in first_token.PUBLISHED:
        modelled = figures[first_token.figure_of(one)]
        ratios = [_span(f"{seconds / modelled:.1f}" for seconds in one.measured)]
        theory = "-" if one.theory is None else _seconds(one.theory)
        measured = _span(map(_seconds, one.measured))
        yield _row([one.model, one.target, f"{one.tokens:,}", _seconds(modelled), measured, theory, *ratios])


def _span(ends: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def with_tables(text: str, made: str) -> str:
    """The README's text with these tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> None:
    made = tables(json.loads(RESULTS.read_text(encoding="utf-8")))
    README.write_text(with_tables(README.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()

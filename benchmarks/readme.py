"""The README's tables of modelled and of measured figures, from the record that `make bench` leaves.

python -m benchmarks.readme      writes them between their marks in README.md; a table whose benchmarks were not run stays
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import first_token, shapes
from benchmarks.measure import PROJECT
from benchmarks.run import RESULTS

README = PROJECT / "README.md"
MODELLED, MEASURED = "modelled figures", "measured figures"
LOGS = ("azure", "mooncake", "mooncake, prefixes cached")


@dataclass(frozen=True)
class Measured:
    """A row of the measured table: its figures by how their names begin, in whole numbers or with `digits` after the point."""

    what: str
    figures: tuple[str, ...]
    digits: int = 0


ROWS = (
    Measured("`codegen --help`, `codegen list`", ("codegen --help", "codegen list")),
    Measured("full build of all modules, build with no change", ("full build", "build with no change"), 2),
    Measured("processor time of importing one model and building it for one board", ("import and build",), 2),
    Measured("import of the slowest module beyond its libraries", ("import of the slowest",), 1),
    Measured(
        "emulated prefill of SmolLM2 at 512 tokens (in the pass of the next length), float32 and declared dtypes, over transformers in float32",
        ("emulated prefill / transformers, float32", "emulated prefill / transformers, declared"),
        2,
    ),
    Measured(
        "emulated prefill of a tiny hybrid model at 512 and 4,096 tokens, over transformers' chunked rule in float32",
        ("emulated hybrid / transformers, 512 tokens", "emulated hybrid / transformers, 4096 tokens"),
        2,
    ),
    Measured("peak memory of `codegen verify smollm2-135m`", ("peak memory of verify",), 2),
    Measured("planning one row, 32 rows of one length", ("prepare 1 row", "prepare 32 rows")),
    Measured("planning 32 rows of any lengths, which share ragged waves", ("prepare 32 rows of any lengths",)),
    Measured("device allocations of refreshing and replaying a trace", ("device allocations of refresh and replay",)),
    Measured("`codegen legal llama-3.1-8b --target n150`", ("codegen legal",), 1),
    Measured(
        "choosing lengths for 20,000 requests, for a million",
        ("choosing for 20000 requests by", "choosing for 1000000 requests by"),
        1,
    ),
    Measured(
        "the same for what arrives within half a second",
        ("choosing for 20000 requests within", "choosing for 1000000 requests within"),
        1,
    ),
)


def tables(record: Mapping[str, Any]) -> str:
    """Markdown of the figures of `shapes` and `first-token`. Raises KeyError with the name of a figure that is not there."""
    figures = {figure["name"]: figure["median"] for figure in record["figures"]}
    return "\n\n".join("\n".join(part(figures)) for part in (_lengths, _waves, _first_token))


def measured(record: Mapping[str, Any]) -> str:
    """Markdown of what was measured by the clock, medians. Raises KeyError as `tables`."""
    cells = (
        (
            row.what,
            *(", ".join(dict.fromkeys(told)) for told in zip(*(_measured(record, row, name) for name in row.figures))),
        )
        for row in ROWS
    )
    return "\n".join((*_head("figure", "measured", "limit"), *map(_row, cells)))


def _measured(record: Mapping[str, Any], row: Measured, name: str) -> tuple[str, str]:
    """The median of the figure whose name begins so, and its limit."""
    figure = next((one for one in record["figures"] if one["name"].startswith(name)), None)
    if figure is None:
        raise KeyError(name)
    unit = figure["unit"] if figure["unit"] in ("", "x") else f" {figure['unit']}"
    limit = "-" if figure["limit"] is None else f"{figure['limit']:g}{unit}" + ("" if figure["met"] else ", missed")
    return f"{figure['median']:.{row.digits}f}{unit}", limit


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


def with_tables(text: str, kind: str, made: str) -> str:
    """The README's text with these tables between the marks of their kind."""
    begin, end = f"<!-- {kind}, by python -m benchmarks.readme -->\n", f"\n<!-- end of {kind} -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"the text lacks the marks of {kind}: {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{made}{end}{after}"


def main() -> None:
    record, text = json.loads(RESULTS.read_text(encoding="utf-8")), README.read_text(encoding="utf-8")
    for kind, made in ((MODELLED, tables), (MEASURED, measured)):
        try:
            text = with_tables(text, kind, made(record))
        except KeyError as error:
            print(f"the {kind} stay as they are: {error.args[0]!r} was not measured; `make bench` measures all")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What `codegen bench` shows: a table, a plot as SVG, and a page that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

WIDTH, HEIGHT, MARGIN, BARS = 760, 300, 44, 48  # of the plot, in its own units
DIGIT, LABEL_ROWS = 5.5, 4  # width of a digit, and rows of labels that fit below the plot
ROWS = (
    ("requests", "requests", "{:,}"),
    ("refused", "refused", "{:,}"),
    ("answered with zeros", "unanswered", "{:,}"),
    ("passes", "passes", "{:,}"),
    ("priced row by row", "passes_priced_row_by_row", "{:,}"),
    ("real tokens", "real_tokens", "{:,}"),
    ("computed tokens", "computed_tokens", "{:,}"),
    ("computed / real", "computed_over_real", "{:.3f}x"),
    ("modelled time, s", "modelled_seconds", "{:,.1f}"),
    ("modelled / no padding", "modelled_time_over_ideal", "{:.3f}x"),
    ("most delay of a packed prompt, s", "most_delay_seconds", "{:.3f}"),
    ("programs", "programs", "{:,}"),
    ("traces", "traces", "{:,}"),
    ("bytes of traces", "trace_bytes", "{:,}"),
    ("compiling, processor s", "compile_seconds", "{:,.0f}"),
    ("host us a request", "host_microseconds_a_request", "{:.1f}"),
)
NOTE = (
    "Times of passes are modelled from the target's rates, and so is no padding: each prompt that the policy serves by itself, in passes "
    "of exactly its tokens; bytes of traces and the time to compile all programs, where no kernel is cached, are estimated. A wave that no program holds is priced as its rows one after another. "
    "Passes, tokens and refusals are counted by the planners; a prompt that is refused or answered with zeros is in no other figure "
    "but requests. Host time is measured here, of admission and planning. "
    "Nothing ran on a board. Programs of the module are all that it has; those of powers of two are the sizes that this log met."
)
Policies = Sequence[Mapping[str, Any]]


def printable(name: str) -> str:
    """The name of a file for a title: what is no UTF-8 and what XML may not hold is replaced."""
    return "".join(one if one.isprintable() else "\ufffd" for one in name)


def _short(tokens: int) -> str:
    return f"{tokens / 1e6:.1f} M" if tokens >= 100_000 else f"{tokens:,}"


def _label_rows(lengths: Sequence[int], places: Sequence[float]) -> list[int]:
    """For each label the first row in which it touches none before it, or the last there is."""
    ends = [float("-inf")] * LABEL_ROWS
    found = []
    for length, x in zip(lengths, places):
        half = DIGIT * len(str(length)) / 2
        row = next((row for row, end in enumerate(ends) if x - half > end), LABEL_ROWS - 1)
        ends[row] = x + half
        found.append(row)
    return found


def _cells(policies: Policies) -> list[list[str]]:
    def cell(form: str, value: Any) -> str:
        return "-" if value is None else form.format(value)

    return [[name, *(cell(form, one[key]) for one in policies)] for name, key, form in ROWS]


def lines(title: str, policies: Policies) -> list[str]:
    """The table in words."""
    head = ["", *(one["policy"] for one in policies)]
    cells = [head, *_cells(policies)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return [
        title,
        "",
        *("  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]) for row in cells),
        "",
        NOTE,
    ]


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def svg(title: str, rest: np.ndarray, weights: np.ndarray, lengths: Sequence[int], policies: Policies) -> str:
    """Left, how many tokens last passes have, with the lengths as lines; right, computed and real tokens of each policy."""
    counts, _ = np.histogram(rest, bins=BARS, range=(0, lengths[-1]), weights=weights)
    wide, high, base = WIDTH * 0.62, HEIGHT - 2 * MARGIN, HEIGHT - MARGIN
    step, top = wide / BARS, max(float(counts.max(initial=0)), 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="9">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(MARGIN, 14, "last passes by their tokens, and the lengths that hold them", "start"),
    ]
    for index, count in enumerate(counts):
        tall = high * count / top
        x = MARGIN + index * step
        parts.append(
            f'<rect class="count" x="{x:.1f}" y="{base - tall:.1f}" width="{step * 0.9:.1f}" height="{tall:.1f}" fill="#7a9cc6"/>'
        )
    places = [MARGIN + wide * length / lengths[-1] for length in lengths]
    for length, x, row in zip(lengths, places, _label_rows(lengths, places)):
        parts.append(f'<line class="length" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN - 6}" y2="{base}" stroke="#b03030"/>')
        parts.append(_text(x, base + 10 + 10 * row, str(length)))
    left = MARGIN + wide + 40
    most = max(max(one["computed_tokens"], one["real_tokens"]) for one in policies) or 1
    parts.append(_text(left, 14, "tokens: real, computed", "start"))
    for index, one in enumerate(policies):
        x = left + index * 100
        for offset, key, colour in ((0, "real_tokens", "#8fbf8f"), (34, "computed_tokens", "#c98f5a")):
            tall = high * one[key] / most
            parts.append(
                f'<rect class="{key}" x="{x + offset}" y="{base - tall:.1f}" width="30" height="{tall:.1f}" fill="{colour}"/>'
            )
            parts.append(_text(x + offset + 15, base - tall - 4, _short(one[key])))
        parts.append(_text(x + 32, base + 12, one["policy"]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def html(title: str, plot: str, policies: Policies) -> str:
    """One page with everything in it."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *(one["policy"] for one in policies)))
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _cells(policies))
    style = "body{font-family:sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}td:first-child{text-align:left}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{plot}<table><tr>{head}</tr>\n{body}\n</table>\n<p>{escape(NOTE)}</p></body></html>\n"
    )

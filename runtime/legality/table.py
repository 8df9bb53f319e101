"""Verdicts for a reader, as rich renderables that 110 columns hold."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

KIB, MIB, GIB = 2**10, 2**20, 2**30
SAME_LINE = 3  # passes named when one line is refused for more
SAME_MESSAGE = 60  # characters in which messages that differ in the numbers of a pass agree


def render(verdict: dict[str, Any]) -> list[Any]:
    """Passes with their costs, how matmuls are cut, cores by operation, what was refused, and a last line."""
    measured = [one for one in verdict["shapes"] if one["calls"]]
    parts: list[Any] = [_heading(verdict, measured), _passes(verdict["shapes"])]
    if measured:
        parts += ["", _matmuls(measured), "", _cores(measured)]
    return [*parts, "", *_refusals(verdict["refusals"]), _summary(verdict)]


def _heading(verdict: dict[str, Any], measured: list[dict[str, Any]]) -> str:
    line = f"[bold]{verdict['model']} on {verdict['target']}[/bold], ttnn {verdict['ttnn_version']} on a mock device"
    if measured:
        dram = measured[0]["dram_bytes"]
        line += (
            f"; DRAM: {dram['weights'] / GIB:.2f} GiB weights, {dram['key_value'] / GIB:.2f} GiB keys and values"
            f" of {dram['capacity'] / GIB:.2f} GiB"
        )
    return line


def _passes(shapes: list[dict[str, Any]]) -> Any:
    limit = next((f" (limit {one['l1_bytes']['limit'] / KIB:.0f})" for one in shapes if one["calls"]), "")
    title = (
        "passes: device operations; transfers with the host in a trace; KiB of buffers, and with tensors,\n"
        f"on the fullest core{limit}; DRAM of activations; tokens of an attention chunk;\n"
        "modelled time and its multiple of the roofline"
    )
    table = _table(title, "pass", "ops", "a layer", "host", "buffers", "L1", "DRAM", "chunks", "modelled", "ideal")
    for one in shapes:
        name = "{variant} {rows}x{tokens}".format(**one["shape"])
        if not one["calls"]:
            table.add_row(f"[red]{name}[/red]")
            continue
        table.add_row(
            name if one["passed"] else f"[red]{name}[/red]",
            str(one["operations"]),
            str(one["operations_per_layer"]),
            str(one["host_uploads"] + one["host_reads"]),
            f"{one['circular_buffer_bytes']['peak'] / KIB:.0f}",
            f"{one['l1_bytes']['peak'] / KIB:.0f}",
            f"{one['dram_bytes']['activations_peak'] / MIB:.0f} MiB",
            one["attention"].removeprefix("chunks ").partition(" on ")[0],
            *_modelled(one),
        )
    return table


def _modelled(one: dict[str, Any]) -> tuple[str, str]:
    """Milliseconds of a pass by the model and how often the roofline goes into them; dashes where nobody modelled it."""
    if not one.get("modelled"):
        return "-", "-"
    return f"{one['modelled']['seconds'] * 1e3:.1f} ms", f"{one['modelled']['over_roofline']:.2f}x"


def _matmuls(measured: Iterable[dict[str, Any]]) -> Any:
    """Each way in which a matmul is cut, with the tokens of the passes that use it."""
    used: dict[tuple[str, str], set[int]] = {}
    for one in measured:
        tokens = one["shape"]["rows"] * one["shape"]["tokens"]
        for role, configuration in one["matmuls"].items():
            used.setdefault((role, configuration), set()).add(tokens)
    table = _table("matmuls; blocks in tiles", "weight", "tokens of a pass", "configuration", right=False)
    for role, configuration in sorted(used, key=lambda key: (key[0], min(used[key]))):
        table.add_row(role, " ".join(map(str, sorted(used[role, configuration]))), configuration)
    return table


def _cores(measured: Iterable[dict[str, Any]]) -> Any:
    """Cores by device operation over all passes; a pass of few tokens rarely fills the grid."""
    used: dict[tuple[str, str], list[int]] = {}
    for one in measured:
        for call in one["calls"]:
            used.setdefault((call["operation"], call["call"].rpartition(".")[2]), []).append(call["cores"])
    table = _table("cores that an operation uses, over all passes", "operation", "called as", right=False)
    for heading in ("least", "median", "most"):
        table.add_column(heading, justify="right", no_wrap=True)
    for (operation, call), cores in sorted(used.items()):
        table.add_row(operation, call, str(min(cores)), f"{median(cores):.0f}", str(max(cores)))
    return table


SUMMARY = (
    ("model", "target", "legal passes", "ops a layer", "host transfers", "L1", "DRAM")
    + ("shortest row", "longest row", "fullest wave", "all passes, from the start and chunked")
)  # fmt: skip


def summary_rows(verdicts: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One line of SUMMARY for each module: what all passes of it need at most, and the modelled time of three."""
    return [_summary_row(verdict) for verdict in verdicts]


def _summary_row(verdict: dict[str, Any]) -> tuple[str, ...]:
    measured = [one for one in verdict["shapes"] if one["calls"]]
    legal = sum(one["passed"] for one in verdict["shapes"])
    head = (verdict["model"], verdict["target"], f"{legal} of {len(verdict['shapes'])}")
    if not measured or not all(one.get("modelled") for one in measured):
        return (*head, *("-" for _ in SUMMARY[len(head) :]))
    whole = [one for one in measured if not one["shape"]["variant"].startswith("chunked")]
    singles = [one for one in whole if one["shape"]["variant"] == "single"]
    chunked = [one for one in measured if one not in whole]
    first, longest = min(singles, key=_size), max(singles, key=_size)
    fullest = max([one for one in whole if one not in singles] or singles, key=_size)
    dram = [sum(one["dram_bytes"][part] for part in ("weights", "key_value", "activations_peak")) for one in measured]
    times = [
        "{rows}x{tokens}: {time} ({ideal})".format(**one["shape"], **dict(zip(("time", "ideal"), _modelled(one))))
        for one in (first, longest, fullest)
    ]
    return (
        *head,
        str(first["operations_per_layer"]),
        str(max(one["host_uploads"] + one["host_reads"] for one in measured)),
        f"{max(one['l1_bytes']['peak'] / one['l1_bytes']['limit'] for one in measured):.0%}",
        f"{max(dram) / measured[0]['dram_bytes']['capacity']:.0%}",
        *times,
        f"{_range(whole)}, {_range(chunked)}",
    )


def _range(ones: list[dict[str, Any]]) -> str:
    """Least and greatest multiple of the roofline of some passes, a dash where there are none."""
    multiples = [one["modelled"]["over_roofline"] for one in ones]
    return f"{min(multiples):.2f} to {max(multiples):.2f}x" if multiples else "-"


def _size(one: dict[str, Any]) -> tuple[int, int]:
    return one["shape"]["rows"] * one["shape"]["tokens"], one["shape"]["rows"]


def markdown(verdicts: Iterable[dict[str, Any]]) -> str:
    """The summary as a table for a README."""
    rows = [SUMMARY, tuple("---" for _ in SUMMARY), *summary_rows(verdicts)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render_summary(verdicts: Iterable[dict[str, Any]]) -> Any:
    table = _table("all modules", *SUMMARY)
    for row in summary_rows(verdicts):
        table.add_row(*row)
    return table


def _refusals(refusals: list[dict[str, Any]]) -> list[str]:
    """One paragraph for each line and kind of message, with the passes that it is refused for."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for one in refusals:
        groups.setdefault((one["file"], one["line"], one["message"][:SAME_MESSAGE]), []).append(one)
    lines = []
    for (file, line, _), ones in groups.items():
        names = list(dict.fromkeys(one["shape"] for one in ones))
        more = f" and {len(names) - SAME_LINE} more" if len(names) > SAME_LINE else ""
        inside = f" in {ones[0]['function']}" if ones[0]["function"] else ""
        lines.append(f"[red]REFUSED[/red] {file}:{line}{inside}, for {', '.join(names[:SAME_LINE])}{more}")
        lines += [f"  {_escape(ones[0]['code'])}"] if ones[0]["code"] else []
        lines.append(f"  {ones[0]['by']}: {_escape(' '.join(ones[0]['message'].split()))}")
        lines += [f"  from {key['place']}: {key['key']} = {_escape(key['value'])}" for key in ones[0]["keys"]]
        lines += [f"  {ones[0]['note']}"] if ones[0].get("note") else []
        lines.append("")
    return lines


def _summary(verdict: dict[str, Any]) -> str:
    passed = sum(one["passed"] for one in verdict["shapes"])
    colour, word = ("green", "legal") if verdict["passed"] else ("red", "REFUSED")
    return (
        f"[{colour}]{word}[/{colour}]: {verdict['model']} on {verdict['target']}, {passed} of"
        f" {len(verdict['shapes'])} passes that ran; {len(verdict['refusals'])} refusals"
    )


def _table(title: str, *headings: str, right: bool = True) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if right and index else "left", no_wrap=index == 0 or right)
    return table


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)

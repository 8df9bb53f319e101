"""The commands that weigh a request log with the runtime's own packing and planning: one chooses lengths for it, one replays it."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import click

from generator.options import (
    JSON_VERSION,
    Seconds,
    delay_option,
    json_option,
    manifests_option,
    output_folder,
    output_option,
    progress_line,
    target_option,
    window_option,
)


@click.command()
@click.argument("model")
@target_option
@click.option(
    "--workload", metavar="FILE", type=click.Path(path_type=Path), help="A request log [default: log-uniform lengths]."
)
@click.option("--max-lengths", metavar="N", type=click.IntRange(min=1), help="At most so many lengths [default: 9].")
@click.option(
    "--max-programs",
    metavar="N",
    type=click.IntRange(min=1),
    help="At most so many programs, each wave's regular and chunked variant counted [default: what the traces' region holds].",
)
@click.option(
    "--max-compile-seconds",
    metavar="SECONDS",
    type=Seconds(above_zero=True),
    help="At most so long for a processor to compile all programs, where no kernel is cached; an estimate.",
)
@click.option(
    "--chunk",
    metavar="N",
    type=click.IntRange(min=1),
    help="This prefill chunk [default: the quickest of some; the manifest's with --window and without FILE].",
)
@window_option
@delay_option
@click.option("--write", "written", is_flag=True, help="Put the choice into the manifest.")
@manifests_option
@json_option
def shapes(
    model,
    target,
    workload,
    max_lengths,
    max_programs,
    max_compile_seconds,
    chunk,
    window,
    most_delay,
    written,
    manifests,
    as_json,
) -> None:
    """Choose MODEL's lengths, prefill chunk and waves for a workload, by modelled time.

    FILE is CSV with a ContextTokens column, JSON lines with input_length and perhaps hash_ids (of 512 tokens each, equal where
    prefixes are), or a histogram, CSV with length and count. For prompts by themselves the choice is exact under the model of
    time that `show` prints, unless --max-compile-seconds binds, and each number of lengths is given with what one more would
    gain. With --window the log's arrivals count, and waves are chosen beside the manifest's chunk. Without FILE the choice is
    the one that `codegen import` writes: log-uniform lengths, each prompt counting alike, and as many lengths as gain a fiftieth
    each. Nothing was measured on a board.
    """
    from generator.choosing import command, telling
    from runtime.packing import MICROSECONDS, Packer

    with progress_line(as_json) as progress:
        found = command.find(
            manifests,
            model,
            target,
            workload,
            max_lengths,
            max_programs,
            chunk,
            partial(Packer, delay=MICROSECONDS * most_delay),
            window,
            max_compile_seconds,
            progress,
        )
    changed = command.write(found, manifests) if written else False
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, **telling.to_json(found), "written": changed}))
        return
    click.echo("\n".join(telling.lines(found)))
    if written:
        click.echo(f"written; next: codegen build {model}" if changed else "the manifest says so already")


@click.command()
@click.argument("model")
@target_option
@click.option(
    "--workload", metavar="FILE", type=click.Path(path_type=Path), required=True, help="A request log; see shapes."
)
@window_option
@delay_option
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="At most so many rows of a call.",
)
@click.option("--svg", "plot", metavar="FILE", type=click.Path(path_type=Path), help="Write the plot.")
@click.option(
    "--html", "page", metavar="FILE", type=click.Path(path_type=Path), help="Write a report that opens offline."
)
@output_option
@manifests_option
@json_option
def bench(model, target, workload, window, most_delay, rows, plot, page, output, manifests, as_json) -> None:
    """Replay a request log through MODEL's module and through powers of two.

    The module's own admission and planner cut each call into passes, whose time is modelled as `codegen show` prints it; beside it,
    what padding to 128, 1,024 and powers of two makes of the same calls. Nothing runs on a device.
    """
    from generator import geometry, manifest, targets
    from generator.choosing import report
    from generator.choosing.compiling import compiling
    from generator.choosing.replayed import numbers, replay
    from generator.choosing.rows import cut
    from generator.choosing.times import times
    from generator.choosing.workload import read, require_usable
    from generator.publish import check_file, write_new
    from generator.shapes import enumerate_shapes
    from generator.subjects import require_fresh, subjects_of

    if plot is not None and page is not None and plot.resolve() == page.resolve():
        raise click.UsageError("--svg and --html name the same file")
    for path in (plot, page):
        if path is not None:
            check_file(path)
    (subject,) = subjects_of(manifests, [model], target, False)
    folder = output_folder(output)
    require_fresh(folder, manifests, [subject])
    resolved = geometry.resolve(manifest.load(manifests, model), targets.load_board(manifests, subject.target))
    with progress_line(as_json) as progress:
        log = read(workload, lambda count: progress(f"{count} lines"))
        require_usable(log, str(workload), resolved.context, window)
        os.environ.setdefault("PREFILL_BACKEND", "emulator")  # only the module's tables are read
        from runtime.load import load
        from runtime.replay import Replay

        found = times(resolved, resolved.prefill_chunk)
        planner = Replay(load(folder / subject.module), most_delay)
        outcomes = replay(log, resolved, found, planner, window, rows, progress)
    asked = cut(log, resolved, resolved.prefill_chunk)
    passes = (
        [(shape.variant, shape.rows * shape.tokens) for shape in enumerate_shapes(resolved)],
        [(variant, count * tokens) for variant, count, tokens in outcomes[1].sizes],
    )
    compiler = compiling(resolved)
    policies = [
        numbers(outcome, asked.requests, needed, found.operations, compiler, resolved)
        for outcome, needed in zip(outcomes, passes)
    ]
    title = f"{model} on {subject.target}: {report.printable(workload.name)}"
    drawn = report.svg(title, asked.rows.rest, asked.rows.weight, resolved.lengths, policies)
    for path, text in ((plot, drawn), (page, report.html(title, drawn, policies))):
        if path is not None:
            write_new(path, text.encode())
    if as_json:
        shown = {"model": model, "target": subject.target, "workload": workload.name, "window": window, "rows": rows}
        shown |= {"tokens_saved": asked.cached, "empty": log.empty, "policies": policies}
        click.echo(json.dumps({"version": JSON_VERSION, **shown}))
        return
    click.echo("\n".join(report.lines(title, policies)))

"""The command line. Each command imports what it needs when it runs, so that --help and list answer at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from generator import benching, catalog, options, proving
from generator.errors import Diagnostic, ManifestError, did_you_mean
from generator.options import (
    JSON_VERSION,
    MISTAKE,
    STALE,
    json_option,
    manifests_option,
    output_folder,
    output_option,
    progress_line,
    target_option,
    undisturbed,
)


class Commands(click.Group):
    """Turns a refused input into its diagnostics and exit code 2, as JSON where the command was asked for JSON."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ManifestError as error:
            if ctx.obj:
                _print_errors(error.diagnostics)
            click.echo(str(error), err=True)
            ctx.exit(MISTAKE)
        except click.UsageError as error:
            if ctx.obj:
                _print_errors([Diagnostic("codegen", None, "", "", error.format_message(), "")])
            raise

    def resolve_command(self, ctx: click.Context, args: list[str]):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise click.UsageError(
                f'no command "{args[0]}"; {did_you_mean(args[0], self.list_commands(ctx))}', ctx
            ) from None


def _print_errors(diagnostics: Iterable[Diagnostic]) -> None:
    click.echo(json.dumps({"version": JSON_VERSION, "errors": [vars(problem) for problem in diagnostics]}))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="prefill-codegen")
def main() -> None:
    """Write, check and verify prefill modules for Tenstorrent chips.

    \b
    A model is a manifest: generator/manifests/models/NAME.toml.
      codegen list                          what there is, and what is proven of it
      codegen import config.json            write the manifest of a published model
      codegen build llama-3.2-1b            write its module for every target
      codegen shapes llama-3.2-1b --workload log.csv   choose its lengths for a request log
      codegen bench llama-3.2-1b --workload log.csv    replay it through the module's planner
      codegen build --all --check           exit 1 and say why if anything is stale
      codegen verify smollm2-135m           compare its module with a torch reference and with transformers
      codegen legal smollm2-135m            run its module on the real library's mock device
      codegen explain generated/llama_3_2_1b/n150.py:20
    Exit codes: 0 fine, 1 stale, refused or a failed comparison, 2 a mistake in what was asked.
    """


@main.command()
@click.argument("models", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every model of the manifest folder.")
@target_option
@click.option("--check", "mode", flag_value="check", help="Write nothing; exit 1 if anything is stale.")
@click.option(
    "--diff", "mode", flag_value="diff", help="Write nothing; print what would change; exit 1 if anything would."
)
@click.option("--dry-run", "mode", flag_value="dry-run", help="Write nothing; list what would be written.")
@click.option("--force", is_flag=True, help="Overwrite modules that were edited by hand.")
@click.option("--twin", is_flag=True, help="Build the small twin of each model, for numeric tests; needs --output.")
@click.option("--dump-ir", type=click.Path(path_type=Path), help="Write what every stage made below this folder.")
@output_option
@manifests_option
@json_option
@undisturbed()
def build(models, every, target, mode, force, twin, dump_ir, output, manifests, as_json) -> None:
    """Write the modules of MODELS, or of all models with --all.

    Only what changed is rendered again. Nothing is written if any manifest has a mistake or any module was edited by hand.
    """
    from generator import build as builder
    from generator import report
    from generator.publish import check_writable

    if bool(models) == every:
        raise click.UsageError(
            "name models or use --all, not both" if every else "name the models to build, or use --all"
        )
    if twin and output is None:
        raise click.UsageError("--twin needs --output DIR: twins are for tests and not committed")
    request = builder.Request(
        output_folder(output), manifests, tuple(dict.fromkeys(models)), target, twin, force, render=dump_ir is not None
    )
    if dump_ir is not None:
        check_writable(dump_ir, "--dump-ir")
    run = {None: builder.build, "dry-run": builder.plan}.get(mode, builder.examine)
    with progress_line(as_json) as progress:
        results = run(request, progress)
    if dump_ir is not None:
        from generator.dump import dump

        for result in results:
            if result.emitted is not None:
                dump(dump_ir, result.emitted)
    stale = any(result.stale for result in results)
    if as_json:
        modules = report.data(results)
        click.echo(
            json.dumps({"version": JSON_VERSION, "output": str(request.output), "stale": stale, "modules": modules})
        )
    elif mode == "diff":
        click.echo("".join(report.diffs(results)), nl=False)
    else:
        click.echo("\n".join(report.lines(results, mode)))
    if mode in ("check", "diff") and stale:
        sys.exit(STALE)


@main.command("list")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as the README has it.")
@output_option
@manifests_option
@json_option
def list_models(as_markdown, output, manifests, as_json) -> None:
    """List models: family, targets, context, what has been proven of each module, and when its inputs last changed.

    What was proven comes from proofs.json beside the modules, which `verify --record` and `legal --record` write; it counts while
    the module has the bytes that it was proven of. Inputs change on the day of a build that finds another manifest or target
    file than the build before, or templates or a generator that write another text of this module (UTC, or SOURCE_DATE_EPOCH).
    """
    from generator.listing import LEGEND, markdown, rows, table

    if as_json and as_markdown:
        raise click.UsageError("print JSON or a table, not both")
    found = rows(manifests, output or options.REPOSITORY / "generated")
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, "models": [one.to_json() for one in found]}))
    elif not found:
        click.echo(f"no models in {manifests / catalog.MODELS}")
    else:
        click.echo((markdown if as_markdown else table)(found) + "\n\n" + LEGEND)


@main.command("import")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--name", default=None, help="The model's name [default: from the file's, or its folder's].")
@click.option(
    "--target", "wanted", multiple=True, metavar="T", help="A board; may be repeated [default: all that it fits]."
)
@click.option("--force", is_flag=True, help="Overwrite a manifest that is there.")
@manifests_option
@json_option
@undisturbed()
def import_(config, name, wanted, force, manifests, as_json) -> None:
    """Write the manifest of the model that CONFIG, a Hugging Face config.json, describes.

    Its comments say which key each value came from, and which default an absent key has. What is not built is refused by name.
    """
    from generator.importing.command import import_file

    if manifests == catalog.BUILT_IN and not (options.REPOSITORY / "pyproject.toml").exists():
        rule = "codegen is installed outside a clone, whose manifests are not to be changed"
        raise ManifestError([Diagnostic("--manifests", None, "", "", rule, "name a folder with --manifests DIR")])
    imported = import_file(config, manifests, name, wanted, force)
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, **imported.to_json()}))
    else:
        click.echo("\n".join(imported.lines()))


@main.command()
@click.argument("model")
@target_option
@manifests_option
@json_option
def show(model, target, manifests, as_json) -> None:
    """Print a model resolved against its targets: every number, where it came from, and the memory it takes."""
    from generator import geometry, manifest, targets
    from generator.pass_time import pass_times
    from generator.shapes import enumerate_shapes

    def passes(one: geometry.Resolved):
        return pass_times(one, enumerate_shapes(one))

    file = manifest.load(manifests, model)
    names = [target] if target else list(file.manifest.target)
    resolved = [geometry.resolve(file, targets.load_board(manifests, name)) for name in names]
    if as_json:
        shown = [
            {
                **one.to_json(),
                "shapes": [{**shape.to_json(), "modelled": vars(time)} for shape, time in passes(one).items()],
            }
            for one in resolved
        ]
        click.echo(json.dumps({"version": JSON_VERSION, "model": model, "targets": shown}))
        return
    from generator.listing import describe

    for one in resolved:
        click.echo(describe(one, passes(one)))


@main.command()
@click.argument("place", metavar="FILE:LINE")
@output_option
@manifests_option
@json_option
def explain(place, output, manifests, as_json) -> None:
    """Say which template line and which manifest keys made a line of an emitted module."""
    from generator import build as builder
    from generator import inputs
    from generator.explain import explain as explain_line
    from generator.explain import key_places, shown_path

    name, _, number = place.rpartition(":")
    if not name or not number.isdecimal():
        raise click.UsageError("name a file and a line, for example generated/llama_3_2_1b/n150.py:20")
    path = Path(name)
    model, emitted = builder.emitted_at(builder.Request(output_folder(output), manifests), path)
    lines = emitted.text.count("\n")
    if not 1 <= int(number) <= lines:
        raise ManifestError(
            [Diagnostic(str(path), None, "line", number, f"has lines 1 to {lines}", "name one of them")]
        )
    found = explain_line(emitted, int(number), inputs.TEMPLATES)
    keys = key_places(manifests, model, found.keys)
    origin = f"{shown_path(inputs.TEMPLATES / found.origin.template)}:{found.origin.line}" if found.origin else None
    if as_json:
        shown = {"line": found.text, "template": origin, "template_line": found.template_text, "keys": keys}
        click.echo(json.dumps({"version": JSON_VERSION, **shown}))
        return
    click.echo(f"{place}\n  {found.text.strip()}\nmade by {origin or 'the formatter'}\n  {found.template_text}")
    for key in keys:
        click.echo(f"from {key['place']}: {key['key']} = {key['value']}")


for command in (proving.verify, proving.legal, benching.shapes, benching.bench):
    main.add_command(command)

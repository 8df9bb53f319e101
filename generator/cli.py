"""The command line. Each command imports what it needs when it runs, so that --help and list answer at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from generator import catalog
from generator.errors import Diagnostic, ManifestError

REPOSITORY = Path(__file__).parent.parent
STALE, MISTAKE = 1, 2
JSON_VERSION = 1


class Commands(click.Group):
    """Turns a refused input into its diagnostics and exit code 2, as JSON where the command was asked for JSON."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ManifestError as error:
            if "--json" in sys.argv:
                problems = [vars(problem) for problem in error.diagnostics]
                click.echo(json.dumps({"version": JSON_VERSION, "errors": problems}))
            click.echo(str(error), err=True)
            ctx.exit(MISTAKE)

    def resolve_command(self, ctx: click.Context, args: list[str]):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from generator.errors import did_you_mean

            raise click.UsageError(f'no command "{args[0]}"; {did_you_mean(args[0], self.list_commands(ctx))}', ctx) from None


def _folder(name: str) -> click.Path:
    return click.Path(path_type=Path, file_okay=True)


manifests_option = click.option(
    "--manifests",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=catalog.BUILT_IN,
    help="Folder with models/*.toml and targets/*.toml [default: the ones that ship with codegen].",
)
output_option = click.option(
    "--output", type=click.Path(path_type=Path), default=None, help="Folder for emitted modules [default: generated/ of the clone]."
)
target_option = click.option("--target", metavar="T", help="Only this board, for example n150.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def _output(chosen: Path | None) -> Path:
    if chosen is not None:
        return chosen
    if not (REPOSITORY / "pyproject.toml").exists():
        rule = "codegen is installed outside a clone, so there is no generated/ folder of its own"
        raise ManifestError([Diagnostic("--output", None, "", "", rule, "name a folder with --output DIR")])
    return REPOSITORY / "generated"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="prefill-codegen")
def main() -> None:
    """Write, check and verify prefill modules for Tenstorrent chips.

    \b
    A model is a manifest: generator/manifests/models/NAME.toml.
      codegen list                          what there is
      codegen build llama-3.2-1b            write its module for every target
      codegen build --all --check           exit 1 and say why if anything is stale
      codegen verify smollm2-135m           compare its module with a torch reference and with transformers
      codegen explain generated/llama_3_2_1b/n150.py:20
    Exit codes: 0 fine, 1 stale or a failed comparison, 2 a mistake in what was asked.
    """


@main.command()
@click.argument("models", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every model of the manifest folder.")
@target_option
@click.option("--check", "mode", flag_value="check", help="Write nothing; exit 1 if anything is stale.")
@click.option("--diff", "mode", flag_value="diff", help="Write nothing; print what would change; exit 1 if anything would.")
@click.option("--dry-run", "mode", flag_value="dry-run", help="Write nothing; list what would be written.")
@click.option("--force", is_flag=True, help="Overwrite modules that were edited by hand.")
@click.option("--twin", is_flag=True, help="Build the small twin of each model, for numeric tests; needs --output.")
@click.option("--dump-ir", type=click.Path(path_type=Path), help="Write what every stage made below this folder.")
@output_option
@manifests_option
@json_option
def build(models, every, target, mode, force, twin, dump_ir, output, manifests, as_json) -> None:
    """Write the modules of MODELS, or of all models with --all.

    Only what changed is rendered again. Nothing is written if any manifest has a mistake or any module was edited by hand.
    """
    from generator import build as builder

    if bool(models) == every:
        raise click.UsageError("name the models to build, or use --all" if not models else "name models or use --all, not both")
    if twin and output is None:
        raise click.UsageError("--twin needs --output DIR: twins are for tests and not committed")
    request = builder.Request(_output(output), manifests, models, target, twin, force)
    with _progress(as_json) as progress:
        if mode is None:
            results = builder.build(request, progress)
        else:
            results = builder.examine(request, progress)
    if dump_ir is not None:
        from generator.dump import dump

        for result in results:
            dump(dump_ir, builder.rendered(request, result))
    stale = [result for result in results if result.stale]
    if as_json:
        rows = [{"path": r.path, "model": r.model, "target": r.target, "status": r.status, "reasons": r.reasons} for r in results]
        click.echo(json.dumps({"version": JSON_VERSION, "output": str(request.output), "stale": bool(stale), "modules": rows}))
    else:
        _say(results, mode)
    if mode in ("check", "diff") and stale:
        sys.exit(STALE)


def _say(results, mode: str | None) -> None:
    words = {"changed": "changed", "missing": "missing", "edited": "edited by hand", "extra": "extra", "same bytes": "inputs changed"}
    if mode == "diff":
        for result in results:
            click.echo(result.diff(), nl=False)
        return
    stale = [result for result in results if result.stale]
    verb = {"check": "stale", "dry-run": "would write", None: "wrote"}[mode]
    for result in stale:
        why = f" ({'; '.join(result.reasons)})" if result.reasons else ""
        click.echo(f"{verb}: {result.path}: {words[result.status]}{why}")
    click.echo(f"{len(results)} modules, {len(results) - len(stale)} up to date, {len(stale)} {verb}")


class _progress:
    """A spinner line on a terminal for builds over a second; silent elsewhere."""

    def __init__(self, as_json: bool) -> None:
        self.shown = not as_json and sys.stderr.isatty()

    def __enter__(self):
        import time

        began = time.monotonic()

        def step(path: str) -> None:
            if self.shown and time.monotonic() - began > 1:
                click.echo(f"\r\x1b[K{path}", nl=False, err=True)

        return step

    def __exit__(self, *unused: object) -> None:
        if self.shown:
            click.echo("\r\x1b[K", nl=False, err=True)


@main.command("list")
@manifests_option
@json_option
def list_models(manifests, as_json) -> None:
    """List models with family, size and targets."""
    from generator.listing import rows

    table = rows(manifests)
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, "models": table}))
        return
    widths = [max(len(row[key]) for row in [*table, {k: k for k in table[0]}]) for key in ("name", "family", "targets")] if table else []
    if not table:
        click.echo(f"no models in {manifests / catalog.MODELS}")
        return
    for row in [{key: key for key in ("name", "family", "targets")}, *table]:
        click.echo("  ".join(row[key].ljust(width) for key, width in zip(("name", "family", "targets"), widths)).rstrip())


@main.command()
@click.argument("model")
@target_option
@manifests_option
@json_option
def show(model, target, manifests, as_json) -> None:
    """Print a model resolved against its targets: every number, where it came from, and the memory it takes."""
    from generator import geometry, manifest, targets
    from generator.shapes import enumerate_shapes

    file = manifest.load(manifests, model)
    names = [target] if target else list(file.manifest.target)
    resolved = [geometry.resolve(file, targets.load_board(manifests, name)) for name in names]
    if as_json:
        shown = [{**one.to_json(), "shapes": [vars(shape) for shape in enumerate_shapes(one)]} for one in resolved]
        click.echo(json.dumps({"version": JSON_VERSION, "model": model, "targets": shown}))
        return
    from generator.listing import describe

    for one in resolved:
        click.echo(describe(one, enumerate_shapes(one)))


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

    name, _, number = place.rpartition(":")
    path = Path(name).resolve()
    if not name or not number.isdigit():
        raise click.UsageError("name a file and a line, for example generated/llama_3_2_1b/n150.py:20")
    emitted = builder.emitted_at(builder.Request(_output(output), manifests), path)
    lines = emitted.text.count("\n")
    if not 1 <= int(number) <= lines:
        rule = f"has lines 1 to {lines}"
        raise ManifestError([Diagnostic(str(path), None, "", number, rule, "name one of them")])
    found = explain_line(emitted, int(number), inputs.TEMPLATES)
    keys = builder.key_places(manifests, emitted, found.keys)
    origin = f"templates/{found.origin.template}:{found.origin.line}" if found.origin else "the formatter"
    if as_json:
        shown = {"line": found.text, "template": origin, "template_line": found.template_text, "keys": keys}
        click.echo(json.dumps({"version": JSON_VERSION, **shown}))
        return
    click.echo(f"{place}\n  {found.text.strip()}\nmade by {origin}\n  {found.template_text}")
    for key in keys:
        click.echo(f"from {key['place']}: {key['key']} = {key['value']}")


@main.command()
@click.argument("model")
@target_option
@click.option("--weights", default="auto", show_default=True, help="A safetensors file or folder, a GGUF file, random, or auto: the package that the manifest names.")
@click.option("--prompt", "prompts", multiple=True, help="A prompt of your own; may be repeated.")
@click.option("--device", type=int, default=None, help="Run on this Tenstorrent device through ttnn instead of the emulator.")
@output_option
@manifests_option
@json_option
def verify(model, target, weights, prompts, device, output, manifests, as_json) -> None:
    """Run MODEL's emitted module on real prompts and compare it with a torch reference and with transformers.

    Prints the five likeliest next tokens of each, the correlation of the logits and the time. Exit 1 if a comparison fails.
    """
    from generator.verification import run

    passed, text = run(model, target, weights, prompts, device, _output(output), manifests, as_json)
    click.echo(text, nl=not text.endswith("\n"))
    sys.exit(0 if passed else STALE)

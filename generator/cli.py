"""The command line. Each command imports what it needs when it runs, so that --help and list answer at once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from generator import catalog
from generator.errors import Diagnostic, ManifestError, did_you_mean

REPOSITORY = Path(__file__).parent.parent
STALE, MISTAKE = 1, 2
JSON_VERSION = 1


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


manifests_option = click.option(
    "--manifests",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=catalog.BUILT_IN,
    help="Folder with models/*.toml and targets/*.toml [default: the ones that ship with codegen].",
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder for emitted modules [default: generated/ of the clone].",
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
      codegen import config.json            write the manifest of a published model
      codegen build llama-3.2-1b            write its module for every target
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
        _output(output), manifests, tuple(dict.fromkeys(models)), target, twin, force, render=dump_ir is not None
    )
    if dump_ir is not None:
        check_writable(dump_ir, "--dump-ir")
    run = {None: builder.build, "dry-run": builder.plan}.get(mode, builder.examine)
    with _progress(as_json) as progress:
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


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Shows which module is being looked at, on a terminal and once a second has passed; silent elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda path: None
        return
    began = time.monotonic()

    def step(path: str) -> None:
        if time.monotonic() - began > 1:
            click.echo(f"\r\x1b[K{path}", nl=False, err=True)

    try:
        yield step
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


@main.command("list")
@manifests_option
@json_option
def list_models(manifests, as_json) -> None:
    """List models with family, size and targets."""
    from generator.listing import rows, table

    found = rows(manifests)
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, "models": found}))
    else:
        click.echo(table(found) if found else f"no models in {manifests / catalog.MODELS}")


@main.command("import")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--name", default=None, help="The model's name [default: from the file's, or its folder's].")
@click.option("--target", "wanted", multiple=True, metavar="T", help="A board; may be repeated [default: all that it fits].")
@click.option("--force", is_flag=True, help="Overwrite a manifest that is there.")
@manifests_option
@json_option
def import_(config, name, wanted, force, manifests, as_json) -> None:
    """Write the manifest of the model that CONFIG, a Hugging Face config.json, describes.

    Its comments say which key each value came from, and which default an absent key has. What is not built is refused by name.
    """
    from generator.importing.command import import_file

    if manifests == catalog.BUILT_IN and not (REPOSITORY / "pyproject.toml").exists():
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
    from generator.explain import key_places, shown_path

    name, _, number = place.rpartition(":")
    if not name or not number.isdecimal():
        raise click.UsageError("name a file and a line, for example generated/llama_3_2_1b/n150.py:20")
    path = Path(name)
    model, emitted = builder.emitted_at(builder.Request(_output(output), manifests), path)
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


@main.command()
@click.argument("model")
@target_option
@click.option(
    "--weights",
    default="auto",
    show_default=True,
    help="A safetensors file or folder, a GGUF file, random, or auto: the package that the manifest names.",
)
@click.option("--prompt", "prompts", multiple=True, help="A prompt of your own; may be repeated.")
@click.option(
    "--device", type=int, default=None, help="Run on this Tenstorrent device through ttnn instead of the emulator."
)
@output_option
@manifests_option
@json_option
def verify(model, target, weights, prompts, device, output, manifests, as_json) -> None:
    """Run MODEL's emitted module on real prompts and compare it with a torch reference and with transformers.

    Prints the five likeliest next tokens of each, the correlation of the logits and the time. Exit 1 if a comparison fails.
    """
    import os

    from generator.build import module_path
    from generator.listing import outline

    if device is not None:
        os.environ["PREFILL_BACKEND"] = "ttnn"
    names, packaged = outline(manifests, model)
    if target is not None and target not in names:
        raise _no_such_target(manifests, model, target, names)
    # From here on the runtime is used; nothing of it is imported before the backend is chosen.
    from runtime.errors import PrefillError

    try:
        from runtime import backend
        from runtime.load import load
        from runtime.verification.report import render
        from runtime.verify import main_verification

        report = main_verification(
            load(_output(output) / module_path(model, target or names[0], twin=False)),
            weights=weights,
            prompts=prompts or None,
            device_id=device or 0,
            precisions=("float32", "declared") if backend.name == "emulator" else ("declared",),
            package_file=(packaged["package"], packaged["file"]) if packaged else None,
            progress=lambda text: click.echo(f"... {text}", err=True) if sys.stderr.isatty() else None,
        )
    except PrefillError as error:
        if as_json:
            click.echo(json.dumps({"version": JSON_VERSION, "errors": [{"rule": str(error)}]}))
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(MISTAKE)
    if as_json:
        click.echo(json.dumps({"version": JSON_VERSION, **report.to_json()}))
    else:
        _print(render(report))
    sys.exit(0 if report.passed else STALE)


def _no_such_target(manifests: Path, model: str, target: str, names: Iterable[str]) -> ManifestError:
    path, rule = str(catalog.find(manifests, catalog.MODELS, model)), f"{model} has no table for this target"
    return ManifestError([Diagnostic(path, None, "target", f'"{target}"', rule, did_you_mean(target, names))])


def _print(parts: Iterable[Any], width: int | None = None) -> None:
    """Rich renderables; a terminal's own width goes before `width`."""
    from rich.console import Console

    console = Console()
    if width is not None and not console.is_terminal:
        console.width = width
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), highlight=False)


@main.command()
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every model of the manifest folder, on each of its targets.")
@target_option
@click.option(
    "--cluster-descriptor",
    "descriptor",
    type=click.Path(path_type=Path),
    default=None,
    help="Describe the chip with this YAML file [default: the project's own for the target].",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print one line for each module, as the README has them.")
@output_option
@manifests_option
@json_option
def legal(models, every, target, descriptor, as_markdown, output, manifests, as_json) -> None:
    """Run every pass of MODEL's emitted module on a mock device of the real library, at full size.

    Nothing is computed: this shows what the library refuses, and the operations, memory and cores of every pass.
    Without --target it is the first target of the manifest. Exit 1 if anything is refused.
    """
    from generator.build import Request, module_path
    from generator.captured import add_modelled_time
    from generator.explain import shown_path
    from generator.listing import outline

    if bool(models) == every:
        raise click.UsageError(
            "name models or use --all, not both" if every else "name the models to check, or use --all"
        )
    if as_json and as_markdown:
        raise click.UsageError("print JSON or a table, not both")
    folder = _output(output)
    # From here on the runtime is used. It never imports the device library into this process.
    from runtime.legality.command import Job, check
    from runtime.legality.errors import CannotCheck
    from runtime.legality.table import markdown, render, render_summary

    jobs = []
    for model in models or catalog.names(manifests):
        names = outline(manifests, model)[0]
        if target is not None and target not in names and not every:
            raise _no_such_target(manifests, model, target, names)
        for name in names if every and target is None else [target or names[0]]:
            if name in names:
                path = folder / module_path(model, name, twin=False)
                jobs.append(Job(model, name, path, shown_path(path)))
    verdicts = []
    try:
        with _progress(as_json) as progress:
            for verdict in check(jobs, descriptor, progress):
                _name_keys(Request(folder, manifests), verdict)
                add_modelled_time(verdict, manifests)
                verdicts.append(verdict)
                progress("")
                if not (as_json or as_markdown):
                    _print(render(verdict), width=110)
    except CannotCheck as error:
        if as_json:
            click.echo(json.dumps({"version": JSON_VERSION, "errors": [{"rule": str(error)}]}))
        click.echo(str(error), err=True)
        sys.exit(MISTAKE)
    if as_json:
        one = len(verdicts) == 1 and not every
        click.echo(json.dumps(verdicts[0] if one else {"version": JSON_VERSION, "modules": verdicts}))
    elif as_markdown:
        click.echo(markdown(verdicts))
    elif every:
        _print([render_summary(verdicts)], width=160)
    sys.exit(0 if all(verdict["passed"] for verdict in verdicts) else STALE)


def _name_keys(request: Any, verdict: dict[str, Any]) -> None:
    """Add to each refusal the manifest keys behind its line, or why they cannot be told."""
    from generator import inputs
    from generator.build import emitted_at
    from generator.explain import explain, key_places
    from runtime.legality.blame import lines_behind

    if not verdict["refusals"]:
        return
    path = Path(verdict["refusals"][0]["file"])
    try:
        model, emitted = emitted_at(request, path)
    except ManifestError as error:
        for refusal in verdict["refusals"]:
            refusal["note"] = f"no manifest keys can be named: {error}"
        return
    places: dict[int, list[dict[str, str]]] = {}
    for refusal in verdict["refusals"]:
        line = refusal["line"]
        if line and line not in places:
            behind = lines_behind(emitted.text, line)
            keys = dict.fromkeys(key for one in behind for key in explain(emitted, one, inputs.TEMPLATES).keys)
            places[line] = key_places(request.manifests, model, keys)
        refusal["keys"] = places.get(line, [])

"""The commands that prove something of an emitted module: verify by numbers, legal on the real library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from generator import proofs
from generator.errors import ManifestError
from generator.lock import module_path
from generator.options import (
    JSON_VERSION,
    MISTAKE,
    STALE,
    json_option,
    manifests_option,
    output_folder,
    output_option,
    progress_line,
    record_option,
    target_option,
)
from generator.subjects import Subject, digest_of, record, require_fresh, subjects_of


def _print(parts: Iterable[Any], width: int | None = None) -> None:
    """Rich renderables; a terminal's own width goes before `width`."""
    from rich.console import Console

    console = Console()
    if width is not None and not console.is_terminal:
        console.width = width
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), highlight=False)


@contextmanager
def _module(output: Path, manifests: Path, subject: Subject, small: bool) -> Iterator[Path]:
    """The file to run: the emitted module, or its twin, which is gone afterwards."""
    if not small:
        yield output / subject.module
        return
    import tempfile

    from generator.build import Request, build

    with tempfile.TemporaryDirectory() as folder:
        build(Request(Path(folder), manifests, (subject.model,), subject.target, twin=True))
        yield Path(folder) / module_path(subject.model, subject.target, twin=True)


def _verified(path: Path, subject: Subject, weights: str, prompts: Sequence[str], device: int | None) -> Any:
    """The report of one module, in every precision that the device has."""
    from runtime import backend
    from runtime.load import load
    from runtime.verify import DECLARED, FLOAT32, main_verification

    return main_verification(
        load(path),
        weights=weights,
        prompts=prompts or None,
        device_id=device or 0,
        precisions=(FLOAT32, DECLARED) if backend.name == "emulator" else (DECLARED,),
        package_file=subject.packaged,
        progress=lambda text: click.echo(f"... {text}", err=True) if sys.stderr.isatty() else None,
    )


def _shown(report: Any, subject: Subject, how: str, module: str, ran: str) -> dict[str, proofs.Proof | None]:
    """What a verification shows: logic where nothing is rounded, precision with the declared dtypes."""
    from runtime.verify import DECLARED, FLOAT32

    size = proofs.TWIN if ran != module else proofs.FULL_SIZE
    weights = "random weights" if report.weights.startswith("random") else f"weights {Path(report.weights).name}"
    command = f"codegen verify {subject.model} --target {subject.target}{how}"
    measured = {
        "logic": (FLOAT32, "worst_relative_error", lambda cases: float(f"{max(map(_worst_error, cases)):.2g}")),
        "precision": (DECLARED, "worst_correlation", lambda cases: round(min(one.pcc_logits for one in cases), 5)),
    }
    shown: dict[str, proofs.Proof | None] = {}
    for kind, (precision, name, worst) in measured.items():
        cases = [one for one in report.cases if one.precision == precision]
        passed = bool(cases) and all(one.passed for one in cases)
        numbers = {"comparisons": len(cases), name: worst(cases)} if passed else {}
        shown[kind] = proofs.Proof(command, f"{size}, {weights}", numbers, module, ran) if passed else None
    return shown


def _worst_error(case: Any) -> float:
    return max(case.max_relative_error, case.keys_max_relative_error, case.values_max_relative_error)


@click.command()
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every model on each of its targets: with the weights of the package that its manifest names, or its twin.",
)
@click.option("--twin", is_flag=True, help="The model's twin, small and of the same rules, with random weights.")
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
@record_option
@output_option
@manifests_option
@json_option
def verify(models, every, twin, target, weights, prompts, device, recorded, output, manifests, as_json) -> None:
    """Run MODEL's emitted module on real prompts and compare it with a torch reference and with transformers.

    Prints the five likeliest next tokens of each, the correlation of the logits and the time. Without --target it is the first
    target of the manifest. Exit 1 if a comparison fails.
    """
    if (every or twin) and weights != "auto":
        raise click.UsageError(
            "twins have random weights, and --all takes those that manifests name; leave --weights out"
        )
    if recorded and (prompts or device is not None):
        raise click.UsageError(
            "what is recorded is the emulator's answers to the project's own prompts; leave the others out"
        )
    subjects, folder = list(subjects_of(manifests, models, target, every)), output_folder(output)
    if recorded:
        require_fresh(folder, manifests, subjects)
        os.environ["PREFILL_BACKEND"] = "emulator"  # also where the library is installed
    if device is not None:
        os.environ["PREFILL_BACKEND"] = "ttnn"
    # From here on the runtime is used; nothing of it is imported before the backend is chosen.
    from runtime.errors import PrefillError

    reports = []
    try:
        from runtime.verification.report import brief, render

        for subject in subjects:
            small = twin or (every and subject.packaged is None)
            before = digest_of(folder / subject.module)
            with _module(folder, manifests, subject, small) as path:
                report = _verified(path, subject, "random" if small else weights, prompts, device)
                ran = digest_of(path)
            if recorded:
                how = " --twin" if small else "" if weights == "auto" else f" --weights {Path(weights).name}"
                record(folder, subject, _shown(report, subject, how, before, ran))
            reports.append(report)
            if not as_json:
                _print(brief(report) if every else render(report))
    except PrefillError as error:
        if as_json:
            click.echo(json.dumps({"version": JSON_VERSION, "errors": [{"rule": str(error)}]}))
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(MISTAKE)
    if as_json:
        shown = [report.to_json() for report in reports]
        whole = shown[0] if len(shown) == 1 and not every else {"modules": shown}
        click.echo(json.dumps({"version": JSON_VERSION, **whole}))
    sys.exit(0 if all(report.passed for report in reports) else STALE)


@click.command()
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
@record_option
@output_option
@manifests_option
@json_option
def legal(models, every, target, descriptor, as_markdown, recorded, output, manifests, as_json) -> None:
    """Run every pass of MODEL's emitted module on a mock device of the real library, at full size.

    Nothing is computed: this shows what the library refuses, and the operations, memory and cores of every pass.
    Without --target it is the first target of the manifest. Exit 1 if anything is refused.
    """
    from generator.build import Request
    from generator.captured import add_modelled_time
    from generator.explain import shown_path

    subjects = list(subjects_of(manifests, models, target, every))
    if as_json and as_markdown:
        raise click.UsageError("print JSON or a table, not both")
    if recorded and descriptor is not None:
        raise click.UsageError("what is recorded holds on the project's own boards; leave --cluster-descriptor out")
    folder = output_folder(output)
    if recorded:
        require_fresh(folder, manifests, subjects)
    # From here on the runtime is used. It never imports the device library into this process.
    from runtime.legality.command import Job, check
    from runtime.legality.errors import CannotCheck
    from runtime.legality.table import markdown, render, render_summary

    jobs = [Job(one.model, one.target, folder / one.module, shown_path(folder / one.module)) for one in subjects]
    before = {(one.model, one.target): (one, digest_of(folder / one.module)) for one in subjects}
    verdicts = []
    try:
        with progress_line(as_json) as progress:
            for verdict in check(jobs, descriptor, progress):
                _name_keys(Request(folder, manifests), verdict)
                add_modelled_time(verdict, manifests)
                if recorded:
                    _record_legal(folder, verdict, *before[verdict["model"], verdict["target"]])
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


def _record_legal(output: Path, verdict: dict[str, Any], subject: Subject, digest: str) -> None:
    proof = None
    if verdict["passed"]:
        command = f"codegen legal {subject.model} --target {subject.target}"
        proof = proofs.Proof(command, proofs.FULL_SIZE, {"passes": len(verdict["shapes"])}, digest, digest)
    record(output, subject, {"legal": proof})


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

"""The modules that a proving command is asked about, and the record of what it shows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from generator import catalog, proofs
from generator.errors import Diagnostic, ManifestError, did_you_mean
from generator.lock import module_path


@dataclass(frozen=True)
class Subject:
    """One module that something is to be shown of; `packaged` is the package and file that carry its weights, if any does."""

    model: str
    target: str
    module: str  # its path below the output folder
    packaged: tuple[str, str] | None


def subjects_of(manifests: Path, models: Sequence[str], target: str | None, every: bool) -> Iterator[Subject]:
    """The modules asked for: those named on `target` or their first one, or with `every` all there are, on `target` alone
    where it is given. Raises UsageError and ManifestError for what is none."""
    from generator.listing import outline

    if bool(models) == every:
        raise click.UsageError(
            "name models or use --all, not both" if every else "name the models to check, or use --all"
        )
    for model in dict.fromkeys(models) or catalog.names(manifests):
        names, packaged = outline(manifests, model)
        if target is not None and target not in names and not every:
            raise _no_such_target(manifests, model, target, names)
        for name in names if every and target is None else [target or names[0]]:
            if name in names:
                carried = (packaged["package"], packaged["file"]) if packaged else None
                yield Subject(model, name, module_path(model, name, twin=False), carried)


def _no_such_target(manifests: Path, model: str, target: str, names: Iterable[str]) -> ManifestError:
    path, rule = str(catalog.find(manifests, catalog.MODELS, model)), f"{model} has no table for this target"
    return ManifestError([Diagnostic(path, None, "target", f'"{target}"', rule, did_you_mean(target, names))])


def require_fresh(output: Path, manifests: Path, subjects: Sequence[Subject]) -> None:
    """Raise ManifestError where a module is not what a build would write now, so that what is shown of it, or of its twin,
    is shown of what is committed."""
    from generator.build import Request, examine

    results = examine(Request(output, manifests, tuple(dict.fromkeys(one.model for one in subjects))))
    asked = {one.module for one in subjects}
    stale = [one for one in results if one.path in asked and one.stale]
    if stale:
        rule, hint = "is not what a build would write now, so nothing is shown of it", "codegen build --all"
        raise ManifestError(Diagnostic(str(output / one.path), None, "", "", rule, f"{hint} first") for one in stale)


def digest_of(path: Path) -> str:
    """Of a module's bytes as they are now; empty where there are none, which is no digest."""
    from generator.inputs import digest

    return digest(path.read_bytes()) if path.is_file() else ""


def record(output: Path, subject: Subject, shown: Mapping[str, proofs.Proof | None]) -> None:
    """Record what was shown of a module and say what was not."""
    proofs.record(output, subject.module, shown)
    for kind in [kind for kind, proof in shown.items() if proof is None]:
        click.echo(f"not recorded: {kind} of {subject.model} on {subject.target} failed", err=True)

"""Decide what is stale, render it, and say what would change; publishing is the last and only effect."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator import catalog, inputs, lock
from generator.errors import Diagnostic, ManifestError, did_you_mean
from generator.publish import check_writable, publish

if TYPE_CHECKING:
    from generator.pipeline import Emitted

PACKAGE_FILES = {"__init__.py": b'"""Prefill modules written by codegen: one folder for each model, one file for each target."""\n'}
FRESH = ("unchanged", "same bytes")


@dataclass(frozen=True)
class Job:
    """One module to look at: names, input digests, and what the lock says of it."""

    model: str
    target: str
    path: str
    recorded: lock.Entry | None
    current: lock.Entry  # with an empty output digest until it is rendered


@dataclass(frozen=True)
class Result:
    """What became of one file. `status`: unchanged, same bytes (only recorded inputs differ), changed, missing, edited, extra."""

    path: str
    model: str
    target: str
    status: str
    reasons: tuple[str, ...]
    before: str
    after: str | None  # None where it was not rendered
    emitted: Emitted | None = None
    entry: lock.Entry | None = None

    @property
    def stale(self) -> bool:
        return self.status != "unchanged" and not (self.status == "same bytes" and not self.reasons)

    def diff(self) -> str:
        """Unified diff from the file as it is to what a build writes."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            self.path,
            f"{self.path} (built)",
        )
        return "".join(lines)


@dataclass(frozen=True)
class Request:
    """What the user asked for. Empty `models` means all of them; `target` narrows every model to one board."""

    output: Path
    manifests: Path
    models: tuple[str, ...] = ()
    target: str | None = None
    twin: bool = False
    force: bool = False


def _module_path(model: str, target: str, twin: bool) -> str:
    folder = model.replace(".", "_").replace("-", "_") + ("_twin" if twin else "")
    return f"{folder}/{target}.py"


def _declared_targets(manifests: Path, model: str) -> tuple[str, ...]:
    """Targets of a model, from its whole checked manifest: every mistake in it is reported before anything is built."""
    from generator import manifest  # pydantic is not needed when nothing changed

    return tuple(manifest.load(manifests, model).manifest.target)


def _jobs(request: Request, recorded: lock.Lock) -> list[Job]:
    """One job for each model and target asked for; targets come from the lock where the manifest is the recorded one."""
    sources = inputs.digest(json.dumps(inputs.sources()).encode())
    jobs = []
    for model in request.models or catalog.names(request.manifests):
        path = catalog.find(request.manifests, catalog.MODELS, model)
        digest = inputs.digest(catalog.read(path).encode())
        known = [e for e in recorded.modules.values() if e.model == model]
        if known and not request.twin and all(e.manifest == digest for e in known):
            targets: Sequence[str] = [e.target for e in known]
            if request.target is not None and request.target not in targets:
                targets = _declared_targets(request.manifests, model)
        else:
            targets = _declared_targets(request.manifests, model)
        if request.target is not None:
            if request.target not in targets:
                if request.models or request.target not in catalog.names(request.manifests, catalog.TARGETS):
                    known_targets = sorted({*targets} if request.models else catalog.names(request.manifests, catalog.TARGETS))
                    rule = f"{model} has no table for this target"
                    hint = did_you_mean(request.target, known_targets)
                    raise ManifestError([Diagnostic(str(path), None, "target", f'"{request.target}"', rule, hint)])
                continue
            targets = [request.target]
        for target in targets:
            board = catalog.read(catalog.find(request.manifests, catalog.TARGETS, target)).encode()
            current = lock.Entry(model, target, digest, inputs.digest(board), sources, inputs.tools(), "")
            where = _module_path(model, target, request.twin)
            jobs.append(Job(model, target, where, recorded.modules.get(where), current))
    return jobs


def _reasons(job: Job, recorded: lock.Lock) -> tuple[str, ...]:
    """Which recorded inputs of a module are not today's. A new tool version is no reason: it only renders again."""
    if job.recorded is None:
        return ("never built here",)
    reasons = []
    if job.recorded.manifest != job.current.manifest:
        reasons.append(f"{catalog.MODELS}/{job.model}.toml changed")
    if job.recorded.board != job.current.board:
        reasons.append(f"{catalog.TARGETS}/{job.target}.toml changed")
    if job.recorded.sources != job.current.sources:
        now = inputs.sources()
        changed = sorted(name for name in now.keys() | recorded.sources.keys() if now.get(name) != recorded.sources.get(name))
        reasons += [f"{name} changed" for name in changed] or ["the generator changed since it was built"]
    return tuple(reasons)


def _emit(request: Request, job: Job) -> Emitted:
    from generator import geometry, manifest, targets, twin
    from generator.pipeline import emit

    file = manifest.load(request.manifests, job.model)
    if request.twin:
        file = twin.twin(file)
    resolved = geometry.resolve(file, targets.load_board(request.manifests, job.target))
    return emit(resolved, f"{catalog.MODELS}/{job.model}.toml", inputs.TEMPLATES)


def _look_at(request: Request, job: Job, recorded: lock.Lock, pending: lock.Lock) -> Result:
    path = request.output / job.path
    try:
        content = path.read_bytes() if path.exists() else None
    except OSError as error:
        rule = f"cannot be read ({error.strerror})"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, "make it a readable file, or remove it")]) from None
    digest = inputs.digest(content) if content is not None else None
    reasons = _reasons(job, recorded)
    before = content.decode("utf-8", "replace") if content is not None else ""
    if not reasons and digest == job.recorded.output and job.recorded.tools == job.current.tools:
        return Result(job.path, job.model, job.target, "unchanged", (), before, before, entry=job.recorded)
    emitted = _emit(request, job)
    after = emitted.text.encode()
    entry = lock.Entry(**{**vars(job.current), "output": inputs.digest(after)})
    ours = {e.output for e in (job.recorded, pending.modules.get(job.path)) if e is not None} | {entry.output}
    if content is None:
        status = "missing"
    elif digest not in ours:
        status = "edited"
    else:
        status = "same bytes" if content == after else "changed"
    return Result(job.path, job.model, job.target, status, reasons, before, emitted.text, emitted, entry)


def _extras(request: Request, recorded: lock.Lock, jobs: Iterable[Job]) -> list[Result]:
    """Modules on disk or in the lock that no manifest asks for; only a look at everything can tell."""
    if request.models or request.target is not None or request.twin:
        return []
    expected = {job.path for job in jobs}
    on_disk = {path.relative_to(request.output).as_posix() for path in request.output.glob("*/*.py")}
    names = {name for name in on_disk | recorded.modules.keys() if not name.endswith("__init__.py")} - expected
    results = []
    for name in sorted(names):
        entry = recorded.modules.get(name)
        path = request.output / name
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        reason = "no manifest asks for it" if entry else "no manifest asks for it and no build made it"
        model, target = (entry.model, entry.target) if entry else ("", "")
        results.append(Result(name, model, target, "extra", (reason,), before, None, entry=entry))
    return results


def examine(request: Request, progress: Callable[[str], None] = lambda path: None) -> list[Result]:
    """The state of every module asked for, rendered where need be; nothing is written. Raises ManifestError."""
    recorded, pending = lock.read(request.output), lock.read_pending(request.output)
    jobs = _jobs(request, recorded)
    results = []
    for job in jobs:
        results.append(_look_at(request, job, recorded, pending))
        progress(job.path)
    return results + _extras(request, recorded, jobs)


def refuse_edited(request: Request, results: Iterable[Result]) -> None:
    """Raise ManifestError for files that someone changed by hand, with the difference and the keys that lead to it."""
    from generator.explain import keys_behind

    problems = []
    for result in results:
        if result.status != "edited":
            continue
        keys = keys_behind(result)
        where = f"change {', '.join(keys)} instead" if keys else "change the manifest or the template instead"
        rule = f"was edited by hand:\n{result.diff()}"
        problems.append(
            Diagnostic(str(request.output / result.path), None, "", "", rule, f"{where}, or discard the edit with --force")
        )
    if problems:
        raise ManifestError(problems)


def build(request: Request, progress: Callable[[str], None] = lambda path: None) -> list[Result]:
    """Bring every module asked for up to date. Raises ManifestError before anything is written."""
    check_writable(request.output)
    results = examine(request, progress)
    if not request.force:
        refuse_edited(request, results)
    recorded = lock.read(request.output)
    modules = {**recorded.modules, **{r.path: r.entry for r in results if r.entry is not None and r.status != "extra"}}
    removed = [r.path for r in results if r.status == "extra" and r.entry is not None]
    modules = {name: entry for name, entry in sorted(modules.items()) if name not in removed}
    new_lock = lock.Lock(inputs.sources() if any(r.emitted for r in results) else recorded.sources, modules)
    files = {r.path: r.after.encode() for r in results if r.status in ("changed", "missing", "edited")}
    for name, content in PACKAGE_FILES.items():
        for folder in ("", *{f"{Path(path).parent.as_posix()}/" for path in files}):
            if not (request.output / folder / name).exists():
                files[folder + name] = content
    if files or removed or new_lock != recorded or lock.read_pending(request.output).modules:
        publish(request.output, files, removed, new_lock)
    return results


def rendered(request: Request, result: Result) -> Emitted:
    """The rendered form of a module, whether or not the examination had to render it."""
    if result.emitted is not None:
        return result.emitted
    recorded = lock.read(request.output)
    narrowed = Request(request.output, request.manifests, (result.model,), result.target, request.twin)
    return _emit(request, _jobs(narrowed, recorded)[0])


def emitted_at(request: Request, path: Path) -> Emitted:
    """The module that stands at `path`, rendered again. Raises ManifestError for a file that the lock does not know."""
    recorded = lock.read(request.output)
    for name, entry in recorded.modules.items():
        if (request.output / name).resolve() == path:
            narrowed = Request(request.output, request.manifests, (entry.model,), entry.target)
            return _emit(narrowed, _jobs(narrowed, recorded)[0])
    rule = f"is no module that a build into {request.output} made"
    hint = did_you_mean(path.name, [str(request.output / name) for name in recorded.modules])
    raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)])


def key_places(manifests: Path, emitted: Emitted, keys: Iterable[str]) -> list[dict[str, str]]:
    """For each dotted key its file:line and its value there; a key left out of the file is told as its default."""
    from generator import manifest
    from generator.errors import shown

    path = catalog.find(manifests, catalog.MODELS, emitted.resolved.name.removesuffix("-twin"))
    file = manifest.load(manifests, path.stem)
    places = []
    for key in keys:
        value = file.manifest.model_dump()
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) and part in value else None
        stated = tuple(key.split(".")) in file.source.lines
        place = f"{path}:{file.source.line(key.split('.'))}" + ("" if stated else " (default)")
        places.append({"key": key, "place": place, "value": shown(value)})
    return places

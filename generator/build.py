"""Decide what is stale, render it, and say what would change; publishing is the last and only effect."""

from __future__ import annotations

import difflib
import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from generator import catalog, inputs, lock
from generator.errors import Diagnostic, ManifestError, did_you_mean
from generator.lock import module_path
from generator.publish import check_folder, check_writable, publish

if TYPE_CHECKING:
    from generator.pipeline import Emitted

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE_FILE = "__init__.py"
PACKAGE_TEXT = b'"""Prefill modules written by codegen: one folder for each model, one file for each target."""\n'
WORTH_PROCESSES = 4  # modules to render from which starting other processes takes less time than it saves
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for. Empty `models` means all of them; `target` narrows every model to one board.

    With `render` modules that are up to date are rendered too, so that their stages can be looked at.
    """

    output: Path
    manifests: Path
    models: tuple[str, ...] = ()
    target: str | None = None
    twin: bool = False
    force: bool = False
    render: bool = False


@dataclass(frozen=True)
class Job:
    """One module to look at: where it lies below the output folder and what it would be made from now."""

    path: str
    current: lock.Entry  # with an empty output digest and day until it is rendered
    recorded: lock.Entry | None


@dataclass(frozen=True)
class Result:
    """What became of one file. `status`: unchanged, same bytes (only recorded inputs differ), changed, missing, edited, extra.

    `before` is the text on disk, `after` the text that a build leaves there, None where it removes the file.
    """

    path: str
    model: str
    target: str
    status: str
    reasons: tuple[str, ...]
    before: str
    after: str | None
    emitted: Emitted | None = None
    entry: lock.Entry | None = None

    @property
    def stale(self) -> bool:
        return self.status != "unchanged" and (self.status != "same bytes" or bool(self.reasons))

    @property
    def writes(self) -> bool:
        return self.after is not None and self.status in ("changed", "missing", "edited")

    def diff(self) -> str:
        """Unified diff from the file on disk to what a build leaves; empty where the two agree."""
        before, after = self.before.splitlines(keepends=True), (self.after or "").splitlines(keepends=True)
        return "".join(difflib.unified_diff(before, after, f"{self.path} (on disk)", f"{self.path} (as built)"))


def _declared_targets(request: Request, model: str, text: str, recorded: lock.Lock) -> tuple[str, ...]:
    """Targets of a model, from its whole checked manifest: every mistake in it is reported before anything is built.

    A manifest from which a module was published kept every rule then, so that only its table names are read again.
    """
    digest = inputs.digest(text.encode())
    if any(entry.model == model and entry.manifest == digest for entry in recorded.modules.values()):
        return tuple(tomllib.loads(text)["target"])
    from generator import manifest  # pydantic is not needed when nothing changed

    return tuple(manifest.load(request.manifests, model).manifest.target)


def _jobs(request: Request, recorded: lock.Lock) -> Iterator[Job]:
    """One job for each model and target asked for. Raises ManifestError for a target that a model asked for lacks."""
    if request.target is not None:
        catalog.find(request.manifests, catalog.TARGETS, request.target)
    sources = inputs.digest(json.dumps(inputs.sources()).encode())
    for model in request.models or catalog.names(request.manifests):
        path = catalog.find(request.manifests, catalog.MODELS, model)
        text = catalog.read(path)
        targets = _declared_targets(request, model, text, recorded)
        if request.target is not None and request.target not in targets and request.models:
            rule, hint = f"{model} has no table for this target", did_you_mean(request.target, targets)
            raise ManifestError([Diagnostic(str(path), None, "target", f'"{request.target}"', rule, hint)])
        for target in targets:
            if request.target not in (None, target):
                continue
            board = catalog.read(catalog.find(request.manifests, catalog.TARGETS, target))
            digests = (inputs.digest(text.encode()), inputs.digest(board.encode()), sources, inputs.tools())
            where = module_path(model, target, request.twin)
            current = lock.Entry(model, target, *digests, output="", changed="")
            yield Job(where, current, recorded.modules.get(where))


def _reasons(job: Job, recorded: lock.Lock) -> tuple[str, ...]:
    """Which recorded inputs of a module are not today's. A new tool version is no reason: it only renders again."""
    then, now = job.recorded, job.current
    if then is None:
        return ("never built here",)
    reasons = []
    if then.manifest != now.manifest:
        reasons.append(f"{catalog.MODELS}/{now.model}.toml changed")
    if then.board != now.board:
        reasons.append(f"{catalog.TARGETS}/{now.target}.toml changed")
    if then.sources != now.sources:
        old, new = recorded.sources, inputs.sources()
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        reasons += [f"{name} changed" for name in changed] or ["the generator changed since it was built"]
    return tuple(reasons)


def _emit(request: Request, model: str, target: str, templates: Path) -> Emitted:
    from generator import geometry, manifest, targets, twin
    from generator.matmuls import NoProgram
    from generator.pipeline import TemplateFault, emit

    file = manifest.load(request.manifests, model)
    if request.twin:
        file = twin.twin(file)
    resolved = geometry.resolve(file, targets.load_board(request.manifests, target))
    try:
        return emit(resolved, f"{catalog.MODELS}/{model}.toml", templates)
    except NoProgram as error:
        board = catalog.find(request.manifests, catalog.TARGETS, target)
        rule, hint = f"is too small for {model}: {error}", "no model of these sizes runs on such a board"
        raise ManifestError(
            [Diagnostic(str(board), None, "l1.bank_bytes", str(resolved.board.l1_bank_bytes), rule, hint)]
        ) from None
    except TemplateFault as error:
        rule = f"make no module of {model} on {target}: {error}"
        raise ManifestError([Diagnostic(str(templates), None, "", "", rule, "correct the templates")]) from error


def _content(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none. Raises ManifestError where there is something else."""
    try:
        return path.read_bytes() if path.exists() else None
    except OSError as error:
        rule = f"cannot be read ({error.strerror})"
        raise ManifestError(
            [Diagnostic(str(path), None, "", "", rule, "make it a readable file, or remove it")]
        ) from None


def _outputs(path: str, *locks: lock.Lock) -> set[str]:
    """Digests of a module as builds made it: the last one, and one that was cut short."""
    return {one.modules[path].output for one in locks if path in one.modules}


@dataclass(frozen=True)
class Seen:
    """What stands on disk of one module, and which of its recorded inputs are not today's."""

    job: Job
    content: bytes | None
    digest: str | None
    reasons: tuple[str, ...]

    @property
    def fresh(self) -> bool:
        """Whether a build from the recorded inputs, which are today's, made just what stands there."""
        then, now = self.job.recorded, self.job.current
        return not self.reasons and self.digest == then.output and then.tools == now.tools


def _seen(request: Request, job: Job, recorded: lock.Lock) -> Seen:
    content = _content(request.output / job.path)
    digest = inputs.digest(content) if content is not None else None
    return Seen(job, content, digest, _reasons(job, recorded))


def _emitted_in_turn(request: Request, jobs: list[Job], progress: Progress) -> Iterator[Emitted]:
    for job in jobs:
        progress(job.path)
        yield _emit(request, job.current.model, job.current.target, inputs.TEMPLATES)


def _emitted_in_parallel(request: Request, jobs: list[Job], progress: Progress) -> Iterator[Emitted]:
    """Modules in the order of `jobs`, from as many processes as there are cores; the first error is raised as it is."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("forkserver")  # a process with threads, as a test runner is, must not be forked itself
    context.set_forkserver_preload(["generator.pipeline"])
    workers = min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, context, initializer=gc.disable) as pool:  # trees have no cycles to be found
        pending = [
            pool.submit(_emit_without_stages, request, job.current.model, job.current.target, inputs.TEMPLATES)
            for job in jobs
        ]
        try:
            for job, future in zip(jobs, pending):
                progress(job.path)
                emitted = future.result()
                if isinstance(emitted, list):
                    raise ManifestError(emitted)
                yield emitted
        finally:
            for future in pending:
                future.cancel()


def _emit_without_stages(request: Request, model: str, target: str, templates: Path) -> Emitted | list[Diagnostic]:
    """For another process, where trees of stages would cost more to send than to make; refusals come as values."""
    try:
        return replace(_emit(request, model, target, templates), stages={})
    except ManifestError as error:
        return list(error.diagnostics)


def _result(seen: Seen, recorded: lock.Lock, pending: lock.Lock, emitted: Emitted | None) -> Result:
    """What became of one module; `emitted` is its text as a build would write it, None where nothing changed."""
    job, content, digest, reasons = seen.job, seen.content, seen.digest, seen.reasons
    before = content.decode("utf-8", "replace") if content is not None else ""
    model, target = job.current.model, job.current.target
    if emitted is None:
        return Result(job.path, model, target, "unchanged", (), before, before, entry=job.recorded)
    made = replace(job.current, output=inputs.digest(emitted.text.encode()))
    entry = made.since(job.recorded, lock.today())
    if content is None:
        status = "missing"
    elif digest == entry.output:
        status = "same bytes"
    else:
        status = "changed" if digest in _outputs(job.path, recorded, pending) else "edited"
    return Result(job.path, model, target, status, reasons, before, emitted.text, emitted, entry)


def _extras(request: Request, recorded: lock.Lock, pending: lock.Lock, jobs: Iterable[Job]) -> Iterator[Result]:
    """Modules on disk or in the lock that no manifest asks for; only a look at everything can tell."""
    if request.models or request.target is not None or request.twin:
        return
    asked = {module_path(job.current.model, job.current.target, twin) for job in jobs for twin in (False, True)}
    on_disk = {path.relative_to(request.output).as_posix() for path in request.output.glob("*/*.py")}
    made = recorded.modules | pending.modules
    for name in sorted(on_disk | made.keys()):
        if name in asked or name.endswith(PACKAGE_FILE):
            continue
        content = _content(request.output / name)
        before = content.decode("utf-8", "replace") if content is not None else ""
        if name not in made:
            reason = "no manifest asks for it and no build made it"
            yield Result(name, "", "", "extra", (reason,), before, before)
            continue
        ours = content is None or inputs.digest(content) in _outputs(name, recorded, pending)
        status = "extra" if ours else "edited"
        yield Result(name, made[name].model, made[name].target, status, ("no manifest asks for it",), before, None)


def examine(request: Request, progress: Progress = lambda path: None) -> list[Result]:
    """The state of every module asked for, rendered where need be; nothing is written. Raises ManifestError."""
    check_folder(request.output)
    recorded, pending = lock.read(request.output), lock.read_pending(request.output)
    jobs = list(_jobs(request, recorded))
    seen = []
    for job in jobs:
        progress(job.path)
        seen.append(_seen(request, job, recorded))
    stale = [one.job for one in seen if request.render or not one.fresh]
    render = _emitted_in_turn if len(stale) < WORTH_PROCESSES or request.render else _emitted_in_parallel
    emitted = dict(zip([job.path for job in stale], render(request, stale, progress)))
    results = [_result(one, recorded, pending, emitted.get(one.job.path)) for one in seen]
    return [*results, *_extras(request, recorded, pending, jobs)]


def refuse_edited(request: Request, results: Iterable[Result]) -> None:
    """Raise ManifestError for files that someone changed by hand, with the difference and the keys that lead to it."""
    from generator.explain import keys_behind

    problems = []
    for result in results:
        if result.status == "edited":
            keys = keys_behind(result)
            where = f"change {', '.join(keys)} instead" if keys else "change the manifest or the template instead"
            rule = f"was edited by hand; a build would turn it back:\n{result.diff()}"
            place = str(request.output / result.path)
            problems.append(Diagnostic(place, None, "", "", rule, f"{where}, or discard the edit with --force"))
    if problems:
        raise ManifestError(problems)


def plan(request: Request, progress: Progress = lambda path: None) -> list[Result]:
    """Everything that `build` does but the writing. Raises ManifestError for all that it refuses."""
    check_writable(request.output)
    results = examine(request, progress)
    if not request.force:
        refuse_edited(request, results)
    return results


def build(request: Request, progress: Progress = lambda path: None) -> list[Result]:
    """Bring every module asked for up to date. Raises ManifestError before anything is written."""
    results = plan(request, progress)
    recorded = lock.read(request.output)
    removed = [result.path for result in results if result.after is None]
    built = {result.path: result.entry for result in results if result.entry is not None}
    modules = {name: entry for name, entry in (recorded.modules | built).items() if name not in removed}
    new_lock = lock.Lock(inputs.sources() if any(r.emitted for r in results) else recorded.sources, modules)
    files = {result.path: result.after.encode() for result in results if result.writes}
    folders = {_folder(name) for name in modules}
    left = [f"{folder}/{PACKAGE_FILE}" for folder in {_folder(name) for name in removed} - folders]
    removed += [name for name in left if _content(request.output / name) == PACKAGE_TEXT]
    packages = [PACKAGE_FILE, *(f"{folder}/{PACKAGE_FILE}" for folder in sorted(folders))]
    files |= {name: PACKAGE_TEXT for name in packages if not (request.output / name).exists()}
    unfinished = lock.read_pending(request.output) != lock.Lock()
    if files or removed or unfinished or new_lock != recorded:
        publish(request.output, files, removed, new_lock)
    return results


def _folder(module_path: str) -> str:
    return PurePosixPath(module_path).parent.as_posix()


def emitted_at(request: Request, path: Path) -> tuple[str, Emitted]:
    """Name of the model and rendered form of the module at `path`. Raises ManifestError for a file that the lock does not
    know, and for one that is not what a build would write now, whose lines would not be those of the rendered form."""
    recorded = lock.read(request.output)
    for name, entry in recorded.modules.items():
        if (request.output / name).resolve() == path.resolve():
            twin = name != module_path(entry.model, entry.target, False)
            emitted = _emit(replace(request, twin=twin), entry.model, entry.target, inputs.TEMPLATES)
            if _content(path) != emitted.text.encode():
                rule, hint = "is not what a build would write now", f"codegen build {entry.model} brings it up to date"
                raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)])
            return entry.model, emitted
    rule = f"is no module that a build into {request.output} made"
    hint = did_you_mean(path.name, [str(request.output / name) for name in recorded.modules])
    raise ManifestError([Diagnostic(str(path), None, "", "", rule, hint)])

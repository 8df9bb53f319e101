"""`codegen shapes`: the choice for one model on one board, and its manifest with the choice in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator import catalog, geometry, manifest, targets
from generator.choosing.choose import Choice
from generator.choosing.compiling import Compiling, passes_of
from generator.choosing.default import MOST_LENGTHS, log_uniform
from generator.choosing.ragged import Packer
from generator.choosing.search import Search, Tried
from generator.choosing.workload import read, require_usable
from generator.choosing.writing import rewritten
from generator.errors import Diagnostic, ManifestError
from generator.geometry import Resolved
from generator.manifest import ModelFile
from generator.publish import write_new

CHUNKS = (512, 1024, 2048, 4096)  # tried where none is named, beside the manifest's own


@dataclass(frozen=True)
class Found:
    """The choice for a workload, and beside it those of fewer lengths and what the manifest has now."""

    resolved: Resolved
    file: ModelFile
    name: str  # of the workload
    window: float  # seconds, 0 where every prompt runs by itself
    empty: int  # requests without tokens
    compiling: Compiling
    waves: tuple[int, ...]  # in which the shortest of the lengths may run
    tried: Tried

    def compile_seconds(self, choice: Choice) -> float:
        """Estimated processor seconds until all passes are compiled, where nothing is."""
        waves = self.resolved.waves if choice is self.tried.now else self.tried.waves
        return self.compiling.seconds(passes_of(self.resolved, choice.lengths, waves, choice.ragged_tokens))


def find(
    manifests: Path,
    model: str,
    target: str | None,
    workload: Path | None,
    most_lengths: int | None,
    most_programs: int | None,
    chunk: int | None,
    packer: Packer,
    window: float = 0.0,
    most_compile_seconds: float | None = None,
    progress: Callable[[str], None] = lambda doing: None,
) -> Found:
    """The choice for a model on `target`, or on its manifest's first. Without a log it is the one that import writes, as many
    lengths as are worth their programs; else the quickest. `packer` is the runtime's. Raises ManifestError.
    """
    file = manifest.load(manifests, model)
    name = target or next(iter(file.manifest.target))
    resolved = geometry.resolve(file, targets.load_board(manifests, name))
    log = (
        log_uniform(resolved.context) if workload is None else read(workload, lambda count: progress(f"{count} lines"))
    )
    source = "log-uniform lengths" if workload is None else workload.name
    require_usable(log, source if workload is None else str(workload), resolved.context, window)
    most = MOST_LENGTHS if most_lengths is None else most_lengths
    search = Search(resolved, log, most, most_programs, packer, file.path, most_compile_seconds, progress)
    if workload is None:
        tried = search.without_log(_chunks(file, resolved, resolved.prefill_chunk if chunk is None else chunk)[0])
    elif not window:
        tried = search.alone(_chunks(file, resolved, chunk))
    else:
        chunks = _chunks(file, resolved, resolved.prefill_chunk if chunk is None else chunk)
        tried = search.in_waves(chunks[0], window)
    running = tuple(
        [size for size in tried.waves if size == 1 or size * tried.chosen.lengths[0] <= resolved.wave_tokens]
    )
    return Found(resolved, file, source, window, log.empty, search.compiling, running, tried)


def _chunks(file: ModelFile, resolved: Resolved, named: int | None) -> list[int]:
    """Prefill chunks to try, shortest first: those that the manifest could have on this board."""
    if resolved.attention_soft_cap:  # whose only pass is the whole prompt
        wanted = {resolved.prefill_chunk if named is None else named}
    else:
        wanted = {*CHUNKS, resolved.prefill_chunk} if named is None else {named}
    legal, refused = [], None
    for chunk in sorted(wanted):
        try:
            _resolved(file, resolved, {"lengths": (chunk,), "prefill_chunk": chunk, "waves": (1,)})
            legal.append(chunk)
        except ManifestError as error:
            refused = error
    if not legal:
        raise refused
    return legal


def _resolved(file: ModelFile, resolved: Resolved, values: dict[str, Any]) -> Resolved:
    """The model with other values in its target's table, under every rule of a manifest. Raises ManifestError."""
    data = file.manifest.model_dump(exclude_none=True)
    data["target"][resolved.target] |= values
    checked = manifest.check(data, file.path, file.source, tuple(file.manifest.target))
    return geometry.resolve(checked, resolved.board)


def write(found: Found, manifests: Path) -> bool:
    """Put the choice into the manifest, whole or not at all; whether anything changed. Raises ManifestError."""
    resolved, chosen = found.resolved, found.tried.chosen
    values: dict[str, Any] = {"lengths": chosen.lengths, "prefill_chunk": chosen.chunk, "waves": found.waves}
    if chosen.ragged_tokens:
        values["ragged_tokens"] = chosen.ragged_tokens
    _resolved(found.file, resolved, values)
    held = found.file.manifest.target[resolved.target]
    values = {key: value for key, value in values.items() if getattr(held, key) != value}
    if not values:
        return False
    path = catalog.find(manifests, catalog.MODELS, resolved.name)
    shown = "".join(character if character.isprintable() else "?" for character in found.name)
    reason = f"codegen shapes: {chosen.over_ideal:.3f}x the modelled time of no padding on {shown}"
    text = rewritten(catalog.read(path), found.file, resolved.target, values, reason)
    made = manifest.parse(text, str(path), catalog.names(manifests, catalog.TARGETS)).manifest
    wanted = held.model_copy(update=values)
    if made != found.file.manifest.model_copy(
        update={"target": {**found.file.manifest.target, resolved.target: wanted}}
    ):
        rule = "is laid out so that the choice cannot be put in its place"
        raise ManifestError([Diagnostic(str(path), None, "", "", rule, "give each key a line of its own")])
    write_new(path, text.encode())
    return True

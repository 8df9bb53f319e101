"""codegen import: read a configuration, decide everything, and write one manifest, whole or not at all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator import catalog, manifest
from generator.errors import Diagnostic, ManifestError, shown
from generator.importing import boards, json_text
from generator.importing.boards import Chosen, Misfit
from generator.importing.fields import Entry
from generator.importing.toml_text import text_of
from generator.importing.understand import Understood, understand
from generator.publish import check_writable, write_new
from generator.schema import dotted
from generator.targets import load_board
from generator.toml_source import Source

NAMELESS = re.compile(r"config|[0-9a-f]{40}")  # the usual file name, and folders of a download cache


@dataclass(frozen=True)
class Imported:
    """A manifest that keeps every rule, as text, and what was decided on the way."""

    name: str
    path: Path
    text: str
    understood: Understood
    chosen: tuple[Chosen, ...]
    misfits: tuple[Misfit, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists and strings."""
        entries = {
            **self.understood.model,
            **{f"rope.{key}": one for key, one in self.understood.rope.items()},
            **{f"local_rope.{key}": one for key, one in self.understood.local_rope.items()},
            **{f"experts.{key}": one for key, one in self.understood.experts.items()},
            **{f"gated_delta_net.{key}": one for key, one in self.understood.gated_delta_net.items()},
        }
        return {
            "model": self.name,
            "manifest": str(self.path),
            "family": self.understood.family,
            "values": {key: {"value": one.value, "from": one.note} for key, one in entries.items()},
            "unread": list(self.understood.unread),
            "targets": {one.target: one.table for one in self.chosen},
            "without": {one.target: one.rule for one in self.misfits},
        }

    def lines(self) -> list[str]:
        """What a person is told."""
        told = [f"wrote: {self.path}: family {self.understood.family}"]
        for one in self.chosen:
            dtypes = one.table["dtypes"]
            kinds = ", ".join(f"{role} {dtypes[role]}" for role in ("weights", "experts") if role in dtypes)
            kinds += f", cache {dtypes['key_value']}"
            told.append(f"  {one.target}: context {one.table['context']}, {kinds}; {one.summary}")
        told += [f"  not for {one.target}: {one.rule}" for one in self.misfits]
        if self.understood.unread:
            told.append(f"  nothing here depends on: {', '.join(self.understood.unread)}")
        return [*told, f"next: codegen build {self.name}"]


def import_file(config: Path, manifests: Path, name: str | None, targets: Sequence[str], force: bool) -> Imported:
    """Write the manifest of a configuration. Raises ManifestError, with nothing written."""
    imported = prepare(config, manifests, name, targets)
    if imported.path.exists() and not force:
        rule, hint = "exists and is not overwritten", "import with --force, or under another --name"
        raise ManifestError([Diagnostic(str(imported.path), None, "", "", rule, hint)])
    check_writable(imported.path.parent, "--manifests")
    write_new(imported.path, imported.text.encode())
    return imported


def prepare(config: Path, manifests: Path, name: str | None, targets: Sequence[str]) -> Imported:
    """Everything that import decides, with nothing written."""
    content = _content(config)
    data, source = json_text.read_object(_decoded(content, config), str(config))
    understood = understand(data, source, str(config))
    name = name if name is not None else _name(config)
    origin = f"{_printable(config.name)}, sha256 {hashlib.sha256(content).hexdigest()[:16]}"
    local = {key: entry.value for key, entry in understood.local_rope.items()}
    bare = {
        "name": name,
        "family": understood.family,
        "source": origin,
        "model": {
            **{key: entry.value for key, entry in understood.model.items()},
            "rope": {key: entry.value for key, entry in understood.rope.items()},
            **({"local_rope": local} if local else {}),
        },
    }
    for table in ("experts", "gated_delta_net"):
        if getattr(understood, table):
            bare["model"][table] = {key: entry.value for key, entry in getattr(understood, table).items()}
    known = catalog.names(manifests, catalog.TARGETS)
    if not known:
        rule, hint = "holds no boards", "name a folder that has targets/*.toml with --manifests"
        raise ManifestError([Diagnostic(str(manifests / catalog.TARGETS), None, "", "", rule, hint)])
    wanted = tuple(dict.fromkeys(targets)) or known
    try:
        choices = [boards.choose(bare, load_board(manifests, target)) for target in wanted]
    except ManifestError as error:
        raise ManifestError(_in_words_of(config, source, understood, one) for one in error.diagnostics) from None
    chosen = tuple(one for one in choices if isinstance(one, Chosen))
    misfits = tuple(one for one in choices if isinstance(one, Misfit))
    if not chosen or (targets and misfits):
        raise ManifestError(
            Diagnostic(str(config), None, f"target {one.target}", "", one.rule, one.hint) for one in misfits
        )
    _check_name(manifests, name)
    path = manifests / catalog.MODELS / f"{name}.toml"
    text = text_of(name, origin, understood, chosen, misfits)
    manifest.parse(text, str(path), known)
    return Imported(name, path, text, understood, chosen, misfits)


def _content(config: Path) -> bytes:
    """The bytes of a file, no more than a configuration has. A file that is too large is refused unread."""
    try:
        with config.open("rb") as file:
            content = file.read(json_text.MOST_BYTES + 1)
    except OSError as error:
        hint = "name the config.json in it" if config.is_dir() else "check the path and its permissions"
        rule = f"cannot be read ({error.strerror})"
        raise ManifestError([Diagnostic(str(config), None, "", "", rule, hint)]) from None
    if len(content) > json_text.MOST_BYTES:
        rule = f"is over {json_text.MOST_BYTES} bytes, which no configuration is"
        raise ManifestError([Diagnostic(str(config), None, "", "", rule, "name a model's config.json")])
    return content


def _decoded(content: bytes, config: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, f"byte 0x{content[error.start]:02x}"
        raise ManifestError(
            [Diagnostic(str(config), line, "", byte, "a JSON file is UTF-8", "save it as UTF-8")]
        ) from None


def _name(config: Path) -> str:
    """The model's name from the file's, or from the folder of a file called config.json."""
    for part in (config.name.removesuffix(".json"), config.absolute().parent.name):
        plain = re.sub(r"[^a-z0-9]*([^a-z0-9])[^a-z0-9]*", r"\1", part.lower())
        plain = re.sub(r"[^a-z0-9.]", "-", plain).lstrip("-.0123456789").rstrip("-.")
        if plain and NAMELESS.fullmatch(part) is None:
            return plain
    rule = "tells no name for the model"
    raise ManifestError([Diagnostic(str(config), None, "", "", rule, "give one with --name")])


def _printable(text: str) -> str:
    """A file's name as manifests take text: without what they do not."""
    return re.sub(r"[\"'{}\\]", "_", "".join(one if one.isprintable() else "_" for one in text))[:200]


def _check_name(manifests: Path, name: str) -> None:
    for other in catalog.names(manifests):
        if other != name and manifest.module_name(other) == manifest.module_name(name):
            rule = f'makes the same folder {manifest.module_name(name)} as the model "{other}"'
            raise ManifestError([Diagnostic("--name", None, "", shown(name), rule, "give another name")])


def _in_words_of(config: Path, source: Source, understood: Understood, found: Diagnostic) -> Diagnostic:
    """A broken rule of manifests, told about the configuration that its value came from."""
    if found.key == "name":
        return Diagnostic("--name", None, "", found.value, found.rule, found.hint)
    key = re.sub(r"\[\d+\]$", "", found.key)
    entries: dict[str, Entry] = {f"model.{name}": entry for name, entry in understood.model.items()}
    entries |= {f"model.rope.{name}": entry for name, entry in understood.rope.items()}
    entries |= {f"model.local_rope.{name}": entry for name, entry in understood.local_rope.items()}
    entries |= {f"model.experts.{name}": entry for name, entry in understood.experts.items()}
    entries |= {f"model.gated_delta_net.{name}": entry for name, entry in understood.gated_delta_net.items()}
    entry = entries.get(key)
    if entry is None:
        return found if found.path else Diagnostic(str(config), None, found.key, found.value, found.rule, found.hint)
    came = "" if entry.note == dotted(entry.key) else f" ({entry.note})"
    return Diagnostic(
        str(config),
        source.line(entry.key),
        dotted(entry.key),
        found.value or shown(entry.value),
        found.rule + came,
        found.hint,
    )

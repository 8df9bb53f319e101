"""What `codegen list` and `codegen show` print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator import catalog, lock, proofs
from generator.errors import ManifestError
from generator.inputs import digest
from generator.lock import module_path
from generator.proofs import Proof

if TYPE_CHECKING:
    from generator.geometry import Resolved
    from generator.pass_time import PassTime
    from generator.shapes import PassShape

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GIB = 2**30
MOST_SHOWN = 32  # numbers of a list


COLUMNS = ("model", "family", "target", "context", *proofs.KINDS, "inputs changed")
BROKEN = "(broken: codegen show says why)"
LEGEND = """\
legal: passes that the real library accepts on a mock device of the board, at full size; nothing is computed there.
logic: greatest relative error of logits, keys and values on the emulator where nothing is rounded; precision: least correlation
of logits there with the declared dtypes. Both are of all ways through the module, against a float32 reference that is itself
held to transformers: of a twin, a small model of the same rules with random weights, or at full size with published weights.
-: not proven; stale: proven of other bytes than the module has. Nothing here ran on a chip."""


@dataclass(frozen=True)
class Module:
    """One module of a model: `digest` of its bytes, None where it is not built; `changed` is a day, empty where no build knows it."""

    target: str
    context: int
    digest: str | None
    proven: Mapping[str, Proof]
    changed: str

    def state(self, kind: str) -> str:
        proof = self.proven.get(kind)
        return proofs.NONE if proof is None else proof.state(self.digest)

    def cells(self) -> list[str]:
        proven = [self._proven(kind) for kind in proofs.KINDS]
        return [self.target, str(self.context), *proven, self.changed or "not built"]

    def _proven(self, kind: str) -> str:
        """What was measured, of the size that it was measured of."""
        state = self.state(kind)
        if state != proofs.PROVEN:
            return "-" if state == proofs.NONE else state
        proof = self.proven[kind]
        if kind == "legal":
            return f"{proof.measured['passes']} passes"
        (worst,) = (number for name, number in proof.measured.items() if name.startswith("worst"))
        return f"{proof.size} {worst:.5f}" if kind == "precision" else f"{proof.size} {worst:.1e}"

    def to_json(self) -> dict[str, Any]:
        proven = {kind: {"state": self.state(kind)} for kind in proofs.KINDS}
        for kind, proof in self.proven.items():
            proven[kind] |= {"command": proof.command, "on": proof.on, "measured": dict(proof.measured)}
        return {
            "target": self.target,
            "context": self.context,
            "proven": proven,
            "inputs_changed": self.changed or None,
        }


@dataclass(frozen=True)
class Model:
    """One manifest, in the order of its file; no modules where it is broken."""

    name: str
    family: str
    modules: tuple[Module, ...]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "family": self.family, "targets": [one.to_json() for one in self.modules]}


def rows(manifests: Path, output: Path) -> list[Model]:
    """Every manifest, read without checking it, beside what was recorded of its modules in `output`; a broken one says so in its
    family. Raises ManifestError for a broken lock or record."""
    recorded, proven = lock.read(output).modules, proofs.read(output)
    found = []
    for name in catalog.names(manifests):
        try:
            data = tomllib.loads(catalog.read(catalog.find(manifests, catalog.MODELS, name)))
            family, contexts = str(data["family"]), {
                target: table["context"] for target, table in data["target"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, ManifestError):
            family, contexts = BROKEN, {}
        modules = []
        for target, context in contexts.items():
            path = module_path(name, target, twin=False)
            held = digest((output / path).read_bytes()) if (output / path).is_file() else None
            changed = recorded[path].changed if path in recorded else ""
            modules.append(Module(target, context, held, proven.get(path, {}), changed))
        found.append(Model(name, family, tuple(modules)))
    return found


def outline(manifests: Path, name: str) -> tuple[list[str], dict[str, str] | None]:
    """Targets of a model and the package that carries its weights, read without the checks of a build and what they import.

    A manifest that is not even so far in order is read with all of them, which say what is wrong with it.
    """
    try:
        data = tomllib.loads(catalog.read(catalog.find(manifests, catalog.MODELS, name)))
        weights = data.get("weights")
        return list(data["target"]), weights and {key: weights[key] for key in ("package", "file")}
    except (ValueError, KeyError, TypeError, AttributeError):
        from generator import manifest

        loaded = manifest.load(manifests, name).manifest
        return list(loaded.target), loaded.weights and dict(loaded.weights)


def _lines(found: Iterable[Model]) -> list[list[str]]:
    """The cells of each module, and those of a model that has none."""
    empty = [""] * (len(COLUMNS) - 2)
    return [
        [model.name, model.family, *cells]
        for model in found
        for cells in [one.cells() for one in model.modules] or [empty]
    ]


def table(found: Iterable[Model]) -> str:
    """A line for each module below their headings, in columns as wide as their widest entry."""
    cells = [list(COLUMNS), *_lines(found)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def markdown(found: Iterable[Model]) -> str:
    """The same as a table for a README."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *_lines(found)])


def _slot(resolved: Resolved) -> str:
    """What a state slot holds, in words."""
    net = resolved.gated_delta_net
    state = f"{net.value_heads} x {net.key_dim} x {net.value_dim} {resolved.dtypes.state}"
    tail = f"{net.kernel - 1} x {net.convolution_width} {resolved.dtypes.activation}"
    return (
        f"{resolved.recurrent_layers} layers of a state {state} and a tail {tail}, at the end and at the last boundary"
    )


def describe(resolved: Resolved, passes: Mapping[PassShape, PassTime]) -> str:
    """One resolved model in words: numbers with where they came from, memory, and the closed set of passes with their times."""
    lines = [f"{resolved.name} on {resolved.target} (geometry {resolved.digest})", ""]
    for field, key in resolved.keys.items():
        value = resolved
        for part in field.split("."):
            value = getattr(value, part, None)
        if isinstance(value, (int, float, str, tuple)):
            reason = resolved.derivations.get(field, key)
            text = f"({len(value)} numbers)" if isinstance(value, tuple) and len(value) > MOST_SHOWN else str(value)
            lines.append(f"  {field:<30} {text:<28} {reason}")
    memory = resolved.memory
    lines += ["", "  memory of one device, GiB"]
    states = ("recurrent_states",) if memory.recurrent_states else ()
    for name in (
        "weights",
        "rotary_tables",
        "key_value",
        *states,
        "activation_peak",
        "captured_rows",
        "trace_region",
        "total",
        "capacity",
    ):
        lines.append(f"  {name:<30} {getattr(memory, name) / GIB:10.3f}")
    if memory.recurrent_states:
        lines += ["", f"  {'bytes of one state slot':<30} {memory.state_slot:10d}   {_slot(resolved)}"]
    lines += [
        "",
        "  modelled: copies of inputs, body and tail (last rows, head, likeliest token) in ms, chunks in the middle of the context; of",
        "  the body what bounds its time, GB through DRAM, device operations. The rates are the target's; nothing was measured on a board.",
        "  variant          rows  tokens  fill pages  read pages  copies    body    tail  dram  net  compute      GB  operations  digest",
    ]
    for shape, time in passes.items():
        dram, network, compute = (time.bound[name] / time.body for name in ("dram", "network", "compute"))
        lines.append(
            f"  {shape.variant:<15} {shape.rows:>5} {shape.tokens:>7} {shape.fill_pages:>11} {shape.read_pages:>11} "
            f"{1e3 * time.upload:>7.2f} {1e3 * time.body:>7.1f} {1e3 * time.tail:>7.1f} {dram:>5.0%} {network:>4.0%} {compute:>8.0%} "
            f"{time.dram_bytes / 1e9:>7.2f} {time.operations:>11}  {shape.digest}"
        )
    return "\n".join(lines) + "\n"

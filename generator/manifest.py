"""The manifest of one model: what its file may say, and how it is read."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from generator import attention_rules, catalog, experts, recurrent_rules, rules, unsupported, wrappers
from generator.errors import Diagnostic, ManifestError, shown
from generator.families import FAMILIES
from generator.schema import AnyArray, Array, Table, between, dotted, named, one_of, refuse, validate
from generator.toml_source import Source, scan
from generator.wrappers import WRAPPERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")
LONGEST_NAME = 64
LONGEST_TEXT = 300
MOST_TOKENS = 2**24
WEIGHT_DTYPES = ("bfloat16", "bfloat8_b", "bfloat4_b")


def module_name(name: str) -> str:
    """The folder and import name of a model: llama-3.2-1b -> llama_3_2_1b."""
    return re.sub(r"[.-]", "_", name)


def _name(value: str) -> str:
    if len(value) > LONGEST_NAME or NAME.fullmatch(value) is None:
        rule = "must be lower-case letters and digits with single dots and dashes between them, first a letter"
        plain = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")[:LONGEST_NAME].strip("-")
        raise refuse(rule, f'for example "{plain}"' if plain else "")
    if keyword.iskeyword(module_name(value)):
        raise refuse("is a word of Python and names no module", f'for example "{value}-model"')
    return value


def _text(value: str) -> str:
    if len(value) > LONGEST_TEXT or not value.isprintable() or re.search(r"[\"'{}\\]", value):
        rule = f"must be one line of at most {LONGEST_TEXT} printable characters without quotes, braces and backslashes"
        raise refuse(rule, "leave them out")
    return value


def _package(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*", value) is None:
        raise refuse("must be the name of an installable package", "letters and digits with . _ - between them")
    return value


def _relative_file(value: str) -> str:
    if any(re.fullmatch(r"\w[\w.-]*", part, re.ASCII) is None for part in value.split("/")):
        rule = "must be a relative path with forward slashes that stays inside the package"
        raise refuse(rule, "folders and a file name, of letters, digits and . _ -")
    return value


def _family_rule(value: str) -> str | None:
    needs = unsupported.family(value)
    return f"needs {needs}, which is not built" if needs else None


def _chunk(value: int) -> int:
    if value & (value - 1):
        down = 1 << (value.bit_length() - 1)
        close = down if value - down <= 2 * down - value else 2 * down
        raise refuse("must be a power of two", f"nearest legal value {close}")
    return value


class Rope(Table):
    kind: Annotated[str, named(*rules.ROPE_KEYS)]
    theta: Annotated[float, between(1.0, 1e12)]
    factor: Annotated[float, between(1.0, 1e6)] | None = None
    low_frequency_factor: Annotated[float, between(1e-3, 1e6)] | None = None
    high_frequency_factor: Annotated[float, between(1e-3, 1e6)] | None = None
    original_context: Annotated[int, between(1, MOST_TOKENS)] | None = None
    beta_fast: Annotated[float, between(1e-3, 1e6)] | None = None
    beta_slow: Annotated[float, between(1e-3, 1e6)] | None = None
    truncate: bool | None = None
    attention_factor: Annotated[float, between(1e-3, 1e3)] | None = None
    short_factors: Array[Annotated[float, between(1e-3, 1e6)]] | None = None
    long_factors: Array[Annotated[float, between(1e-3, 1e6)]] | None = None


class Experts(Table):
    count: Annotated[int, between(2, experts.MOST_PUBLISHED)]
    per_token: Annotated[int, between(1, 32)]
    intermediate: Annotated[int, between(experts.NARROWEST, 2**19)]
    renormalise: bool
    shared_intermediate: Annotated[int, between(32, 2**19)] | None = None


class GatedDeltaNet(Table):
    key_heads: Annotated[int, between(1, 1024)]
    value_heads: Annotated[int, between(1, 1024)]
    key_dim: Annotated[int, between(32, 256)]
    value_dim: Annotated[int, between(32, 256)]
    kernel: Annotated[int, one_of(recurrent_rules.KERNEL)]


class Model(Table):
    vocabulary: Annotated[int, between(2, 2**22)]
    hidden: Annotated[int, between(32, 2**17)]
    intermediate: Annotated[int, between(32, 2**19)] | None = None
    layers: Annotated[int, between(1, 1024)]
    query_heads: Annotated[int, between(1, 1024)]
    key_value_heads: Annotated[int, between(1, 1024)]
    head_dim: Annotated[int, between(32, 256)] | None = None
    rotary_dimensions: Annotated[int, between(2, 256)] | None = None
    maximum_context: Annotated[int, between(32, MOST_TOKENS)]
    norm_epsilon: Annotated[float, between(1e-12, 1e-2)]
    activation: Annotated[str, named("silu", "gelu_tanh")]
    tied_embeddings: bool
    sliding_window: Annotated[int, between(1, MOST_TOKENS)] | None = None
    full_attention_layers: AnyArray[Annotated[int, between(0, 1023)]] | None = None
    layer_kinds: Array[Annotated[str, named(*recurrent_rules.KINDS)]] | None = None
    query_scale: Annotated[int, between(1, 2**20)] | None = None
    attention_soft_cap: Annotated[float, between(1e-3, 1e6)] | None = None
    logit_soft_cap: Annotated[float, between(1e-3, 1e6)] | None = None
    rope: Rope
    local_rope: Rope | None = None
    experts: Experts | None = None
    gated_delta_net: GatedDeltaNet | None = None


class PackagedWeights(Table):
    package: Annotated[str, AfterValidator(_package)]
    file: Annotated[str, AfterValidator(_relative_file)]


class Dtypes(Table):
    weights: Annotated[str, named(*WEIGHT_DTYPES)]
    embedding: Annotated[str, named("bfloat16")]
    head: Annotated[str, named(*WEIGHT_DTYPES)]
    key_value: Annotated[str, named("bfloat16", "bfloat8_b")]
    activation: Annotated[str, named("bfloat16")]
    experts: Annotated[str, named(*WEIGHT_DTYPES)] | None = None
    state: Annotated[str, named("float32")] | None = None


class TargetTable(Table):
    context: Annotated[int, between(32, MOST_TOKENS)]
    block_size: Annotated[int, one_of(32, 64, 128)] = 32
    key_value_blocks: Annotated[int, between(1, MOST_TOKENS)]
    lengths: Array[Annotated[int, between(32, MOST_TOKENS)]]
    waves: Array[Annotated[int, one_of(1, 2, 4, 8, 16, 32)]]
    wave_tokens: Annotated[int, between(32, MOST_TOKENS)]
    ragged_tokens: Array[Annotated[int, between(64, MOST_TOKENS)]] | None = None
    prefill_chunk: Annotated[int, between(32, MOST_TOKENS)]
    attention_chunk: Annotated[int, between(32, 1024), AfterValidator(_chunk)] = 128
    batch_invariant: bool = False
    state_slots: Annotated[int, between(1, 1024)] | None = None
    recurrence: Annotated[str, named(*recurrent_rules.FORMS)] | None = None
    dtypes: Dtypes


class Manifest(Table):
    """A model as its file describes it. Lengths and contexts count tokens. `wrapper` is the model of images and text, if any,
    whose text model it is and whose checkpoint it is published in.
    """

    name: Annotated[str, AfterValidator(_name)]
    family: Annotated[str, named(*FAMILIES, rule=_family_rule)]
    source: Annotated[str, AfterValidator(_text)]
    model: Model
    wrapper: Annotated[str, named(*WRAPPERS)] | None = None
    weights: PackagedWeights | None = None
    target: Annotated[dict[str, TargetTable], Field(min_length=1)]


@dataclass(frozen=True)
class ModelFile:
    """A manifest that keeps every rule a file can keep, with where its keys stand."""

    path: str
    source: Source
    manifest: Manifest

    def refusal(self, problem: rules.Problem) -> ManifestError:
        return ManifestError([_located(problem, self.path, self.source)])


def load(manifests: Path, name: str) -> ModelFile:
    """The manifest of a model by name. Raises ManifestError, which names every mistake of the file."""
    path = catalog.find(manifests, catalog.MODELS, name)
    file = parse(catalog.read(path), str(path), catalog.names(manifests, catalog.TARGETS))
    if file.manifest.name != name:
        raise file.refusal(
            rules.Problem(("name",), shown(file.manifest.name), "must be the file's own name", f'write "{name}"')
        )
    for other in catalog.names(manifests):
        if other != name and module_name(other) == module_name(name):
            rule = f'makes the same folder {module_name(name)} as "{other}"'
            raise file.refusal(rules.Problem(("name",), shown(name), rule, "rename one of them"))
    return file


def parse(text: str, path: str, targets: Collection[str]) -> ModelFile:
    """The text of a manifest -> the checked manifest; `targets` are the boards there are. Raises ManifestError."""
    return check(decode(text, path), path, scan(text), targets)


def check(data: dict[str, Any], path: str, source: Source, targets: Collection[str]) -> ModelFile:
    """Plain data -> the checked manifest. Raises ManifestError."""
    manifest = validate(Manifest, data, path, source)
    misplaced = wrappers.problem(manifest.wrapper, manifest.family)
    problems = (
        *rules.problems(manifest, targets),
        *attention_rules.problems(manifest),
        *recurrent_rules.problems(manifest),
        *([misplaced] if misplaced else []),
    )
    if problems:
        raise ManifestError(_located(problem, path, source) for problem in problems)
    return ModelFile(path, source, manifest)


def decode(text: str, path: str) -> dict[str, Any]:
    """TOML text -> plain data. Raises ManifestError with the line, and for a key defined twice with both."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ManifestError(
            [Diagnostic(path, None, "", "", "is nested too deeply", "tables here go four deep")]
        ) from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    except ValueError:  # Python's own refusal of a number of thousands of digits
        digits = re.search(r"[0-9_]{1000,}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else None
        raise ManifestError(
            [Diagnostic(path, line, "", "", "holds a number too long to read", "write a shorter one")]
        ) from None
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    last = text.count("\n", 0, len(text.rstrip())) + 1
    line = int(found.group(1) or last) if found else last
    duplicate = scan(text).first_duplicate()
    if duplicate is not None and duplicate[2] <= line:
        key, first, second = duplicate
        twice = Diagnostic(
            path, second, dotted(key), "", f"is defined twice, first on line {first}", "keep one of them"
        )
        raise ManifestError([twice])
    reason = message[: found.start()] if found else message
    raise ManifestError([Diagnostic(path, line, "", "", f"is no TOML ({reason})", "correct this line first")])


def _located(problem: rules.Problem, path: str, source: Source) -> Diagnostic:
    return Diagnostic(path, source.line(problem.key), dotted(problem.key), problem.value, problem.rule, problem.hint)

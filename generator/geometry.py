"""Resolution of a manifest against a target: numbers only, nothing left to decide."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

from generator import memory, programs, recurrences, rules
from generator.errors import ManifestError, shown
from generator.experts import Experts
from generator.families import FAMILIES
from generator.families.family import Family
from generator.kinds import experts
from generator.manifest import Manifest, Model, ModelFile, TargetTable, module_name
from generator.manifest import Rope as RopeTable
from generator.matmuls import NoProgram
from generator.memory import Memory
from generator.sources import COPIED_FROM_MODEL, COPIED_FROM_TARGET, FIXED_BY_FAMILY, keys
from generator.rules import Problem
from generator.targets import Board

REPLICATE = "replicate"
RECURRENT = "gated_delta_net"
LAYER_KINDS = (RECURRENT, "sliding", "full")
GIB = 2**30


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first `dimensions` of each head; numbers that its kind does not use are neutral."""

    kind: str
    theta: float
    dimensions: int
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 0.0
    beta_slow: float = 0.0
    truncate: bool = True
    attention_factor: float = 1.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Dtypes:
    """Storage dtypes by role, by their ttnn names. `weights` are the projections of the layers."""

    weights: str
    embedding: str
    head: str
    key_value: str
    activation: str
    experts: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class GatedDeltaNet:
    """The linear attention of a model; see runtime.tables.GatedDeltaNet. `form` of the recurrence is "operation" or "matmuls",
    which takes `chunk` tokens at a time.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    published: str
    form: str
    chunk: int

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def convolution_width(self) -> int:
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True)
class PackagedWeights:
    """An installed package that carries the checkpoint: distribution name and the file inside the environment."""

    package: str
    file: str


@dataclass(frozen=True)
class Resolved:
    """One model on one target: every number that the later stages read. Tokens, elements or bytes as named.

    Fields beginning with `device_` are the share of one device. `derivations` says in words how a number that stands in
    no file came about, by field name; `keys` names the manifest key (or keys, with ", " between) it came from.
    """

    name: str
    module: str  # folder and import name
    family: str
    source: str
    target: str
    board: Board
    placement: str
    wrapper: str | None  # the model around this one whose checkpoint holds its weights
    packaged_weights: PackagedWeights | None

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    query_heads: int
    key_value_heads: int
    head_dim: int
    maximum_context: int
    norm_epsilon: float
    activation: str
    tied_embeddings: bool
    rope: Rope
    experts: Experts | None  # None: a dense feed-forward; `intermediate` is that of one expert otherwise

    query_key_value_bias: bool
    query_key_norm: bool
    fused_projections: bool  # published query, key and value are one tensor, and so are gate and up
    rotary_style: str  # "half_split" or "interleaved"
    rotary_switch: int  # prompts of more tokens take the second set of rotary tables; 0 where there is one set

    devices: int
    device_query_heads: int
    device_key_value_heads: int
    device_query_width: int
    device_key_value_width: int
    device_query_key_value_width: int
    device_intermediate: int
    device_vocabulary: int
    attention_scale: float  # exactly a float32

    dtypes: Dtypes
    context: int
    block_size: int
    context_blocks: int
    key_value_blocks: int
    attention_chunk: int
    alignment: int
    lengths: tuple[int, ...]
    waves: tuple[int, ...]
    wave_tokens: int
    prefill_chunk: int
    batch_invariant: bool  # a row is computed alike in every wave that it can be in

    derivations: Mapping[str, str]
    keys: Mapping[str, str]
    memory: Memory = memory.UNMEASURED
    digest: str = ""  # 16 hexadecimal digits over the numbers that shape the emitted module

    # What only some models have: a field at its default leaves the digest as if it were not there.

    # Tokens that a windowed layer sees up to each one, itself included; 0: no layer has a window.
    sliding_window: int = 0
    full_attention_layers: tuple[int, ...] = ()
    window_reach: int = 0  # tokens before a chunk whose blocks a windowed layer reads
    local_rope: Rope | None = None  # of windowed layers, where it differs
    query_scale: int = 0  # scores are scaled by its -0.5th power; 0: by head_dim's
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    sandwich_norms: bool = False
    unit_offset_norms: bool = False
    scaled_embedding: bool = False
    attention_sinks: bool = False
    attention_output_bias: bool = False
    gated_delta_net: GatedDeltaNet | None = None  # of the layers that are not in full_attention_layers
    attention_gate: bool = False
    state_slots: int = 0  # sequences whose recurrent state is held at a time
    ragged_tokens: tuple[int, ...] = ()  # of waves whose rows are of any lengths; none: rows of a wave are equally long

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """Of each layer, one of LAYER_KINDS."""
        other = RECURRENT if self.gated_delta_net else "sliding" if self.sliding_window else "full"
        return tuple("full" if layer in self.full_attention_layers else other for layer in range(self.layers))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of layers that the model has."""
        return tuple(kind for kind in LAYER_KINDS if kind in self.layer_kinds)

    @property
    def recurrent_layers(self) -> int:
        return self.layer_kinds.count(RECURRENT)

    @property
    def attention_layers(self) -> int:
        """Layers with keys and values."""
        return self.layers - self.recurrent_layers

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers."""
        return _plain(self)


NOT_IN_DIGEST = ("source", "wrapper", "packaged_weights", "derivations", "keys", "memory", "digest")


def resolve(file: ModelFile, board: Board) -> Resolved:
    """A manifest on a board.

    Raises ManifestError for a board that the manifest has no table for, a wave over the board's limit, and a model that
    does not fit the board's DRAM.
    """
    manifest = file.manifest
    if board.name not in manifest.target:
        tables = ", ".join(f"[target.{name}]" for name in manifest.target)
        raise file.refusal(Problem(("target", board.name), "", "is missing", f"the manifest has {tables}"))
    table = manifest.target[board.name]
    for index, wave in enumerate(table.waves):
        if wave > board.maximum_wave:
            rule = f"is over the {board.maximum_wave} rows that {board.name} takes"
            key = ("target", board.name, "waves", index)
            raise file.refusal(Problem(key, str(wave), rule, f"nearest legal value {board.maximum_wave}"))
    bare = _numbers(manifest, table, board)
    _check_experts(file, bare)
    _check_recurrence(file, bare)
    _check_ragged(file, bare)
    resolved = replace(bare, memory=memory.report(bare), digest=_digest(bare))
    if not resolved.memory.fits:
        raise _does_not_fit(file, resolved)
    return resolved


class BoardTooSmall(ManifestError):
    """An operation of the model has no program on the board, whatever the table of the target says."""


def _check_experts(file: ModelFile, resolved: Resolved) -> None:
    if resolved.experts is None:
        return
    try:
        experts.cut(resolved)
    except NoProgram as error:
        rule = f"cannot be run on {resolved.target}: {error}"
        hint = "no model of these sizes runs on such a board"
        problem = Problem(("model", "experts", "intermediate"), str(resolved.experts.intermediate), rule, hint)
        raise BoardTooSmall(file.refusal(problem).diagnostics) from None


def _check_recurrence(file: ModelFile, resolved: Resolved) -> None:
    """The operation's phased program wants a core for every value head."""
    net, cores = resolved.gated_delta_net, resolved.board.cores
    if net is not None and net.form == "operation" and net.value_heads > cores:
        rule = f"is over the {cores} cores of {resolved.target}, one of which the operation takes for each value head"
        problem = Problem(
            ("model", "gated_delta_net", "value_heads"), str(net.value_heads), rule, 'write recurrence = "matmuls"'
        )
        raise BoardTooSmall(file.refusal(problem).diagnostics)


def _check_ragged(file: ModelFile, resolved: Resolved) -> None:
    if resolved.ragged_tokens and (why := programs.keeps_rows_equal(resolved)):
        key = ("target", resolved.target, "ragged_tokens")
        raise file.refusal(Problem(key, shown(resolved.ragged_tokens), why, "leave it out: waves then have equal rows"))


def _numbers(manifest: Manifest, table: TargetTable, board: Board) -> Resolved:
    model, family = manifest.model, FAMILIES[manifest.family]
    head_dim = rules.head_dim(model)
    devices = board.mesh[0] * board.mesh[1]
    query_heads, key_value_heads = model.query_heads // devices, model.key_value_heads // devices
    intermediate = model.intermediate if model.experts is None else model.experts.intermediate
    scale, derived_scale = _attention_scale(model.query_scale or head_dim)
    window, reach = _window(model, table)
    return Resolved(
        name=manifest.name,
        module=module_name(manifest.name),
        family=manifest.family,
        source=manifest.source,
        target=board.name,
        board=board,
        placement=REPLICATE,
        wrapper=manifest.wrapper,
        packaged_weights=PackagedWeights(**dict(manifest.weights)) if manifest.weights else None,
        **{name: getattr(model, name) for name in COPIED_FROM_MODEL},
        intermediate=intermediate,
        experts=_experts(model, family),
        head_dim=head_dim,
        rope=_rope(model, model.rope, head_dim),
        query_key_value_bias=family.query_key_value_bias,
        query_key_norm=family.query_key_norm,
        fused_projections=family.fused_projections,
        rotary_style="half_split" if head_dim == 32 or head_dim % 64 == 0 else "interleaved",
        rotary_switch=_rotary_switch(model.rope, table.context),
        devices=devices,
        device_query_heads=query_heads,
        device_key_value_heads=key_value_heads,
        device_query_width=query_heads * head_dim,
        device_key_value_width=key_value_heads * head_dim,
        device_query_key_value_width=(query_heads + 2 * key_value_heads) * head_dim,
        device_intermediate=intermediate // devices,
        device_vocabulary=model.vocabulary // devices,
        attention_scale=scale,
        dtypes=_dtypes(table, model),
        **{name: getattr(table, name) for name in COPIED_FROM_TARGET},
        context_blocks=table.context // table.block_size,
        alignment=rules.alignment(model, table),
        derivations={
            "head_dim": (
                "model.head_dim" if model.head_dim else f"{model.hidden} hidden / {model.query_heads} query heads"
            ),
            "device_query_width": f"{query_heads} query heads x {head_dim}",
            "device_key_value_width": f"{key_value_heads} key-value heads x {head_dim}",
            "device_query_key_value_width": (
                f"({query_heads} query + 2 x {key_value_heads} key-value heads) x {head_dim}"
            ),
            "attention_scale": derived_scale,
            **(
                {"window_reach": f"{window - 1} tokens before a token, in multiples of the alignment"} if window else {}
            ),
            "context_blocks": f"{table.context} context / {table.block_size} block",
            "alignment": (
                "context: attention over the caches takes no soft cap, so that every row runs from its start"
                if model.attention_soft_cap
                else rules.units_in_words(model, table)
            ),
        },
        keys=keys(board.name, model, Dtypes, Rope, Experts, GatedDeltaNet),
        sliding_window=window,
        full_attention_layers=_full_attention_layers(model, window),
        window_reach=reach,
        local_rope=_rope(model, model.local_rope, head_dim) if model.local_rope else None,
        query_scale=model.query_scale or 0,
        attention_soft_cap=model.attention_soft_cap or 0.0,
        logit_soft_cap=model.logit_soft_cap or 0.0,
        **{name: getattr(family, name) for name in FIXED_BY_FAMILY},
        gated_delta_net=_gated_delta_net(model, table, family),
        state_slots=table.state_slots or 0,
        ragged_tokens=table.ragged_tokens or (),
    )


def _gated_delta_net(model: Model, table: TargetTable, family: Family) -> GatedDeltaNet | None:
    net = model.gated_delta_net
    if net is None:
        return None
    form = recurrences.form(table.recurrence, net.key_dim, net.value_dim)
    return GatedDeltaNet(**dict(net), published=family.gated_delta_net, form=form, chunk=recurrences.CHUNKS[form])


def _full_attention_layers(model: Model, window: int) -> tuple[int, ...]:
    """Layers that see all tokens before each, where others do not."""
    if model.layer_kinds is not None:
        return tuple(
            layer for layer in range(model.layers) if model.layer_kinds[layer % len(model.layer_kinds)] == "full"
        )
    return (model.full_attention_layers or ()) if window else ()


def _rope(model: Model, rope: RopeTable, head_dim: int) -> Rope:
    stated = {key: getattr(rope, key) for key in rules.ROPE_KEYS[rope.kind]}
    return Rope(rope.kind, rope.theta, model.rotary_dimensions or head_dim, **stated)


def _window(model: Model, table: TargetTable) -> tuple[int, int]:
    """The window and its reach before a chunk; none where the context fits into it and all layers turn alike."""
    window, step = model.sliding_window or 0, rules.alignment(model, table)
    if not window or (table.context <= window and model.local_rope is None):
        return 0, 0
    return window, -(-(window - 1) // step) * step


def _experts(model: Model, family: Family) -> Experts | None:
    if model.experts is None:
        return None
    biases, activation = family.expert_biases, family.expert_activation
    return Experts(**dict(model.experts), published=family.experts, biases=biases, activation=activation)


def _dtypes(table: TargetTable, model: Model) -> Dtypes:
    """Experts are stored as the other weights, and a recurrent state in float32, unless the table says otherwise."""
    stated = dict(table.dtypes)
    if model.experts is not None:
        stated["experts"] = stated["experts"] or stated["weights"]
    if model.gated_delta_net is not None:
        stated["state"] = stated["state"] or "float32"
    return Dtypes(**stated)


def _rotary_switch(rope: RopeTable, context: int) -> int:
    """A context that no prompt leaves needs the first set alone."""
    return rope.original_context if rope.kind == "longrope" and rope.original_context < context else 0


def _attention_scale(query_scale: int) -> tuple[float, str]:
    """query_scale ** -0.5 rounded to float32, which is all that the chunked attention operation accepts."""
    exact = query_scale**-0.5
    (scale,) = struct.unpack("f", struct.pack("f", exact))
    return scale, f"{query_scale} ** -0.5, {'exact in' if scale == exact else 'rounded to'} float32"


def _digest(resolved: Resolved) -> str:
    """Over the numbers that shape the emitted code: not where they were read, nor the rates of the board."""
    unstated = {one.name: one.default for one in fields(Resolved) if one.default is not MISSING}
    numbers = {
        key: value
        for key, value in _stated(resolved.to_json()).items()
        if key not in NOT_IN_DIGEST and (key not in unstated or getattr(resolved, key) != unstated[key])
    }
    numbers["board"] = {key: value for key, value in numbers["board"].items() if key != "rates"}
    canonical = json.dumps(numbers, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]


def _stated(value: Any) -> Any:
    """Without what is None: a part that a model lacks leaves no trace in its digest."""
    if isinstance(value, dict):
        return {key: _stated(item) for key, item in value.items() if item is not None}
    return value


def _does_not_fit(file: ModelFile, resolved: Resolved) -> ManifestError:
    """All the numbers, and the largest cache that would fit."""
    used, key = resolved.memory, ("target", resolved.target, "key_value_blocks")
    parts = (
        ("weights", used.weights),
        ("rotary tables", used.rotary_tables),
        ("key-value blocks", used.key_value),
        *([("recurrent states", used.recurrent_states)] if used.recurrent_states else []),
        (f"activations of {used.largest_pass} tokens", used.activation_peak),
        ("hidden rows of captured traces", used.captured_rows),
        ("trace region", used.trace_region),
    )
    listed = " + ".join(f"{size / GIB:.3f} {name}" for name, size in parts)
    whole = f"{used.total / GIB:.3f} GiB of {used.capacity / GIB:.3f} GiB DRAM on {resolved.target}"
    rule = f"does not fit: {listed} = {whole}"
    blocks = memory.most_key_value_blocks(resolved, used.capacity - (used.total - used.key_value))
    tokens = blocks * resolved.block_size
    if blocks >= resolved.context_blocks:
        hint = f"nearest legal value {blocks}"
    elif tokens >= resolved.prefill_chunk:
        hint = f"nearest legal context {tokens} with key_value_blocks {blocks}"
    else:
        hint = "no key_value_blocks fits: choose smaller dtypes, a smaller wave_tokens or a larger board"
    return file.refusal(Problem(key, shown(resolved.key_value_blocks), rule, hint))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value

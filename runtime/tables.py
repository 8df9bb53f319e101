"""The frozen values that an emitted module states about itself.

An emitted module builds its tables from these types and the runtime only ever reads them: nothing here knows a model, a device
or how a value came to be chosen. Sizes are elements, tokens or bytes as named; every count of heads or columns is per device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REPLICATE = "replicate"
TILE = 32  # rows and columns of a tile
RECURRENT, FULL, SLIDING = "gated_delta_net", "full", "sliding"  # kinds of layers
ALONE, WAVE, ROWS, MATMULS = "alone", "wave", "rows", "matmuls"  # forms of a pass's recurrence
FORMS = (ALONE, WAVE, ROWS, MATMULS)
RAGGED = "ragged"  # the variant whose rows are of any lengths


@dataclass(frozen=True)
class Board:
    """One chip of the target board. Bytes are per bank (DRAM) and per core (L1)."""

    name: str
    architecture: str  # "wormhole_b0" or "blackhole"
    grid: tuple[int, int]  # worker cores, columns x rows
    dram_banks: int
    dram_bank_bytes: int
    dram_alignment: int
    l1_bank_bytes: int  # what the allocator may hand out on one core
    l1_limit: int  # highest address that program buffers may reach on one core


@dataclass(frozen=True)
class Rope:
    """Rotary embedding, in the terms of the published configurations.

    `kind` is "default", "linear", "llama3", "yarn" or "longrope"; a field that a kind does not use is neutral.
    `dimensions` of each head are turned, from the first on; cosines and sines are multiplied by `attention_factor`.
    `short_factors` and `long_factors` stretch one pair each, in prompts of up to and of more than `original_context`.
    """

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
class Experts:
    """The feed-forward half of a mixture of experts: `per_token` of `count` experts of width `intermediate` see each token.

    `renormalise`: the weights of the chosen sum to one. `published` names the family whose checkpoints hold it: "qwen3_moe",
    "mixtral", "gpt_oss" or "qwen3_5_moe". `biases`: of the router and of all projections. `activation` is "silu" or
    "swiglu_oai", whose gate is clamped. An expert of `shared_intermediate` width sees every token and has a gate of its own
    (0: there is none).
    """

    count: int
    per_token: int
    intermediate: int
    renormalise: bool
    published: str
    biases: bool = False
    activation: str = "silu"
    shared_intermediate: int = 0


@dataclass(frozen=True)
class GatedDeltaNet:
    """Linear attention with a state [key_dim, value_dim] for each value head, behind a convolution over `kernel` tokens of each
    channel (Yang et al., 2024).

    Value head h reads key head h // (value_heads / key_heads). `published` says how a checkpoint holds the projections:
    "interleaved" (Qwen3-Next: two tensors, the parts of each key head side by side) or "split" (Qwen3.5: a tensor for each).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    published: str

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def convolution_width(self) -> int:
        """Channels that are convolved: queries, keys and values."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True)
class Geometry:
    """A decoder model as its published configuration describes it: what the torch reference is built from.

    `fused_projections`: the checkpoint holds query, key and value, and gate and up, as one tensor each. Of a
    `sliding_window` of W tokens a layer sees each token itself and the W - 1 before it (0: no window); the layers in
    `full_attention_layers` see all. `local_rope` turns the heads of layers with a window, where it differs. Scores are
    scaled by `query_scale` ** -0.5 (0: head_dim). A soft cap c makes c tanh(x / c) of x (0: none). `sandwich_norms`: what
    attention and feed-forward give is normed before it is added. `unit_offset_norms`: norm weights are published as w of
    1 + w. `scaled_embedding`: embedding rows are multiplied by hidden ** 0.5. `attention_sinks`: a score of each query
    head that takes its share of the weights to no value. `activation` is "silu" or "gelu_tanh". With `gated_delta_net`,
    the layers that are not in `full_attention_layers` are linear attention. `attention_gate`: the query projection also
    gives, behind each query head, as many values whose sigmoid multiplies what is attended.
    """

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    query_heads: int
    key_value_heads: int
    head_dim: int
    norm_epsilon: float
    query_key_value_bias: bool
    query_key_norm: bool
    tied_embeddings: bool
    rope: Rope
    fused_projections: bool = False
    activation: str = "silu"
    sliding_window: int = 0
    full_attention_layers: tuple[int, ...] = ()
    local_rope: Rope | None = None
    query_scale: int = 0
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    sandwich_norms: bool = False
    unit_offset_norms: bool = False
    scaled_embedding: bool = False
    attention_sinks: bool = False
    attention_output_bias: bool = False
    experts: Experts | None = None  # in place of the dense feed-forward, whose width is then theirs
    gated_delta_net: GatedDeltaNet | None = None
    attention_gate: bool = False

    def is_recurrent(self, layer: int) -> bool:
        """Whether a layer is linear attention with a recurrent state."""
        return self.gated_delta_net is not None and layer not in self.full_attention_layers

    def window(self, layer: int) -> int:
        """Tokens that a layer's attention sees of those up to each one, itself included; 0 where it sees all."""
        return 0 if layer in self.full_attention_layers else self.sliding_window


@dataclass(frozen=True)
class Shape:
    """Everything static about one pass: the identity of a trace.

    `rows` x `tokens` is the padded size; rows of a "ragged" pass, at most so many, share it as they need. `fill_pages` is the width of the page table that the cache write uses (all rows, back
    to back), `read_pages` the width of the one that chunked attention reads (0 where attention reads no cache).
    """

    variant: str  # "single", "batched", "ragged", "chunked" or "chunked_batched"
    rows: int
    tokens: int
    fill_pages: int
    read_pages: int
    row_selection: str  # "last": one hidden row for each prompt reaches the head
    digest: str  # of the resolved geometry and this shape
    microseconds: int = 0  # modelled, without attention: what rows of any lengths are packed by

    @property
    def token_tiles(self) -> int:
        """Rows of tiles that the tokens of the pass take, packed back to back."""
        return self.rows * self.tokens // TILE

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row that the pass takes."""
        return self.rows * self.tokens if self.variant == RAGGED else self.tokens


@dataclass(frozen=True)
class Places:
    """Memory configurations of a layer's intermediates: what a norm gives, the heads, what attention and what the gate give."""

    normed: Any
    heads: Any
    attended: Any
    gated: Any


@dataclass(frozen=True)
class Input:
    """One host value of a pass. `refresh` says when a replay copies it again: "always", "changed" or "never"."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    refresh: str


@dataclass(frozen=True)
class Weight:
    """One device tensor of weights: where it comes from and what it is on the device.

    `sources` are published checkpoint names ("{layer}" stands for the index of a layer); `transform` names one of the rules of
    runtime/weights.py. `shape` is the device shape.

    With `experts`, there is a tensor of `shape` for each expert and each of `parts` of its width, and "{expert}" in a source is
    the expert's index; a source without it holds all experts at once. `otherwise` are the sources of checkpoints that lack the
    first ones. With `kind`, only layers of that kind have it.
    """

    name: str
    sources: tuple[str, ...]
    transform: str
    shape: tuple[int, ...]
    dtype: Any
    layout: Any
    placement: str = REPLICATE
    experts: int = 0
    parts: int = 1
    otherwise: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Routing:
    """What places tokens by their experts, cut to the tokens of a pass: the constants of runtime/transforms.py by their names."""

    earlier_tokens: Any  # ones where a token comes before another
    every_token: Any  # a row of ones
    tiles_before: Any  # 32 where an expert comes before another
    unchosen: Any  # a row of zeros for each token
    chosen: Any  # ones for the experts of each token
    token_of_pair: Any
    free_slots: Any
    expert_index: Any


@dataclass(frozen=True)
class DeltaTables:
    """What all recurrent layers of a pass read beside their weights: constants of runtime/recurrent_weights.py by their names,
    of which those after `lower_triangle` belong to one form of the recurrence or the other.
    """

    valid: Any  # [1, 1, tokens, value heads]: 1 for a token, 0 for padding
    tail_selection: Any  # [1, 1, 32, tokens]: 1 where a token is one of the last of its row
    row_start: Any
    identity: Any
    lower_triangle: Any
    all_ones: Any = None
    quadrants: Any = None
    first_joining: Any = None
    joining: tuple[Any, ...] = ()
    query_length: Any = None
    key_length: Any = None


@dataclass(frozen=True)
class Store:
    """Per-sequence state on the device: `layers` tensors of `shape` under one name."""

    name: str
    layers: int
    shape: tuple[int, ...]
    dtype: Any
    layout: Any
    placement: str = REPLICATE


@dataclass(frozen=True)
class State:
    """A part of the recurrent state of a sequence: a tensor of `shape` for each sequence in each of `layers`."""

    name: str
    layers: int
    shape: tuple[int, ...]
    dtype: Any
    layout: Any
    placement: str = REPLICATE


def rotary_switch(module: Any) -> int | None:
    """Tokens of the longest prompt that an emitted module turns by the first of its two sets of rotary tables; None for
    a module with one set, which states no such constant.
    """
    return getattr(module, "ROTARY_SWITCH", None)


def window_reach(module: Any) -> int:
    """Tokens before a chunk whose blocks the layers with a window read; 0 for a module without such layers, which states
    no such constant.
    """
    return getattr(module, "WINDOW_REACH", 0)


def layer_kinds(module: Any) -> tuple[str, ...]:
    """The kind of each layer of a module that has several; () where all layers are alike, which needs no such constant."""
    return getattr(module, "LAYER_KINDS", ())


def states(module: Any) -> tuple[State, ...]:
    """The parts of a sequence's recurrent state; () for a module whose layers have none, which needs no such table."""
    return getattr(module, "STATES", ())


def state_slots(module: Any) -> int:
    """Sequences whose recurrent state is held at a time; 0 for a module whose layers have none."""
    return getattr(module, "STATE_SLOTS", 0)


def recurrence(module: Any) -> dict[int, str]:
    """Padded rows of a pass -> the form that its recurrence was emitted in; {} for a module that states no such table."""
    return getattr(module, "RECURRENCE", {})


def of_kind(module: Any, layers: int, kind: str) -> int:
    """How many of a module's first `layers` layers are of a kind."""
    return layer_kinds(module)[:layers].count(kind)


def pass_microseconds(module: Any) -> dict[tuple[int, int], float]:
    """Rows and tokens a row of each pass from the start of a prompt -> what rows are packed by; {} for a module without ragged
    waves.
    """
    if not any(shape.variant == RAGGED for shape in module.TRACES):
        return {}
    return {
        (shape.rows, shape.tokens): shape.microseconds for shape in module.TRACES if shape.variant in ("single", RAGGED)
    }


def wave_rows(module: Any) -> int:
    """Padded rows of the largest pass."""
    return max([shape.rows for shape in module.TRACES])


def held_states(module: Any) -> int:
    """Whole states of a sequence (every part of every layer) that lie on the device beside those that passes work on.

    Two for each slot, at its end and at the boundary before it, as many again for the rows of the largest wave, whose new
    ones are written before the old ones are given up, and the zero state that every prompt begins with.
    """
    slots = state_slots(module)
    return 1 + 2 * (slots + min(slots, wave_rows(module)))

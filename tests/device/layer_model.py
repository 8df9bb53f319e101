"""The generator's model of a layer beside what was captured of one, operation by operation, for any module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from generator import captured, kinds, placement
from generator.attentions import attention_bytes
from generator.cost import Work, time_of
from generator.geometry import Resolved
from generator.layer import layer_steps, part_steps
from generator.matmuls import Matmul, matmul_bytes, minimal_matmul_bytes, program_cycles
from generator.placement import Programs, choose_programs
from generator.programs import heads_dtype
from generator.shapes import PassShape, enumerate_shapes
from generator.steps import Step
from generator.tiles import TILE_BYTES, tiles

NAMES = {  # step of the model -> device operations that it may be
    "rms_norm": {"LayerNormDeviceOperation"},
    "query_key_value": {"MatmulDeviceOperation"},
    "nlp_create_qkv_heads": {"NlpCreateHeadsDeviceOperation"},
    "rotary_embedding": {"RotaryEmbeddingHfDeviceOperation", "RotaryEmbeddingLlamaDeviceOperation"},
    "typecast": {"TypecastDeviceOperation"},
    "paged_fill_cache": {"PagedFillCacheDeviceOperation"},
    "transpose": {"TransposeDeviceOperation"},
    "product": {"MatmulDeviceOperation"},
    "mixture": {"MatmulDeviceOperation"},
    "softmax": {"SoftmaxDeviceOperation"},
    "attention": {"SDPAOperation"},
    "nlp_concat_heads": {"NLPConcatHeadsDeviceOperation"},
    "attention_output": {"MatmulDeviceOperation", "MinimalMatmulDeviceOperation"},
    "add": {"BinaryNgDeviceOperation"},
    "gate_up": {"MatmulDeviceOperation", "MinimalMatmulDeviceOperation"},
    "mul": {"BinaryNgDeviceOperation"},
    "down": {"MatmulDeviceOperation", "MinimalMatmulDeviceOperation"},
    "attention_gate": {"MatmulDeviceOperation"},
    "mixed": {"MatmulDeviceOperation"},
    "tails": {"MatmulDeviceOperation"},
    "output_gate": {"MatmulDeviceOperation"},
    "rates": {"MatmulDeviceOperation"},
    "delta_output": {"MatmulDeviceOperation", "MinimalMatmulDeviceOperation"},
    "softplus": {"UnaryDeviceOperation"},
    "slice": {"SliceDeviceOperation"},
    "concat": {"ConcatDeviceOperation"},
    "copy": {"CopyDeviceOperation"},
    "embedding": {"EmbeddingsDeviceOperation"},
    "untilize": {"UntilizeDeviceOperation", "UntilizeCodegenDeviceOperation"},
    "qkv_causal_conv1d_silu": {"QkvCausalConv1dSiluOperation"},
    "delta_rule": {"ChunkGdnDeviceOperation"},
    "delta_prepare": {"ChunkGdnPrepOperation"},
    "delta_scan": {"ChunkGdnScanOperation"},
    "sigmoid_gated_rms_norm": {"SigmoidGatedRmsNormOperation"},
}
UNTILIZED_IN_PIECES = 64  # how often the buffers of an untilized row go into the whole row, which is what is planned


@dataclass(frozen=True)
class Pair:
    """One operation of a layer as modelled and as captured. `buffer_bytes` and `work` are the model's."""

    step: Step
    call: dict[str, Any]
    buffer_bytes: int
    free_bytes: int
    work: Work
    captured_work: Work


@dataclass(frozen=True)
class Layer:
    """The layer of one pass that stands for all later ones of its kind, and the whole report of the pass.

    `pass_peak` is the modelled peak of L1 on a core over the layers of all kinds. Of a layer with experts, whose second half the
    plan has in outline, `steps`, `calls` and `pairs` are those of attention, and `rest_peak` is the modelled peak of the rest.
    """

    resolved: Resolved
    shape: PassShape
    report: dict[str, Any]
    steps: tuple[Step, ...]
    calls: tuple[dict[str, Any], ...]
    pairs: tuple[Pair, ...]
    kind: str
    rest_peak: int = 0
    pass_peak: int = 0

    @property
    def name(self) -> str:
        return f"{self.resolved.name} {self.resolved.target} {self.shape.variant} {self.shape.rows}x{self.shape.tokens} {self.kind}"

    @property
    def buffers_outside(self) -> int:
        """Bytes of the fullest core by operations outside of layers, where no tensor lies in L1."""
        return max(call["circular_buffer_bytes"] for call in self.report["calls"] if call["layer"] is None)

    @property
    def l1_peak(self) -> int:
        whole = self.resolved.board.l1_bank_bytes
        return max(self.rest_peak, *(whole - pair.free_bytes + pair.buffer_bytes for pair in self.pairs))

    def seconds(self, captured_ones: bool) -> float:
        works = (pair.captured_work if captured_ones else pair.work for pair in self.pairs)
        return sum(time_of(work, self.resolved.board.rates).seconds for work in works)

    def dram_bytes(self, captured_ones: bool) -> float:
        return sum((pair.captured_work if captured_ones else pair.work).dram_bytes for pair in self.pairs)


def layers(resolved: Resolved, verdict: dict[str, Any]) -> Iterator[Layer]:
    """One for each pass that the verdict reports on and each kind of layers."""
    shapes = enumerate_shapes(resolved)
    chosen = choose_programs(resolved, shapes)
    by_size = {(shape.variant, shape.rows, shape.tokens): shape for shape in shapes}
    for report in verdict["shapes"]:
        size = report["shape"]
        shape = by_size[size["variant"], size["rows"], size["tokens"]]
        found = [_layer(resolved, chosen, shape, report, kind) for kind in resolved.kinds]
        peak = max(layer.l1_peak for layer in found)
        yield from (replace(layer, pass_peak=peak) for layer in found)


def _layer(resolved: Resolved, chosen: Programs, shape: PassShape, report: dict[str, Any], kind: str) -> Layer:
    roles = {role.name: role for role in kinds.layer_matmuls(resolved)}
    steps, places = layer_steps(resolved, shape, chosen.attentions[shape], kind), chosen.places[shape.token_tiles]
    index = resolved.layer_kinds.index(kind, 1)
    calls = tuple(call for call in report["calls"] if call["layer"] == index)
    compared = len(steps)
    if resolved.experts is not None:
        compared = len(part_steps(resolved, shape, chosen.attentions[shape], kind)[0])
    cycles = {name: _cycles(resolved, chosen, role, shape) for name, role in roles.items()}
    pairs = (
        Pair(
            step,
            call,
            _program_bytes(chosen, roles[step.role], shape) if step.role else step.buffer_bytes,
            free,
            placement.step_work(resolved, step, places, cycles),
            captured._work(call, report["shape"], resolved)[0],
        )
        for step, call, free in zip(steps[:compared], calls, placement._free_below(resolved, steps, places))
    )
    rest = [
        resolved.board.l1_bank_bytes
        - free
        + (_program_bytes(chosen, roles[step.role], shape) if step.role else step.buffer_bytes)
        for step, free in list(zip(steps, placement._free_below(resolved, steps, places)))[compared:]
    ]
    both = (steps[:compared], calls[:compared] if rest else calls, tuple(pairs))
    return Layer(resolved, shape, report, *both, kind, max(rest, default=0))


def _cycles(resolved: Resolved, chosen: Programs, role: kinds.MatmulRole, shape: PassShape) -> float:
    program = chosen.matmuls[role.name, shape.token_tiles]
    return program_cycles(
        resolved.board.rates.core, program, *role.sides(shape.token_tiles), role.weight_dtype, role.fused
    )


def _program_bytes(chosen: Programs, role: kinds.MatmulRole, shape: PassShape) -> int:
    program, dtypes = chosen.matmuls[role.name, shape.token_tiles], (
        role.weight_dtype,
        role.output_dtype,
        role.bias_dtype,
    )
    if isinstance(program, Matmul):
        return matmul_bytes(program, *dtypes)
    return minimal_matmul_bytes(program, *dtypes, role.fused)


def assert_modelled(layer: Layer) -> None:
    """The layer of the model is the captured one: operations, buffers, bytes, seconds, and a core's peak."""
    name = layer.name
    assert len(layer.calls) == len(layer.steps), name
    for pair in layer.pairs:
        assert pair.call["operation"] in NAMES[pair.step.operation], (name, pair.step.operation, pair.call["operation"])
        reached, most = pair.call["circular_buffer_bytes"], allowance(layer, pair.step)
        planned = pair.buffer_bytes
        if (
            pair.step.operation == "attention" and planned > most * reached
        ):  # both upper bounds at once, and nothing else
            planned, most = least_of_attention(layer, planned), 1.0
        assert reached <= planned <= most * reached, (name, pair.step.operation, pair.buffer_bytes, reached)
    found, modelled = layer.dram_bytes(captured_ones=True), layer.dram_bytes(captured_ones=False)
    assert abs(modelled / found - 1) < 0.01, (name, modelled, found)
    found, modelled = layer.seconds(captured_ones=True), layer.seconds(captured_ones=False)
    assert abs(modelled / found - 1) < 0.005, (name, modelled, found)
    peak = layer.report["l1_bytes"]["peak"]
    if (
        layer.resolved.experts is None
    ):  # a capture adds up more of the fused operation's buffers than the library refuses by
        assert peak <= max(layer.pass_peak, layer.buffers_outside), (name, layer.pass_peak, layer.buffers_outside, peak)
    assert layer.l1_peak <= layer.resolved.board.l1_bank_bytes, name


def least_of_attention(layer: Layer, planned: int) -> int:
    """What is planned for attention without a second block of queries and without the third pair of keys and values."""
    resolved = layer.resolved
    cut = choose_programs(resolved, (layer.shape,)).attentions[layer.shape]
    stored = (cut, resolved.head_dim, resolved.dtypes.key_value, heads_dtype(resolved))
    queries = tiles(cut.query_chunk) * tiles(resolved.head_dim) * TILE_BYTES[heads_dtype(resolved)]
    return planned - queries - (attention_bytes(*stored, chained=True) - attention_bytes(*stored))


def allowance(layer: Layer, step: Step) -> float:
    """How often the captured buffers may go into the modelled ones: once but for three upper bounds.

    Attention holds one block of queries where it has no second one, and Blackhole's does not always take a third pair
    of keys and values; a matmul over heads in block floats, and a norm of them, is counted as one over bfloat16.
    """
    in_block_floats = heads_dtype(layer.resolved) != "bfloat16"
    if step.operation == "attention":
        return 1.26
    if step.operation == "attention_output" and in_block_floats:
        return 1.5
    if step.operation == "delta_rule":  # the library's own choice of geometry, at most
        return 1.6
    if step.operation == "tails":  # a product in one step holds its inputs once
        return 1.8
    if step.operation == "rates":  # sums in float32 need no second buffer where that is the output's type
        return 1.2
    if step.operation == "untilize":
        return UNTILIZED_IN_PIECES
    if step.operation == "rms_norm" and step.reads[0].place == "heads" and in_block_floats:
        return 1.15
    return 1.0

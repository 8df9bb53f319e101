"""What one family of models differs in from another, as far as prefill goes."""

from __future__ import annotations

from dataclasses import dataclass

OPTIONS = ("sliding_window", "local_rope", "query_scale", "attention_soft_cap", "logit_soft_cap")  # keys of [model]


@dataclass(frozen=True)
class Family:
    """All families here are decoders: root-mean-square norms before attention and feed-forward, rotary embedding,
    grouped query heads, causal attention, a gated feed-forward or a mixture of such experts, and a head that may share the
    embedding.
    """

    name: str
    query_key_value_bias: bool  # biases on the query, key and value projections
    query_key_norm: bool  # a norm over each query and key head, before the rotary embedding
    rope_kinds: tuple[str, ...]
    partial_rotary: bool = False  # may turn the first dimensions of each head only
    fused_projections: bool = False  # published query, key and value are one tensor, and so are gate and up
    activation: str = "silu"  # of the gate
    sandwich_norms: bool = False  # norms also behind attention and feed-forward, before they are added
    unit_offset_norms: bool = False  # norm weights are published as w of 1 + w
    scaled_embedding: bool = False  # embedding rows are multiplied by hidden ** 0.5
    attention_sinks: bool = False  # a score of each query head that takes its share of the weights to no value
    attention_output_bias: bool = False  # a bias on the output projection of attention
    options: tuple[str, ...] = ()  # which of OPTIONS a manifest may state
    experts: str = ""  # whose published names a mixture of experts has in place of the dense feed-forward
    # What [model.experts] must say of the weights of the chosen, where the family fixes it.
    renormalises: bool | None = None
    expert_biases: bool = False  # on the router and on all projections of the experts
    expert_activation: str = "silu"  # or "swiglu_oai", whose gate is clamped
    gated_delta_net: str = ""  # how published projections of linear attention lie: "interleaved" or "split"
    attention_gate: bool = False  # behind each query head its gate, whose sigmoid multiplies what is attended
    shared_expert: bool = False  # an expert that every token sees, behind a gate of its own

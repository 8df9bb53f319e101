"""What one family of models differs in from another, as far as prefill goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """All families here are decoders: root-mean-square norms before attention and feed-forward, rotary embedding,
    grouped query heads, full causal attention, a gated feed-forward with silu or a mixture of such experts, and a head that may
    share the embedding.
    """

    name: str
    query_key_value_bias: bool  # biases on the query, key and value projections, none on the output projection
    query_key_norm: bool  # a norm over each query and key head, before the rotary embedding
    rope_kinds: tuple[str, ...]
    partial_rotary: bool = False  # may turn the first dimensions of each head only
    fused_projections: bool = False  # published query, key and value are one tensor, and so are gate and up
    experts: str = ""  # whose published names a mixture of experts has in place of the dense feed-forward
    renormalises: bool | None = (
        None  # what [model.experts] must say of the weights of the chosen, where the family fixes it
    )
    expert_biases: bool = False  # on the router and on all projections of the experts
    expert_activation: str = "silu"  # or "swiglu_oai", whose gate is clamped

"""Where each number of a resolved model stands in its manifest: what comments in emitted modules and `codegen explain` name."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from generator.manifest import Model

FIXED_BY_FAMILY = (
    "sandwich_norms",
    "unit_offset_norms",
    "scaled_embedding",
    "attention_sinks",
    "attention_output_bias",
    "attention_gate",
)
STATED_BY_SOME = (
    "sliding_window",
    "full_attention_layers",
    "local_rope",
    "query_scale",
    "attention_soft_cap",
    "logit_soft_cap",
)
COPIED_FROM_MODEL = (
    "vocabulary",
    "hidden",
    "layers",
    "query_heads",
    "key_value_heads",
    "maximum_context",
    "norm_epsilon",
    "activation",
    "tied_embeddings",
)
COPIED_FROM_TARGET = (
    "context",
    "block_size",
    "key_value_blocks",
    "attention_chunk",
    "lengths",
    "waves",
    "wave_tokens",
    "prefill_chunk",
    "batch_invariant",
)


def keys(target: str, model: Model, dtypes: type, rope: type, experts: type, gated_delta_net: type) -> dict[str, str]:
    """Of each field of a resolved model, the manifest key or keys that it came from; `dtypes`, `rope`, `experts` and
    `gated_delta_net` are the types of its tables.
    """
    table = f"target.{target}"
    head_dim = "model.head_dim" if model.head_dim else "model.hidden, model.query_heads"
    inner = "model.intermediate" if model.experts is None else "model.experts.intermediate"
    heads = f"model.query_heads, model.key_value_heads, {head_dim}"
    found = {name: name for name in ("name", "family", "source")}
    found |= {name: f"model.{name}" for name in COPIED_FROM_MODEL}
    found |= {name: f"{table}.{name}" for name in COPIED_FROM_TARGET}
    found |= {f"dtypes.{one.name}": f"{table}.dtypes.{one.name}" for one in fields(dtypes)}
    found |= {f"rope.{one.name}": f"model.rope.{one.name}" for one in fields(rope)}
    if model.experts is not None:
        found |= {f"experts.{one.name}": f"model.experts.{one.name}" for one in fields(experts)}
        found |= dict.fromkeys(("experts.published", "experts.biases", "experts.activation"), "family")
    if model.gated_delta_net is not None:
        found |= {f"gated_delta_net.{one.name}": f"model.gated_delta_net.{one.name}" for one in fields(gated_delta_net)}
        found["gated_delta_net.published"] = "family"
        found |= dict.fromkeys(("gated_delta_net.form", "gated_delta_net.chunk"), f"{table}.recurrence")
        found["full_attention_layers"] = "model.layer_kinds"
    found["rope.dimensions"] = "model.rotary_dimensions" if model.rotary_dimensions else head_dim
    cut_by = [f"{table}.block_size", f"{table}.attention_chunk"]
    if model.gated_delta_net is not None:
        cut_by.append(f"{table}.recurrence")
    return found | {
        "module": "name",
        "target": table,
        "wrapper": "wrapper",
        "packaged_weights": "weights",
        "intermediate": inner,
        "experts": "family" if model.experts is None else "model.experts",
        "rope": "model.rope",
        "dtypes": f"{table}.dtypes",
        "head_dim": head_dim,
        "query_key_value_bias": "family",
        "query_key_norm": "family",
        "fused_projections": "family",
        "rotary_style": head_dim,
        "rotary_switch": (
            "model.rope.kind, model.rope.original_context" if model.rope.original_context else "model.rope.kind"
        ),
        "attention_scale": "model.query_scale" if model.query_scale else head_dim,
        **{name: f"model.{name}" for name in STATED_BY_SOME if name not in found},
        **dict.fromkeys(FIXED_BY_FAMILY, "family"),
        "window_reach": f"model.sliding_window, {table}.block_size, {table}.attention_chunk",
        "device_query_heads": "model.query_heads",
        "device_key_value_heads": "model.key_value_heads",
        "device_query_width": ", ".join(dict.fromkeys(f"model.query_heads, {head_dim}".split(", "))),
        "device_key_value_width": f"model.key_value_heads, {head_dim}",
        "device_query_key_value_width": ", ".join(dict.fromkeys(heads.split(", "))),
        "device_intermediate": inner,
        "device_vocabulary": "model.vocabulary",
        "gated_delta_net": "model.gated_delta_net",
        "state_slots": f"{table}.state_slots",
        "ragged_tokens": f"{table}.ragged_tokens",
        "context_blocks": f"{table}.context, {table}.block_size",
        "alignment": f"{table}.context" if model.attention_soft_cap else ", ".join(cut_by),
    }

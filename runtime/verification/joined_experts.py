"""Experts as transformers 5 holds them, all in one tensor, and as checkpoints publish them, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtime.tables import Experts, Geometry

GATE_UP, DOWN, ROUTER = "mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"
NAMES = {  # published router, and gate, up and down of one expert
    "qwen3_moe": (ROUTER, tuple(f"mlp.experts.{{}}.{name}_proj.weight" for name in ("gate", "up", "down"))),
    "mixtral": (
        "block_sparse_moe.gate.weight",
        tuple(f"block_sparse_moe.experts.{{}}.{name}.weight" for name in ("w1", "w3", "w2")),
    ),
}


def published(tensors: Mapping[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """A state dict of transformers 5 under published names: every expert a window on the joined tensor."""
    renamed = dict(tensors)
    if geometry.experts is None or geometry.experts.published not in NAMES:
        return renamed
    router, names = NAMES[geometry.experts.published]
    for layer in range(geometry.layers):
        prefix = f"model.layers.{layer}."
        if prefix + GATE_UP not in renamed:
            continue
        renamed[prefix + router] = renamed.pop(prefix + ROUTER)
        both, down = renamed.pop(prefix + GATE_UP), renamed.pop(prefix + DOWN)
        for index in range(geometry.experts.count):
            parts = (*both[index].chunk(2), down[index])
            renamed |= {prefix + name.format(index): part for name, part in zip(names, parts)}
    return renamed


def joined(tensors: Mapping[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """The other way round: published tensors as transformers 5 takes them."""
    renamed = dict(tensors)
    if geometry.experts is None or geometry.experts.published not in NAMES:
        return renamed
    router, names = NAMES[geometry.experts.published]
    for layer in range(geometry.layers):
        prefix = f"model.layers.{layer}."
        renamed[prefix + ROUTER] = renamed.pop(prefix + router)
        gate, up, down = (
            [renamed.pop(prefix + name.format(index)) for index in range(geometry.experts.count)] for name in names
        )
        renamed[prefix + GATE_UP] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        renamed[prefix + DOWN] = torch.stack(down)
    return renamed


def model_options(experts: Experts) -> tuple[str, dict[str, Any]]:
    """The class of transformers and what its configuration says of the experts."""
    if experts.published == "mixtral":
        return "Mixtral", {
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.per_token,
            "intermediate_size": experts.intermediate,
        }
    if experts.published == "gpt_oss":
        return "GptOss", {
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.per_token,
            "intermediate_size": experts.intermediate,
        }
    options = {
        "num_experts": experts.count,
        "num_experts_per_tok": experts.per_token,
        "moe_intermediate_size": experts.intermediate,
    }
    if experts.shared_intermediate:
        options["shared_expert_intermediate_size"] = experts.shared_intermediate
    if experts.published == "qwen3_5_moe":  # which always divides by the sum of the chosen
        return "Qwen3_5Moe", options
    return "Qwen3Moe", {**options, "norm_topk_prob": experts.renormalise}

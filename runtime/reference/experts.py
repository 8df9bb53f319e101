"""Mixtures of experts: a router gives every token to a few gated feed-forward layers and weighs what they return."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import silu

from runtime.tables import Experts

Parameter = Callable[[str], Tensor]
ROUTERS = {
    "qwen3_moe": "mlp.gate",
    "mixtral": "block_sparse_moe.gate",
    "gpt_oss": "mlp.router",
    "qwen3_5_moe": "mlp.gate",
}
SHARED, SHARED_GATE = "mlp.shared_expert", "mlp.shared_expert_gate.weight"


def routed(hidden: Tensor, parameter: Parameter, experts: Experts) -> Tensor:
    """Normed hidden `[tokens, hidden]` -> the weighted sum over each token's experts, `[tokens, hidden]`.

    The weights are softmax(all scores) of the chosen, divided by their sum where the family renormalises (Shazeer et al., 2017;
    Jiang et al., 2024). A shared expert sees every token, and the sigmoid of a score of its own weighs it.
    """
    chosen, weights = choose(hidden, parameter, experts)
    result = torch.zeros_like(hidden)
    for index in chosen.unique().tolist():
        token, place = (chosen == index).nonzero(as_tuple=True)
        fed = feed_forward(hidden[token], parameter, experts, index)
        result.index_add_(0, token, fed * weights[token, place, None])
    if experts.shared_intermediate:
        shared = _gated(hidden, *(parameter(f"{SHARED}.{name}_proj.weight") for name in ("gate", "up", "down")))
        result = result + torch.sigmoid(hidden @ parameter(SHARED_GATE).T) * shared
    return result


def choose(hidden: Tensor, parameter: Parameter, experts: Experts) -> tuple[Tensor, Tensor]:
    """The experts of each token, best first, and their weights, `[tokens, per_token]` each."""
    router = ROUTERS[experts.published]
    scores = hidden @ parameter(f"{router}.weight").T
    if experts.biases:
        scores = scores + parameter(f"{router}.bias")
    weights, chosen = scores.softmax(dim=-1).topk(experts.per_token, dim=-1)
    if experts.renormalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return chosen, weights


def feed_forward(hidden: Tensor, parameter: Parameter, experts: Experts, index: int) -> Tensor:
    """One expert over `[tokens, hidden]`."""
    if experts.published == "gpt_oss":
        return _clamped(hidden, parameter, index)
    if experts.published == "qwen3_5_moe":
        gate, up = parameter("mlp.experts.gate_up_proj")[index].chunk(2)
        return _gated(hidden, gate, up, parameter("mlp.experts.down_proj")[index])
    gate, up, down = (
        parameter(
            f"block_sparse_moe.experts.{index}.{mixtral}.weight"
            if experts.published == "mixtral"
            else f"mlp.experts.{index}.{qwen3}_proj.weight"
        )
        for mixtral, qwen3 in (("w1", "gate"), ("w3", "up"), ("w2", "down"))
    )
    return _gated(hidden, gate, up, down)


def _gated(hidden: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (silu(hidden @ gate.T) * (hidden @ up.T)) @ down.T


def _clamped(hidden: Tensor, parameter: Parameter, index: int) -> Tensor:
    """(up + 1) gate sigmoid(1.702 gate), gate at most 7 and up within 7 of zero; their columns alternate, gate first."""
    both = hidden @ parameter("mlp.experts.gate_up_proj")[index] + parameter("mlp.experts.gate_up_proj_bias")[index]
    gate, up = both[:, ::2].clamp(max=7.0), both[:, 1::2].clamp(-7.0, 7.0)
    inner = (up + 1) * gate * torch.sigmoid(1.702 * gate)
    return inner @ parameter("mlp.experts.down_proj")[index] + parameter("mlp.experts.down_proj_bias")[index]


def parameter_shapes(experts: Experts, hidden: int) -> dict[str, tuple[int, ...]]:
    """Published names below a layer -> shapes, of the router and all experts, and of a shared one."""
    router, count, width = ROUTERS[experts.published], experts.count, experts.intermediate
    shapes: dict[str, tuple[int, ...]] = {f"{router}.weight": (count, hidden)}
    if experts.published == "gpt_oss":
        return shapes | {
            f"{router}.bias": (count,),
            "mlp.experts.gate_up_proj": (count, hidden, 2 * width),
            "mlp.experts.gate_up_proj_bias": (count, 2 * width),
            "mlp.experts.down_proj": (count, width, hidden),
            "mlp.experts.down_proj_bias": (count, hidden),
        }
    if experts.shared_intermediate:
        shapes |= {f"{SHARED}.{name}_proj.weight": (experts.shared_intermediate, hidden) for name in ("gate", "up")}
        shapes |= {f"{SHARED}.down_proj.weight": (hidden, experts.shared_intermediate), SHARED_GATE: (1, hidden)}
    if experts.published == "qwen3_5_moe":
        return shapes | {
            "mlp.experts.gate_up_proj": (count, 2 * width, hidden),
            "mlp.experts.down_proj": (count, hidden, width),
        }
    mixtral = experts.published == "mixtral"
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    for index in range(count):
        prefix = f"{'block_sparse_moe' if mixtral else 'mlp'}.experts.{index}"
        for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width))):
            shapes[f"{prefix}.{name}.weight"] = shape
    return shapes

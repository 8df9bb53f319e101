"""Linear attention by the gated delta rule (Yang et al., 2024), as Qwen3-Next and Qwen3.5 have it: projections, a short
convolution, the rule, and a gated norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from runtime.reference.delta_rule import in_token_order, varlen
from runtime.reference.norm import rms_norm
from runtime.tables import GatedDeltaNet

Parameter = Callable[[str], Tensor]
NAME = "linear_attn"  # before the published names of the parameters
EPSILON = 1e-6  # within the root of the length of queries and keys, whatever that of the model's norms


@dataclass(frozen=True)
class Projected:
    """`mixed` `[tokens, convolution_width]`: queries, keys and values side by side, not yet convolved; `gate`
    `[tokens, value_width]` of the outputs; `decay` and `update` `[tokens, value_heads]` in float32 or wider.
    """

    mixed: Tensor
    gate: Tensor
    decay: Tensor
    update: Tensor


@dataclass(frozen=True)
class State:
    """What a layer keeps of a sequence: `rule` `[value_heads, key_dim, value_dim]`, in float32 or wider unless it is
    stored narrower, and `tail` `[kernel - 1, convolution_width]`, the last rows that went into the convolution.
    """

    rule: Tensor
    tail: Tensor


def fresh(net: GatedDeltaNet, dtype: torch.dtype) -> State:
    """The state of a sequence without tokens: zero."""
    wide = torch.promote_types(dtype, torch.float32)
    return State(
        torch.zeros(net.value_heads, net.key_dim, net.value_dim, dtype=wide),
        torch.zeros(net.kernel - 1, net.convolution_width, dtype=dtype),
    )


def project(hidden: Tensor, parameter: Parameter, net: GatedDeltaNet) -> Projected:
    """Normed hidden `[tokens, hidden]` -> everything that depends on each token alone. No state is read or changed."""
    read = _interleaved if net.published == "interleaved" else _split
    mixed, gate, update, decay = read(hidden, parameter, net)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    rate = parameter(f"{NAME}.A_log").to(wide).exp()
    step = softplus(decay.to(wide) + parameter(f"{NAME}.dt_bias").to(wide))
    return Projected(mixed, gate, -rate * step, update.to(wide).sigmoid())


def _interleaved(hidden: Tensor, parameter: Parameter, net: GatedDeltaNet) -> tuple[Tensor, ...]:
    """Two tensors, in which the query, key, values and gates of a key head, then those of the next, lie side by side."""
    shared = net.value_heads // net.key_heads
    wide, narrow = (
        (hidden @ parameter(f"{NAME}.in_proj_{name}.weight").T).unflatten(1, (net.key_heads, -1))
        for name in ("qkvz", "ba")
    )
    values = shared * net.value_dim
    query, key, value, gate = (
        part.flatten(1) for part in wide.split((net.key_dim, net.key_dim, values, values), dim=2)
    )
    update, decay = (part.flatten(1) for part in narrow.split((shared, shared), dim=2))
    return torch.cat((query, key, value), dim=1), gate, update, decay


def _split(hidden: Tensor, parameter: Parameter, net: GatedDeltaNet) -> tuple[Tensor, ...]:
    """A tensor each; the heads of queries, then of keys, then of values are already side by side in one."""
    return tuple(hidden @ parameter(f"{NAME}.in_proj_{name}.weight").T for name in ("qkv", "z", "b", "a"))


def convolve(rows: Tensor, tail: Tensor, taps: Tensor, valid: int | None = None) -> tuple[Tensor, Tensor]:
    """silu of a causal convolution of each column of `rows` `[tokens, width]` with its `taps` `[width, 1, kernel]`, where
    `tail` `[kernel - 1, width]` came before the rows; and the tail after the first `valid` of them (default: all).
    """
    kernel, tokens = taps.shape[-1], rows.shape[0]
    before = torch.cat((tail.to(rows.dtype), rows))
    total = torch.zeros_like(rows)
    for tap in range(kernel):
        total = total + before[tap : tap + tokens] * taps[:, 0, tap]
    valid = tokens if valid is None else valid
    return silu(total), before[valid : valid + kernel - 1].to(tail.dtype)


def l2_normalise(rows: Tensor, net: GatedDeltaNet) -> Tensor:
    """Convolved `[tokens, convolution_width]` with every head of queries and keys at length one; values stay as they are."""
    heads = rows[:, : 2 * net.key_width].unflatten(1, (-1, net.key_dim))
    wide = heads.to(torch.promote_types(rows.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + EPSILON)
    return torch.cat((normed.to(rows.dtype).flatten(1), rows[:, 2 * net.key_width :]), dim=1)


def heads(rows: Tensor, net: GatedDeltaNet) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised rows -> queries, scaled by key_dim ** -0.5, keys and values, each `[its heads, tokens, its dim]`."""
    query, key, value = rows.split((net.key_width, net.key_width, net.value_width), dim=1)
    query, key = (part.unflatten(1, (net.key_heads, net.key_dim)).transpose(0, 1) for part in (query, key))
    return query * net.key_dim**-0.5, key, value.unflatten(1, (net.value_heads, net.value_dim)).transpose(0, 1)


def gated_norm(outputs: Tensor, gate: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Outputs `[value_heads, tokens, value_dim]`, each normed and multiplied by silu of its gate, `[tokens, value_width]`.

    Here the published weight is what a norm multiplies by, also in models whose other norms publish its distance from one.
    """
    normed = rms_norm(outputs.transpose(0, 1), weight.to(outputs.dtype), epsilon)
    return (normed.flatten(1) * silu(gate.to(outputs.dtype))).to(gate.dtype)


def advance(
    projected: Projected,
    taps: Tensor,
    net: GatedDeltaNet,
    states: Sequence[State],
    cu_seqlens: Sequence[int],
    *,
    exact: bool = False,
    valid: Sequence[int] | None = None,
) -> tuple[Tensor, list[State]]:
    """Outputs of the rule `[value_heads, tokens, value_dim]` for streams back to back (as `delta_rule.varlen` takes them), and
    the state of each after the first `valid` of its tokens (default: all); the others are padding. `exact`: in token order.
    """
    bounds = list(zip(cu_seqlens, cu_seqlens[1:]))
    valid = [last - first for first, last in bounds] if valid is None else valid
    convolved = [
        convolve(projected.mixed[first:last], state.tail, taps, real)
        for (first, last), state, real in zip(bounds, states, valid)
    ]
    mixed = l2_normalise(torch.cat([rows for rows, _ in convolved]), net)
    real = torch.cat([torch.arange(last - first) < count for (first, last), count in zip(bounds, valid)])
    # Padding neither fades the state nor adds to it: zero hidden rows alone would still do both.
    decay, update = (columns.masked_fill(~real[:, None], 0) for columns in (projected.decay, projected.update))
    parts, rules = (*heads(mixed, net), decay, update), [state.rule for state in states]
    outputs, rules = (in_token_order if exact else varlen)(*parts, rules, cu_seqlens)
    return outputs, [State(rule, tail) for rule, (_, tail) in zip(rules, convolved)]


def prefill(
    hidden: Tensor, parameter: Parameter, net: GatedDeltaNet, epsilon: float, state: State, *, exact: bool = False
) -> tuple[Tensor, State]:
    """Normed hidden `[tokens, hidden]` behind `state` -> what the layer adds, `[tokens, hidden]`, and the state after them."""
    projected = project(hidden, parameter, net)
    taps, bounds = parameter(f"{NAME}.conv1d.weight"), (0, hidden.shape[0])
    outputs, (after,) = advance(projected, taps, net, [state], bounds, exact=exact)
    normed = gated_norm(outputs, projected.gate, parameter(f"{NAME}.norm.weight"), epsilon)
    return normed @ parameter(f"{NAME}.out_proj.weight").T, after


def parameter_shapes(net: GatedDeltaNet, hidden: int) -> dict[str, tuple[int, ...]]:
    """Published names below a layer -> shapes."""
    width, value_width, value_heads = net.convolution_width, net.value_width, net.value_heads
    projections = {
        "interleaved": {"qkvz": width + value_width, "ba": 2 * value_heads},
        "split": {"qkv": width, "z": value_width, "b": value_heads, "a": value_heads},
    }[net.published]
    return {
        **{f"{NAME}.in_proj_{name}.weight": (columns, hidden) for name, columns in projections.items()},
        f"{NAME}.conv1d.weight": (width, 1, net.kernel),
        f"{NAME}.A_log": (value_heads,),
        f"{NAME}.dt_bias": (value_heads,),
        f"{NAME}.norm.weight": (net.value_dim,),
        f"{NAME}.out_proj.weight": (hidden, value_width),
    }

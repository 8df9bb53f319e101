"""The gated delta rule in chunks, on float32 values: the numbers of `transformer.chunk_gated_delta_rule`.

For each value head a state S [key_dim, value_dim] follows S <- exp(g_t) S; d = beta_t (v_t - S^T k_t); S <- S + k_t d^T;
o_t = S^T q_t (arXiv 2412.06464). Within a chunk of C tokens the same is a triangular system, so that only one step for each
chunk is serial. Every product is of matrices of one chunk and one head, and none joins two chunks: how many chunks are
computed together changes no bit.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

NORM_EPSILON = 1e-6  # under the root of what the operation divides raw queries and keys by
CHUNKS_AT_A_TIME = 8  # what is prepared before it is used: parts of a few heads that stay in a cache


class Chunks(NamedTuple):
    """What does not depend on the state, of every chunk: [chunks, heads, ...], each chunk's part contiguous.

    `onto_state` [2 C, key_dim] are the decayed keys of the system's solution over the decayed queries, `values` [C, value_dim]
    the solution's values, `onto_values` [C + key_dim, C] the scores of queries and keys over the decayed keys, transposed,
    `decay` [1, 1] what is left of the state behind the chunk.
    """

    onto_state: torch.Tensor
    values: torch.Tensor
    onto_values: torch.Tensor
    decay: torch.Tensor


@cache
def _level(size: int, chunk: int) -> torch.Tensor:
    """1 where a block of `size` rows in an odd place meets the columns of the block in front of it, [C, C]."""
    block = torch.arange(chunk) // size
    return ((block[:, None] % 2 == 1) & (block[:, None] == block[None, :] + 1)).float()


@cache
def _strictly_lower(chunk: int) -> torch.Tensor:
    return torch.ones(chunk, chunk).tril(-1)


@cache
def _upper(chunk: int) -> torch.Tensor:
    return torch.ones(chunk, chunk, dtype=torch.bool).triu(1)


def normalised(rows: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Rows [.., dim] divided by their length and multiplied by a scale."""
    factors = rows.square().sum(-1, keepdim=True).add_(NORM_EPSILON).rsqrt_()
    return rows * (factors if scale == 1.0 else factors.mul_(scale))


def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    """(I + L)^-1 of strictly lower triangular L [matrices, C, C], C a power of two, by doubling the blocks of the diagonal.

    Where both blocks of a pair are inverted, what joins them is -X E X with E the block between them: exact in exact
    arithmetic, and no power of L is formed, whose entries grow like binomials where keys are alike.
    """
    chunk = lower.shape[-1]
    inverse = torch.eye(chunk) - lower * _level(1, chunk)
    size = 2
    while size < chunk:
        between = lower * _level(size, chunk)
        inverse = torch.baddbmm(inverse, inverse, torch.bmm(between, inverse), alpha=-1.0)
        size *= 2
    return inverse


def prepared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor) -> Chunks:
    """Chunks of normalised, scaled q and normalised k [batch, chunks, key heads, C, key_dim], v [batch, chunks, value heads,
    C, value_dim], g and beta [batch, chunks, value heads, C]. Value head h takes key head h // (value heads / key heads).
    """
    batch, chunks, key_heads, chunk, key_dim = k.shape
    value_heads, value_dim = v.shape[2], v.shape[-1]
    each = (batch, chunks, key_heads, value_heads // key_heads)
    matrices = batch * chunks * value_heads

    def grouped(values: torch.Tensor) -> torch.Tensor:
        return values.reshape(*each, *values.shape[3:])

    reached = grouped(g).cumsum(-1)
    # Differences above the diagonal are positive and may overflow: they are set aside before the exponential.
    between = (reached.unsqueeze(-1) - reached.unsqueeze(-2)).masked_fill_(_upper(chunk), -torch.inf).exp_()
    update = grouped(beta).unsqueeze(-1)
    scores = torch.bmm(torch.cat((k, q), -2).flatten(0, 2), k.flatten(0, 2).mT)
    of_keys, of_queries = scores.reshape(batch, chunks, key_heads, 1, 2, chunk, chunk).unbind(4)
    system = (of_keys * between).mul_(update).mul_(_strictly_lower(chunk))
    inverse = unit_lower_inverse(system.reshape(matrices, chunk, chunk))

    grown = reached.exp().unsqueeze(-1)
    queries, keys = q.unsqueeze(3), k.unsqueeze(3)
    sides = torch.empty(*each, chunk, value_dim + key_dim)
    torch.mul(grouped(v), update, out=sides[..., :value_dim])
    torch.mul(keys, grown * update, out=sides[..., value_dim:])
    solved = torch.bmm(inverse, sides.reshape(matrices, chunk, value_dim + key_dim)).reshape(sides.shape)

    onto_state = torch.empty(*each, 2 * chunk, key_dim)
    onto_state[..., :chunk, :] = solved[..., value_dim:]
    torch.mul(queries, grown, out=onto_state[..., chunk:, :])
    onto_values = torch.empty(*each, chunk + key_dim, chunk)
    torch.mul(of_queries, between, out=onto_values[..., :chunk, :])
    left = (reached[..., -1:] - reached).exp_().unsqueeze(-2)
    torch.mul(keys.mT, left, out=onto_values[..., chunk:, :])
    decay = reached[..., -1:].exp().unsqueeze(-1)

    def in_order(values: torch.Tensor) -> torch.Tensor:
        return values.transpose(0, 1).reshape(chunks, batch * value_heads, *values.shape[4:])

    return Chunks(in_order(onto_state), in_order(solved[..., :value_dim]), in_order(onto_values), in_order(decay))


def scanned(parts: Chunks, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs [heads, tokens, value_dim] and the state behind them, from the state [heads, key_dim, value_dim] before."""
    chunks, heads, chunk, value_dim = parts.values.shape
    outputs = torch.empty(heads, chunks, chunk, value_dim)
    for index in range(chunks):
        from_state = torch.bmm(parts.onto_state[index], state)
        written = parts.values[index] - from_state[:, :chunk]
        added = torch.bmm(parts.onto_values[index], written)
        torch.add(from_state[:, chunk:], added[:, :chunk], out=outputs[:, index])
        state = torch.addcmul(added[:, chunk:], state, parts.decay[index])
    return outputs.reshape(heads, chunks * chunk, value_dim), state.contiguous()


def delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    chunk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised q, k [batch, tokens, key heads, key_dim], v [batch, tokens, value heads, value_dim], g, beta [batch, tokens,
    value heads] and a state [batch, value heads, key_dim, value_dim] -> [batch * value heads, tokens, value_dim] and the state
    behind the tokens, which are whole chunks.
    """

    def in_chunks(values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(1, (-1, chunk)).transpose(2, 3).contiguous()

    outputs = []
    behind = state.flatten(0, 1)
    for tokens in zip(*(values.split(CHUNKS_AT_A_TIME * chunk, 1) for values in (q, k, v, g, beta))):
        part, behind = scanned(prepared(*map(in_chunks, tokens)), behind)
        outputs.append(part)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), behind.reshape(state.shape)

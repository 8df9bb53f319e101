"""The gated delta rule: in token order, in chunks, and in chunks of several streams that lie back to back.

Queries and keys are `[key_heads, tokens, key_dim]`, normalised and the queries scaled; values `[value_heads, tokens,
value_dim]`; `decay` (its logarithm, at most 0) and `update` `[tokens, value_heads]`; a state `[value_heads, key_dim,
value_dim]`. Value head h reads key head h // (value_heads / key_heads). Everything is computed in float32 or wider: a
narrower state is widened before the scan and narrowed once behind it. No argument is ever written to, so that a scan
that fails leaves its caller with the state it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 64


def recurrent(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, update: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs `[value_heads, tokens, value_dim]` and the state after them, one token after the other (Yang et al., 2024):
    the state S fades, learns what it got wrong of the value, and answers the query.

        S = exp(g) S;  S = S + k (update (v - S^T k))^T;  o = S^T q
    """
    query, key, value, decay, update, held = _widened(query, key, value, decay, update, state)
    outputs = torch.empty_like(value)
    for token in range(value.shape[1]):
        held = decay[:, token, None, None].exp() * held
        wrong = value[:, token] - (held * key[:, token, :, None]).sum(dim=1)
        held = held + key[:, token, :, None] * (update[:, token, None] * wrong)[:, None]
        outputs[:, token] = (held * query[:, token, :, None]).sum(dim=1)
    return outputs, held.to(state.dtype)


def chunked(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, update: Tensor, state: Tensor, size: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """The same, `size` tokens at a time: within a chunk by matrix products, from chunk to chunk by the state.

    A prompt cut at multiples of `size` gives the same bits as a whole one, since each chunk is computed by itself.
    """
    outputs, (after,) = varlen(query, key, value, decay, update, [state], [0, value.shape[1]], size)
    return outputs, after


def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    update: Tensor,
    states: Sequence[Tensor],
    cu_seqlens: Sequence[int],
    size: int = CHUNK,
) -> tuple[Tensor, list[Tensor]]:
    """Streams back to back, stream i being tokens `cu_seqlens[i]` to `cu_seqlens[i + 1]` and going on from `states[i]`:
    outputs of all tokens, and the state after each stream.
    """
    _check_streams(value, states, cu_seqlens)
    grid = chunk_grid(cu_seqlens, size)
    query, key, value, decay, update, *held = _widened(query, key, value, decay, update, *states)
    outputs = torch.empty_like(value)
    for stream, first, last in grid:
        parts = (part[:, first:last] for part in (query, key, value, decay, update))
        outputs[:, first:last], held[stream] = _chunk(*parts, held[stream], size)
    return outputs, [after.to(before.dtype) for after, before in zip(held, states)]


def in_token_order(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    update: Tensor,
    states: Sequence[Tensor],
    cu_seqlens: Sequence[int],
) -> tuple[Tensor, list[Tensor]]:
    """The same streams, each by `recurrent`."""
    _check_streams(value, states, cu_seqlens)
    found = [
        recurrent(*(part[:, first:last] for part in (query, key, value)), decay[first:last], update[first:last], state)
        for first, last, state in zip(cu_seqlens, cu_seqlens[1:], states)
    ]
    return torch.cat([outputs for outputs, _ in found], dim=1), [after for _, after in found]


def _check_streams(value: Tensor, states: Sequence[Tensor], cu_seqlens: Sequence[int]) -> None:
    if len(states) != len(cu_seqlens) - 1 or cu_seqlens[-1] != value.shape[1]:
        raise ValueError(
            f"cu_seqlens {list(cu_seqlens)} are bounds of {len(cu_seqlens) - 1} streams up to token {cu_seqlens[-1]}; "
            f"got {len(states)} states and {value.shape[1]} tokens; give one state for each stream and all tokens"
        )


def chunk_grid(cu_seqlens: Sequence[int], size: int = CHUNK) -> list[tuple[int, int, int]]:
    """(stream, first token, behind the last) of every chunk, ceil(length / size) of each stream: none holds tokens of two."""
    lengths = [last - first for first, last in zip(cu_seqlens, cu_seqlens[1:])]
    if not lengths or cu_seqlens[0] != 0 or min(lengths) < 0:
        raise ValueError(
            f"cu_seqlens {list(cu_seqlens)} must begin with 0 and never fall; give the bounds of the streams"
        )
    return list(_chunks(cu_seqlens, size))


def _chunks(cu_seqlens: Sequence[int], size: int) -> Iterator[tuple[int, int, int]]:
    for stream, (start, end) in enumerate(zip(cu_seqlens, cu_seqlens[1:])):
        for first in range(start, end, size):
            yield stream, first, min(first + size, end)


def _chunk(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, update: Tensor, state: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """One chunk of at most `size` tokens: the updates of its tokens solve one triangular system, I + L, of which
    L[i, j] = update_i exp(G_i - G_j) k_i k_j for j before i, and G is the running sum of the decay.
    """
    tokens = value.shape[1]
    missing = size - tokens  # tokens that neither fade nor learn: every chunk is computed in one shape
    query, key, value = (pad(rows, (0, 0, 0, missing)) for rows in (query, key, value))
    decay, update = (pad(columns, (0, missing)) for columns in (decay, update))
    total = decay.double().cumsum(dim=1)  # of fast decays it is large, and what counts are small differences
    seen = torch.ones(size, size, dtype=torch.bool).tril()
    # Of what is not seen the difference is positive, and its exponential may be infinite: masked before as well as after.
    fading = ((total[:, :, None] - total[:, None, :]).masked_fill(~seen, 0).exp() * seen).to(key.dtype)
    learned = update[:, :, None] * key
    inverse = inverse_of_unit_lower(learned @ key.transpose(1, 2) * fading)
    started, left = total.exp().to(key.dtype)[:, :, None], (total[:, -1:] - total).exp().to(key.dtype)[:, :, None]
    new = inverse @ (update[:, :, None] * value) - inverse @ (started * learned) @ state
    outputs = started * query @ state + query @ key.transpose(1, 2) * fading @ new
    state = started[:, -1:] * state + (left * key).transpose(1, 2) @ new
    return outputs[:, :tokens], state


def inverse_of_unit_lower(lower: Tensor) -> Tensor:
    """(I + L)^-1, where L is what lies below the diagonal of `[..., size, size]`: of blocks of twice the width in
    each step, from those within them, [[A, 0], [E, B]]^-1 = [[A^-1, 0], [-B^-1 E A^-1, B^-1]].

    The series I - L + L^2 - ... has the same sum, but its terms grow like binomials where keys are alike.
    """
    size = lower.shape[-1]
    index = torch.arange(size)
    inverse = torch.eye(size, dtype=lower.dtype).expand_as(lower)
    width = 1
    while width < size:
        block = index // width
        below = (block[:, None] % 2 == 1) & (block[:, None] == block + 1)
        inverse = inverse - inverse @ (lower * below) @ inverse
        width *= 2
    return inverse


def _widened(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, update: Tensor, *states: Tensor
) -> tuple[Tensor, ...]:
    """All in one type of at least 32 bits, with a key head for each value head, and decay and update `[heads, tokens]`."""
    wide = torch.promote_types(torch.promote_types(query.dtype, decay.dtype), torch.float32)
    shared = value.shape[0] // key.shape[0]
    heads = (query.repeat_interleave(shared, dim=0), key.repeat_interleave(shared, dim=0), value)
    return tuple(part.to(wide) for part in (*heads, decay.T, update.T, *states))

"""What a model's body is made of and why: one named rule for each choice that depends on more than a single operation.

Templates, weight tables and the memory of a model all ask here. How the tiles of one operation are cut over the cores is
chosen in `matmuls` and `attentions`; where intermediates lie, and how much room that leaves to programs, in `placement`.

Considered and not taken, each for a reason that a board could overturn:
* weights sharded over the DRAM banks: the operation that streams them so takes one tile of rows, which only the head has, and
  wants its input sharded in L1 by an operation of its own;
* folding long sequences into a batch, as is done by hand to keep a core's rows few: the blocks of a configuration bound what
  a core holds at a time, at no cost in operations;
* one matmul for gate and up with a split after it: a pass over [tokens, 2 x intermediate] more than the fused product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator.matmuls import PAIRS, RESIDUAL
from generator.tiles import TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved


def fuses_gate_up(resolved: Resolved) -> bool:
    """Gate, up and their product are one matmul over column tiles of gate and up in turn.

    It reads the normed tokens once instead of twice and keeps gate and up on the chip: two operations and four passes over
    [tokens, intermediate] less. It deals whole tile rows of tokens over the rows of the grid, so that a pass of four tiles leaves
    the other rows idle and is modelled a little slower than plain matmuls; every larger pass is quicker. The operation knows no
    other gate than silu's. Not where a row must be computed alike in every wave: it walks the inner dimension forwards and
    backwards in turn from block to block, so that the order of its sums depends on the size.
    """
    return not resolved.batch_invariant and resolved.activation == "silu"


def fuses_residual(resolved: Resolved) -> bool:
    """The matmul that ends a half-layer adds the residual to its product: one operation and two passes less each.

    The operation takes the residual only as the weight is stored, so block-float weights would cost the residual stream
    its precision; its sums have no fixed order (see fuses_gate_up); and nothing can come between product and sum, neither a
    norm nor a bias.
    """
    return (
        not resolved.batch_invariant
        and resolved.dtypes.weights == resolved.dtypes.activation
        and not resolved.sandwich_norms
        and not resolved.attention_output_bias
    )


def fused(resolved: Resolved, role: str) -> str:
    """What the matmul of a role does besides its product, "" for nothing."""
    if role == "gate_up" and fuses_gate_up(resolved):
        return PAIRS
    if role in ("attention_output", "delta_output", "down") and fuses_residual(resolved):
        return RESIDUAL
    return ""


def heads_dtype(resolved: Resolved) -> str:
    """Heads are made in the type of the caches, so that keys and values reach them without a cast each.

    Keys are then rounded before and after their rotation. The interleaved rotation exists in bfloat16 alone.
    """
    return resolved.dtypes.key_value if resolved.rotary_style == "half_split" else resolved.dtypes.activation


def concatenates_heads(variant: str) -> bool:
    """Whether attention itself returns the heads side by side, which saves an operation; the one over caches cannot."""
    return variant in ("single", "batched", "ragged")


# Of rms_norm in blocks of a row, at any width: mock devices of both boards, 5120 to 8192 columns.
WIDE_NORM_BYTES = 446464


def norm_bytes(width_tiles: int) -> int:
    """Buffers of rms_norm over whole rows: four tiles a column tile, in columns of four, and twelve fixed ones of float32 and
    scalars.
    """
    return 4 * TILE_BYTES["bfloat16"] * (-(-width_tiles // 4) * 4) + 98304


def norms_in_blocks(resolved: Resolved) -> bool:
    """Whether rows of hidden are too wide to be normed whole on one core.

    The operation then takes them in blocks, but only with weights in tiles; row-major ones, which take less memory, it refuses.
    """
    return norm_bytes(tiles(resolved.hidden)) > resolved.board.l1_bank_bytes


def keeps_rows_equal(resolved: Resolved) -> str:
    """Why the rows of a wave have to be equally long, "" where they need not: every layer must take them packed, and the sums of
    a row must not depend on where it lies.
    """
    if resolved.gated_delta_net is not None:
        return "is for models without a recurrence, which takes equal rows"
    if resolved.batch_invariant:
        return "is not for batch_invariant builds: where a row lies would change the order of its sums"
    if all(packs_rows(resolved, kind) for kind in resolved.kinds):
        return ""
    return "is for models all of whose attention takes packed rows: it has a window, sinks or a soft cap"


def packs_rows(resolved: Resolved, kind: str) -> bool:
    """Whether attention in layers of a kind takes the rows of a wave as they lie, packed back to back.

    The operation takes the bounds of packed rows beside neither a sliding window nor a sink: there rows become a batch, as
    they do for explicit scores.
    """
    return kind == "full" and not resolved.attention_sinks and not resolved.attention_soft_cap

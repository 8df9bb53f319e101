"""A mixture of experts in place of the feed-forward: each token is placed beside the others of its experts, on the device.

Ranks inside an expert are one matmul with ones below the diagonal, and where an expert's rows begin another one over whole
tiles, both exact; with these, every choice has a row of its own, and the experts run over their own rows only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator import experts as mixtures, steps as shared
from generator.experts import ExpertCut, cut_experts
from generator.kinds.rows import LAYER, MatmulRole, WeightRow, layer_norm
from generator.matmuls import PAIRS
from generator.steps import Sizes, Step, Tensor, sizes
from generator.tiles import TILE, TILE_BYTES, tiles

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import Resolved
    from generator.shapes import PassShape

JOINED = f"{LAYER}mlp.experts."  # one tensor for all experts: transformers 5, and gpt-oss as published
ROUTERS = {  # by family: the published name, and the one of transformers 5 where it is another
    "qwen3_moe": ("mlp.gate",),
    "mixtral": ("block_sparse_moe.gate", "mlp.gate"),
    "gpt_oss": ("mlp.router",),
    "qwen3_5_moe": ("mlp.gate",),
}
PROJECTIONS = {  # gate, up and down of one expert as published
    "qwen3_moe": tuple(f"mlp.experts.{{expert}}.{name}_proj.weight" for name in ("gate", "up", "down")),
    "mixtral": tuple(f"block_sparse_moe.experts.{{expert}}.{name}.weight" for name in ("w1", "w3", "w2")),
}
SHARED = f"{LAYER}mlp.shared_expert"
SCATTERED_BYTES = 4 * 76800  # of a row that the operation holds at a time
ROLES = ("gate", "up", "down")
SOURCES_OF_ROLES = ("gate_up_proj", "gate_up_proj", "down_proj")


def cut(resolved: Resolved) -> ExpertCut:
    """How the fused operation is cut. Raises NoProgram."""
    mixture = resolved.experts
    board = resolved.board
    sides = (tiles(resolved.hidden), tiles(mixture.intermediate))
    return cut_experts(*sides, board.grid, board.l1_bank_bytes, resolved.dtypes.experts, mixture.biases)


def constants(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Constants of routing for the largest pass, of which a pass takes as much as it has tokens. Row-major indices are uint32."""

    def index(name: str, transform: str, shape: str) -> WeightRow:
        return WeightRow(name, (), transform, shape, "INDEX_DTYPE", "ROW_MAJOR")

    return (
        WeightRow("earlier_tokens", (), "below_diagonal", "(1, 1, MOST_TOKENS, MOST_TOKENS)", "ROUTING_DTYPE"),
        WeightRow("every_token", (), "ones", "(1, 1, 1, MOST_TOKENS)", "ROUTING_DTYPE"),
        WeightRow("tiles_before", (), "tiles_before", "(1, 1, EXPERTS, EXPERTS)", "ROUTING_DTYPE"),
        WeightRow("unchosen", (), "zeros", "(1, 1, MOST_TOKENS, EXPERTS)", "ROUTING_DTYPE", "ROW_MAJOR"),
        WeightRow("chosen", (), "ones", "(1, 1, MOST_TOKENS, EXPERTS_PER_TOKEN)", "ROUTING_DTYPE", "ROW_MAJOR"),
        index("token_of_pair", "token_of_pair", "(1, MOST_TOKENS * EXPERTS_PER_TOKEN)"),
        index("free_slots", "no_numbers", "(1, MOST_TOKENS * EXPERTS_PER_TOKEN + TILE * EXPERTS)"),
        index("expert_index", "numbers", "(1, EXPERTS)"),
    )


def weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    mixture = resolved.experts
    router, *renamed = (f"{LAYER}{name}.weight" for name in ROUTERS[mixture.published])
    rows = [
        layer_norm(resolved, "mlp_norm", "post_attention"),
        WeightRow("router", (router,), "projection", "(HIDDEN, EXPERTS)", "ROUTER_DTYPE", otherwise=tuple(renamed)),
    ]
    if mixture.biases:
        bias = (router.removesuffix("weight") + "bias",)
        rows.append(WeightRow("router_bias", bias, "bias", "(1, 1, 1, EXPERTS)", "ROUTER_DTYPE"))
    shapes = ("(HIDDEN, EXPERT_WIDTH)", "(HIDDEN, EXPERT_WIDTH)", "(EXPERT_WIDTH, HIDDEN)")
    each = {"experts": mixture.count, "parts": cut(resolved).parts}
    for role, joined, shape in zip(ROLES, SOURCES_OF_ROLES, shapes):
        if mixture.published in PROJECTIONS:
            own = LAYER + PROJECTIONS[mixture.published][ROLES.index(role)]
            row = WeightRow(role, (own,), f"expert_{role}", shape, "EXPERT_DTYPE", otherwise=(JOINED + joined,), **each)
        else:
            how = "alternating" if mixture.biases else "expert"
            row = WeightRow(role, (JOINED + joined,), f"{how}_{role}", shape, "EXPERT_DTYPE", **each)
        rows.append(row)
    if mixture.shared_intermediate:
        rows += _shared_weights()
    if mixture.biases:
        for role, joined, width in zip(ROLES, SOURCES_OF_ROLES, ("EXPERT_WIDTH", "EXPERT_WIDTH", "HIDDEN")):
            source = (f"{JOINED}{joined}_bias",)
            rows.append(
                WeightRow(f"{role}_bias", source, f"alternating_{role}_bias", f"(1, {width})", "BIAS_DTYPE", **each)
            )
    return tuple(rows)


def _shared_weights() -> tuple[WeightRow, ...]:
    """Of the expert that every token sees, and of its gate."""
    gate, up, down = (f"{SHARED}.{name}_proj.weight" for name in ROLES)
    both = "(HIDDEN, 2 * SHARED_WIDTH)"
    return (
        WeightRow("shared_gate", (f"{SHARED}_gate.weight",), "projection", "(HIDDEN, 1)", "ROUTER_DTYPE"),
        WeightRow("shared_gate_up", (gate, up), "paired_projection", both, "WEIGHT_DTYPE"),
        WeightRow("shared_down", (down,), "projection", "(SHARED_WIDTH, HIDDEN)", "WEIGHT_DTYPE"),
    )


def _shared_matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    width, dtype, made = resolved.experts.shared_intermediate, resolved.dtypes.weights, resolved.dtypes.activation
    if not width:
        return ()
    return (
        MatmulRole("shared_gate", resolved.hidden, 1, "bfloat16", made),
        MatmulRole("shared_gate_up", resolved.hidden, 2 * width, dtype, made, fused=PAIRS),
        MatmulRole("shared_down", width, resolved.hidden, dtype, made),
    )


def matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    mixture = resolved.experts
    bias = "bfloat16" if mixture.biases else None
    summed = ("bfloat16", "float32")
    return (
        MatmulRole("router", resolved.hidden, mixture.count, "bfloat16", "bfloat16", bias),
        MatmulRole("counts", 0, mixture.count, *summed, over_tokens=True, one_row=True),
        MatmulRole("starts", mixture.count, mixture.count, *summed, one_row=True),
        MatmulRole("ranks", 0, mixture.count, *summed, over_tokens=True),
        *_shared_matmuls(resolved),
    )


def steps(
    resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor, kind: str
) -> Iterator[Step]:
    """The operations in a pass of `shape`, in the order and with the frees of the template.

    Tensors of a few values a token or an expert are left out of the memory; all operations are in the time.
    """
    mixture, size, tokens = resolved.experts, sizes(resolved, shape.token_tiles), shape.token_tiles * TILE
    first, normed = shared.norm(size, hidden)
    yield first
    columns = tiles(mixture.count)
    scores = Tensor("scores", size.rows * columns, "bfloat16")
    weight_bytes = size.hidden * columns * TILE_BYTES["bfloat16"]
    yield Step("router", (normed,), (scores,), dram_bytes=weight_bytes, role="router")
    yield from _placing(resolved, size.rows, scores)
    row_bytes = resolved.hidden * 2
    rows = Tensor("rows", hidden.tiles, "bfloat16")
    slot_tiles = tiles(mixtures.slots(tokens, mixture)) * size.hidden
    placed, fed = (Tensor(name, slot_tiles, "bfloat16") for name in ("placed", "fed"))
    shared_part = Tensor("shared", hidden.tiles, "bfloat16")
    if mixture.shared_intermediate:
        yield from _shared_steps(resolved, size, normed, shared_part)
    yield Step("to_layout", (normed,), (rows,), (normed,), buffer_bytes=2 * row_bytes, units=size.rows)
    yield Step("embedding", (rows,), (placed,), (rows,), buffer_bytes=2 * row_bytes, units=slot_tiles)
    yield from _feed_forward(resolved, tokens, placed, fed)
    returned, picked = (
        Tensor(name, count, "bfloat16")
        for name, count in (("returned", slot_tiles), ("picked", size.rows * mixture.per_token * size.hidden))
    )
    yield Step("to_layout", (fed,), (returned,), (fed,), buffer_bytes=2 * row_bytes, units=slot_tiles // size.hidden)
    yield Step("embedding", (returned,), (picked,), (returned,), buffer_bytes=2 * row_bytes, units=picked.tiles)
    combined = Tensor("combined", hidden.tiles, "bfloat16")
    yield Step(
        "post_combine_reduce", (picked,), (combined,), (picked,), buffer_bytes=_combine_bytes(resolved), units=size.rows
    )
    buffers = 6 * TILE_BYTES["bfloat16"]
    if mixture.shared_intermediate:
        both, frees = Tensor("both", hidden.tiles, "bfloat16"), (combined, shared_part)
        yield Step("add", (combined, shared_part), (both,), frees, buffer_bytes=buffers, units=hidden.tiles)
        combined = both
    yield Step("add", (hidden, combined), (summed,), buffer_bytes=buffers, units=hidden.tiles)


def _shared_steps(resolved: Resolved, size: Sizes, normed: Tensor, made: Tensor) -> Iterator[Step]:
    """The expert that every token sees, and what its gate leaves of it."""
    width = tiles(resolved.experts.shared_intermediate)
    gated = Tensor("shared_gated", size.rows * width, size.activation)
    fed = Tensor("shared_fed", made.tiles, size.activation)
    weight = Tensor("shared_weight", size.rows, size.activation)
    one = size.hidden * width * TILE_BYTES[resolved.dtypes.weights]
    yield Step("shared_gate_up", (normed,), (gated,), (), 2 * one, role="shared_gate_up")
    yield Step("shared_down", (gated,), (fed,), (gated,), one, role="shared_down")
    weight_bytes = size.hidden * TILE_BYTES["bfloat16"]
    yield Step("shared_gate", (normed,), (weight,), (), weight_bytes, role="shared_gate")
    yield Step("mul", (fed, weight), (made,), (fed, weight), buffer_bytes=7 * TILE_BYTES["bfloat16"], units=made.tiles)


def _placing(resolved: Resolved, rows: int, scores: Tensor) -> Iterator[Step]:
    """From scores to the rows of each expert: choice, marks, ranks, counts, offsets and slots."""
    mixture, tokens = resolved.experts, rows * TILE
    columns, buffers = tiles(mixture.count), 4 * TILE_BYTES["float32"]
    values, marks = Tensor("values", rows, "bfloat16"), Tensor("marks", scores.tiles, "bfloat16")
    ranks, slots = Tensor("ranks", scores.tiles, "float32"), Tensor("slots", scores.tiles, "float32")
    yield Step("topk", (scores,), (values,), (scores,), buffer_bytes=8 * TILE_BYTES["bfloat16"] * columns, units=rows)
    yield Step("softmax", (values,), (), buffer_bytes=buffers, units=rows)
    yield Step("to_layout", (values,), (), buffer_bytes=buffers, units=rows)
    cycles = mixtures.scatter_cycles(
        resolved.board.rates.core, tokens, mixture.count, mixture.per_token, resolved.board.cores
    )
    yield Step("scatter", (values,), (marks,), buffer_bytes=buffers, units=tokens, cycles=cycles)
    yield Step("to_layout", (marks,), (), buffer_bytes=buffers, units=rows)
    earlier = rows * rows * TILE_BYTES["bfloat16"]
    yield Step("counts", (marks,), role="counts")
    for operation in ("mul", "ceil"):
        yield Step(operation, (), (), buffer_bytes=buffers)
    yield Step("starts", (), role="starts")
    yield Step("ranks", (marks,), (ranks,), (marks,), earlier, role="ranks")
    yield Step("add", (ranks,), (slots,), (ranks,), buffer_bytes=buffers, units=slots.tiles)
    yield Step("gather", (slots, values), (), (slots, values), buffer_bytes=buffers * columns, units=rows)
    for operation in ("typecast", "to_layout", "reshape"):
        yield Step(operation, (), (), buffer_bytes=buffers, units=rows)
    pairs, table = tokens * mixture.per_token, mixtures.slots(tokens, mixture)
    cycles = mixtures.scatter_cycles(resolved.board.rates.core, 1, table, pairs, resolved.board.cores)
    yield Step("scatter", (), (), (), 4 * (pairs + table), min(4 * table, SCATTERED_BYTES), 1, cycles)
    for operation in ("typecast", "to_layout", "typecast", "to_layout", "to_layout", "reshape"):
        yield Step(operation, (), (), buffer_bytes=buffers)


def _feed_forward(resolved: Resolved, tokens: int, placed: Tensor, fed: Tensor) -> Iterator[Step]:
    """The fused operation once for each part, and the sums of the parts. Only weights of experts that see a token are read."""
    mixture, chosen = resolved.experts, cut(resolved)
    hidden, width = tiles(resolved.hidden), tiles(mixture.intermediate)
    seen, tile_rows = mixtures.expected_tiles(tokens, mixture)
    weight_bytes = int(seen * mixtures.expert_bytes(hidden, width, chosen, resolved.dtypes.experts))
    moved = int(tile_rows * hidden) * 2 * TILE_BYTES["bfloat16"]
    cycles = mixtures.expert_cycles(
        resolved.board.rates.core, hidden, width, tile_rows, chosen, resolved.dtypes.experts
    )
    total: Tensor | None = None
    for part in range(chosen.parts):
        last = part == chosen.parts - 1
        written = fed if chosen.parts == 1 else Tensor(f"fed_{part}", fed.tiles, fed.dtype)
        yield Step("empty", (), (written,))
        frees = (placed,) if last else ()
        yield Step(
            "moe_fused_swiglu", (), (), frees, weight_bytes + moved, chosen.buffer_bytes, resolved.board.cores, cycles
        )
        if total is not None:
            both = fed if last else Tensor(f"total_{part}", fed.tiles, fed.dtype)
            buffers = 6 * TILE_BYTES["bfloat16"]
            yield Step("add", (total, written), (both,), (total, written), buffer_bytes=buffers, units=fed.tiles)
            written = both
        total = written


def _combine_bytes(resolved: Resolved) -> int:
    """Buffers of the weighted sum: blocks of 32 tokens in rows and in tiles, of whole destination registers."""
    registers = -(-resolved.hidden // (TILE * TILE))
    return (2 * TILE * registers + 4 * registers + 4) * TILE_BYTES["bfloat16"]

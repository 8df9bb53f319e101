"""Calls of what routes tokens and runs experts, and where the emulator is stricter than the library on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.generated_cases import (
    BF4,
    BF8,
    BF16,
    DRAM,
    F32,
    I32,
    L1,
    ROW_MAJOR,
    TILE,
    U16,
    U32,
    Attribute,
    Call,
    Draw,
    InOrder,
    Made,
    Operand,
)
from tests.support.generated_properties import Rule

FUSED, COMBINE = "moe_fused_swiglu", "post_combine_reduce"


def scatter(draw: Draw) -> Call:
    rows, columns = draw.choice((1, 5, 32)), draw.choice((8, 40, 128))
    written = draw.mostly(draw.choice((1, 2, 8)), columns + 1)
    layout = draw.mostly(ROW_MAJOR, TILE)
    dtype = draw.dtype(BF16, F32, U32, I32)
    target = Operand((1, 1, rows, columns), dtype, layout)
    index = Operand(
        (1, 1, draw.mostly(rows, rows + 1), written),
        draw.mostly(U16, U32, I32, F32),
        layout,
        values=_distinct(rows, written),
    )
    source = Operand(
        draw.mostly(index.shape, (1, 1, rows, written + 1)), draw.mostly(dtype, BF16), draw.mostly(layout, TILE)
    )
    arguments = {"input": target, "dim": draw.mostly(-1, 3, 2), "index": index, "src": source, **draw.memory()}
    return Call("scatter", ("input", "dim", "index", "src"), arguments)


def _distinct(rows: int, written: int) -> tuple[int, ...]:
    return tuple(range(written)) * (rows + 1)


def softmax(draw: Draw) -> Call:
    shape = draw.mostly((1, 1, draw.tiles(), draw.choice((2, 8, 32, 100))), (draw.tiles(), 40), (3, 2, 64, 33))
    tensor = Operand(shape, draw.dtype(BF16, F32, BF8), draw.mostly(TILE, ROW_MAJOR))
    arguments = {
        "input_tensor": tensor,
        "dim": draw.mostly(-1, len(shape) - 1, 0),
        **draw.maybe("numeric_stable", lambda: draw.mostly(True, False)),
        **draw.maybe("compute_kernel_config", draw.compute),
        **draw.memory(),
    }
    return Call("softmax", ("input_tensor",), arguments)


def fused_experts(draw: Draw) -> Call:
    experts, slots = draw.choice((1, 2, 4)), 32 * draw.randint(2, 6)
    hidden, width = 32 * draw.mostly(draw.randint(2, 8), 1), 32 * draw.mostly(draw.randint(2, 8), 1)
    dtype = draw.mostly(draw.choice((BF4, BF8, BF16)), F32, often=0.97)
    biased = draw.random() < 0.3
    columns = draw.mostly(draw.randint(2, min(8, max(2, width // 32))), 8)
    grid = (columns, draw.mostly(draw.randint(2, columns), 1, columns + 1, often=0.95))

    def weights(*shape: int, kind: str = dtype) -> list[Operand]:
        place = draw.mostly(DRAM, L1, often=0.99)
        made = [Operand(draw.mostly(shape, shape[::-1], often=0.995), kind, TILE, place) for _ in range(experts)]
        return made[: draw.mostly(experts, experts - 1, often=0.99)]

    def numbers(count: int, values: tuple[int, ...]) -> Operand:
        shape = draw.mostly((count,), (1, count), (1, 1, 1, count), often=0.8)
        place = draw.mostly(DRAM, L1, often=0.97)
        return Operand(
            shape, draw.mostly(U32, I32, often=0.98), draw.mostly(ROW_MAJOR, TILE, often=0.98), place, values
        )

    form = draw.mostly((BF16, ROW_MAJOR), (BF8, TILE), (BF8, TILE), (BF16, TILE), often=0.85)
    rows = Operand((slots, hidden), *form, draw.mostly(DRAM, L1, often=0.97))
    out = draw.choice((BF16, BF8))
    usual, other = ("SwiGluOai", "Silu") if biased else ("Silu", "SwiGluOai")
    activation = draw.mostly(usual, other)
    arguments: dict[str, Any] = {
        "input": rows,
        "w_gates": weights(hidden, width),
        "w_ups": weights(hidden, width),
        "w_downs": weights(width, hidden),
        "counts": numbers(experts, (1,)),
        "global_expert_idx_table": numbers(draw.mostly(experts, experts + 1), tuple(range(experts))),
        "dtype": Attribute(draw.mostly(out, F32, often=0.97)),
        "core_grid": InOrder("CoreCoord", grid),
        "output": Operand(rows.shape, out, TILE, draw.mostly(DRAM, L1, often=0.97)),
        "expert_region_offsets": numbers(draw.mostly(experts, experts + 1, often=0.98), _starts(slots)),
        "read_x_at_offset": draw.mostly(True, False, often=0.9),
        "activation": draw.mostly(Attribute(f"RoutedExpertActivation.{activation}"), True, often=0.94),
        **draw.maybe("compute_kernel_config", lambda: _plain(draw)),
    }
    if biased:
        for name, size in (("gate_biases", width), ("up_biases", width), ("down_biases", hidden)):
            arguments[name] = weights(1, size, kind=draw.mostly(BF16, BF8, often=0.97))
    return Call(f"experimental.deepseek_prefill.{FUSED}", (), arguments)


def _starts(slots: int) -> tuple[int, ...]:
    """A tile of rows for each expert, as far as there are any."""
    return tuple(min(32 * index, slots - 32) for index in range(4))


def _plain(draw: Draw) -> Made:
    """What the kernel takes, mostly."""
    config = draw.compute()
    if draw.random() < 0.8:
        return replace(config, fields=config.fields | {"fp32_dest_acc_en": False, "packer_l1_acc": False})
    return config


def combined(draw: Draw) -> Call:
    tokens, chosen, columns = 32 * draw.randint(1, 3), draw.choice((1, 2, 8)), 32 * draw.choice((1, 3, 8))
    tokens, columns = draw.mostly(tokens, 48, often=0.95), draw.mostly(columns, 80, 8192, 9216, often=0.9)
    rows = Operand(
        (1, 1, tokens, chosen, columns), draw.mostly(BF16, F32, often=0.96), draw.mostly(ROW_MAJOR, TILE, often=0.96)
    )
    shares = Operand(
        (1, 1, tokens, chosen, draw.mostly(1, 2, often=0.96)), draw.mostly(BF16, F32, often=0.96), ROW_MAJOR
    )
    arguments = {
        "combine_output": rows,
        "weights": shares,
        "expert_dim": draw.mostly(3, 2, often=0.96),
        "output_memory_config": draw.place(),
    }
    return Call(f"experimental.deepseek_prefill.{COMBINE}", ("combine_output", "weights"), arguments)


GENERATORS = {
    "scatter": scatter,
    "softmax": softmax,
    f"experimental.deepseek_prefill.{FUSED}": fused_experts,
    f"experimental.deepseek_prefill.{COMBINE}": combined,
}


def tensors_of(call: Call) -> list[Operand]:
    """All tensors of a call, those in lists too."""
    found = []
    for value in call.arguments.values():
        found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Operand)]
    return found


def _rows_differ(call: Call) -> bool:
    index, source, target = (call[name] for name in ("index", "src", "input"))
    if not all(isinstance(one, Operand) for one in (index, source, target)):
        return False
    return index.shape != source.shape or index.shape[:-1] != target.shape[:-1]


def _odd_biases(call: Call) -> bool:
    given = [call[f"{role}_biases"] for role in ("gate", "up", "down")]
    return any(
        isinstance(bias, Operand) and (bias.shape[0] != 1 or bias.place != DRAM)
        for biases in given
        if isinstance(biases, list)
        for bias in biases
    )


STRICTER = {
    "numbers scattered in tiles": Rule(
        "the library takes tiles apart first; emitted modules scatter rows",
        ("scatter",),
        lambda call: any(tensor.layout == TILE for tensor in tensors_of(call)),
    ),
    "scattered rows that differ": Rule("the library cuts them to fit", ("scatter",), _rows_differ),
    "scattered outside the row": Rule(
        "the library skips such a column",
        ("scatter",),
        lambda call: isinstance(call["index"], Operand)
        and isinstance(call["input"], Operand)
        and call["index"].shape[-1:] > call["input"].shape[-1:],
    ),
    "scattered along other dimensions": Rule(
        "emitted modules do not use it", ("scatter",), lambda call: call["dim"] not in (-1, 3) or call["reduce"]
    ),
    "softmax of rows": Rule(
        "the library makes tiles of them first",
        ("softmax",),
        lambda call: any(tensor.layout == ROW_MAJOR or tensor.dtype == BF4 for tensor in tensors_of(call)),
    ),
    "softmax along other dimensions": Rule(
        "emitted modules do not use it",
        ("softmax",),
        lambda call: tensors_of(call) and call["dim"] not in (-1, len(tensors_of(call)[0].shape) - 1, None),
    ),
    "softmax without the largest value": Rule(
        "it overflows",
        ("softmax",),
        lambda call: "numeric_stable" in call.arguments and call["numeric_stable"] is not True,
    ),
    "experts in another form": Rule(
        "only the form that reads and writes at offsets is modelled",
        (FUSED,),
        lambda call: call["read_x_at_offset"] is not True
        or call["expert_region_offsets"] is None
        or call["output"] is None,
    ),
    "true as an activation": Rule(
        "the bindings take a bool for the number of an activation, which is a mistake",
        (FUSED,),
        lambda call: isinstance(call["activation"], bool),
    ),
    "biases of another shape or place": Rule("the library does not look", (FUSED,), _odd_biases),
    "experts over tiles": Rule(
        "emitted modules place rows",
        (FUSED,),
        lambda call: isinstance(call["input"], Operand) and call["input"].layout == TILE,
    ),
    "weights of more than one column": Rule(
        "the kernel takes the first, whatever the others say",
        (COMBINE,),
        lambda call: isinstance(call["weights"], Operand) and call["weights"].shape[-1:] != (1,),
    ),
}

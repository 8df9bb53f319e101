"""Rules over generated calls, and the properties of calls that they speak of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.generated_cases import (
    BF4,
    F32,
    FLOATS,
    FREED,
    HOST,
    INTEGERS,
    TILE,
    U32,
    Attribute,
    Call,
    Made,
    Operand,
)
from tests.support.generated_transfers import TRANSFERS


class Rule(NamedTuple):
    """Describes the calls of these operations (all, where there are none) for which it holds."""

    reason: str
    operations: tuple[str, ...]
    holds: Callable[[Call], Any]

    def describes(self, call: Call) -> bool:
        return (not self.operations or short_name(call) in self.operations) and bool(self.holds(call))


def short_name(call: Call) -> str:
    return call.operation.rsplit(".", 1)[-1]


def operands(call: Call) -> list[Operand]:
    return [value for value in call.arguments.values() if isinstance(value, Operand)]


def tensor_is(call: Call, name: str, holds: Callable[[Operand], Any]) -> bool:
    return isinstance(call[name], Operand) and bool(holds(call[name]))


def any_tensor(call: Call, holds: Callable[[Operand], Any]) -> bool:
    return any(holds(operand) for operand in operands(call))


def type_named(value: Any) -> str:
    return value.name if isinstance(value, Attribute) else ""


def shape_of(call: Call, name: str) -> tuple[int, ...]:
    return call[name].shape if isinstance(call[name], Operand) else ()


def size_of(call: Call, name: str, axis: int) -> int:
    """A size of a tensor, 0 where it has no such dimension."""
    shape = shape_of(call, name)
    return shape[axis] if -len(shape) <= axis < len(shape) else 0


def other_dimension(call: Call) -> bool:
    """Whether the dimension stated, or what is taken where none is, is any but the last."""
    dim = call.arguments.get("dim", -1 if short_name(call) == "topk" else None)
    shape = shape_of(call, "input_tensor") or shape_of(call, "input")
    return dim not in (-1, len(shape) - 1)


def empty_range(call: Call) -> bool:
    starts, ends = call["slice_start"], call["slice_end"]
    return isinstance(starts, list) and isinstance(ends, list) and any(low >= high for low, high in zip(starts, ends))


def broadcast(call: Call) -> bool:
    a, b = shape_of(call, "a"), shape_of(call, "b")
    both = isinstance(call["a"], Operand) and isinstance(call["b"], Operand)
    return both and not (len(a) == len(b) and all(one == other or 1 in (one, other) for one, other in zip(a, b)))


def unmodelled_transpose(call: Call) -> bool:
    rank, dims = len(shape_of(call, "input_tensor")), (call["dim1"], call["dim2"])
    return rank != 4 or {dim % rank for dim in dims if isinstance(dim, int)} != {0, 1}


def partial_tile(call: Call) -> bool:
    return size_of(call, "input", -1) % 32 != 0


def head_columns(call: Call) -> int:
    """Columns that a fused projection has beyond whole heads of whole tiles."""
    heads, shared = call["num_heads"], call["num_kv_heads"]
    shared = heads if shared is None else shared
    total = heads + 2 * shared if isinstance(heads, int) and isinstance(shared, int) else 0
    return size_of(call, "input", -1) % (total * 32) if total > 0 else 1


def short_tables(call: Call) -> bool:
    return size_of(call, "cos", -2) < size_of(call, "input", -2)


def partial_blocks(call: Call) -> bool:
    tokens, block = size_of(call, "input", -2), size_of(call, "cache", -2)
    return tokens % 32 != 0 or block == 0 or tokens % block != 0


def bounds_do_not_cover(call: Call) -> bool:
    """A kernel that is given other bounds reads beyond them; the library never sees the values."""
    bounds = call["cu_window_seqlens"]
    if not isinstance(bounds, Operand):
        return False
    values = (*bounds.values, *(0,) * bounds.volume)[: bounds.volume]
    return not values or (values[0], values[-1]) != (0, size_of(call, "q", -2))


def chunks(call: Call) -> tuple[Any, Any]:
    program = call["program_config"]
    return (program.fields["q_chunk_size"], program.fields["k_chunk_size"]) if isinstance(program, Made) else (32, 32)


def start_off_the_chunks(call: Call) -> bool:
    start = call["chunk_start_idx"]
    return isinstance(start, int) and any(not size or start % size for size in chunks(call))


def looked_up_layout(call: Call) -> str:
    stated = type_named(call["layout"]).removesuffix("_LAYOUT")
    return stated or (call["weight"].layout if isinstance(call["weight"], Operand) else "")


def unusual_norm_weight(call: Call) -> bool:
    weight = call["weight"]
    if not isinstance(weight, Operand) or weight.dtype in (BF4, "bfloat8_b", *INTEGERS):
        return True
    width = size_of(call, "input_tensor", -1)
    return weight.volume != width or weight.shape[-1] != (width if weight.layout == TILE else 32)


def program_without_compute(call: Call) -> bool:
    return isinstance(call["program_config"], Made) and not isinstance(call["compute_kernel_config"], Made)


def odd_pairs(call: Call) -> bool:
    config = call["config"]
    return call["fuse_swiglu"] is True and isinstance(config, Made) and config.fields.get("subblock_w", 1) % 2 != 0


def cast_between_kinds(call: Call) -> bool:
    """All but the one cast that counts become indices by."""
    target = type_named(call["dtype"])
    return tensor_is(
        call,
        "input_tensor",
        lambda tensor: (tensor.dtype in FLOATS) != (target in FLOATS) and (tensor.dtype, target) != (F32, U32),
    )


def without_memory(call: Call) -> bool:
    """Whether a tensor was freed, or is on the host where an operation needs it on the device."""
    name = short_name(call)
    on_host = [key for key in call.tensors() if call[key].place == HOST]
    if name in TRANSFERS:
        on_host = [key for key in on_host if key == "device"]
    elif name in ("reshape", "unsqueeze_to_4D"):
        on_host = []
    return bool(on_host) or any_tensor(call, lambda tensor: tensor.place == FREED)

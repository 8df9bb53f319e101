"""Generated calls of every operation of the emulator: what a call is, how it is drawn, altered, made and described.

A call is plain data, so that the library and the emulator get the same one, and so that a rule can be stated over it.
The draws come from a fixed seed for each operation. About half of the calls are as an operation wants them; the other
half is altered in one place, at random. It needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

BF16, BF8, BF4, F32 = "bfloat16", "bfloat8_b", "bfloat4_b", "float32"
U32, I32, U16 = "uint32", "int32", "uint16"
FLOATS, INTEGERS = (BF16, BF8, BF4, F32), (U32, I32, U16)
BLOCK_FLOATS = (BF8, BF4)
TILE, ROW_MAJOR = "TILE", "ROW_MAJOR"
DRAM, L1, HOST, FREED = "DRAM", "L1", "HOST", "FREED"


@dataclass(frozen=True)
class Operand:
    """A tensor to be made. `values` (the first ones; the rest are zero) matter to the emulator only, which reads them."""

    shape: tuple[int, ...]
    dtype: str = BF16
    layout: str = TILE
    place: str = DRAM
    values: tuple[int, ...] = field(default=(), repr=False)

    @property
    def volume(self) -> int:
        volume = 1
        for size in self.shape:
            volume *= size
        return volume

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype} {self.layout} {self.place}"


class _Device:
    def __repr__(self) -> str:
        return "the device"


DEVICE = _Device()  # stands for the device that the tensors are on


@dataclass(frozen=True)
class Attribute:
    """A name of the library's own, such as a data type."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Made:
    """A configuration to be made from keywords."""

    name: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={_text(value)}' for key, value in self.fields.items())})"


@dataclass(frozen=True)
class InOrder:
    """A value to be made from arguments without names."""

    name: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}{self.values}"


@dataclass(frozen=True)
class Call:
    """`operation` is the name below the library's own, with dots. All arguments are named; `positional` are passed by place."""

    operation: str
    positional: tuple[str, ...]
    arguments: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def tensors(self) -> list[str]:
        return [name for name, value in self.arguments.items() if isinstance(value, Operand)]

    def changed(self, **arguments: Any) -> Call:
        return replace(self, arguments={**self.arguments, **arguments})

    def without(self, name: str) -> Call:
        kept = {key: value for key, value in self.arguments.items() if key != name}
        return replace(self, positional=tuple(key for key in self.positional if key != name), arguments=kept)

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(f'{key}={_text(value)}' for key, value in self.arguments.items())})"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return str(value) if isinstance(value, (Operand, Attribute, Made, InOrder)) else repr(value)


class Draw(Random):
    """Random choices in the words of the generators."""

    def mostly(self, usual: Any, *others: Any, often: float = 0.88) -> Any:
        return usual if self.random() < often else self.choice(others)

    def maybe(self, name: str, value: Callable[[], Any], often: float = 0.4) -> dict[str, Any]:
        return {name: value()} if self.random() < often else {}

    def tiles(self, most: int = 4) -> int:
        """A length: mostly whole tiles, else beside the edge of one."""
        return self.mostly(32 * self.randint(1, most), 1, 5, 31, 33, 127, 129)

    def dtype(self, *usual: str, often: float = 0.9) -> str:
        return self.choice(usual) if self.random() < often else self.choice(FLOATS + INTEGERS)

    def memory(self, often: float = 0.35) -> dict[str, Any]:
        return self.maybe(
            "memory_config", lambda: self.mostly(self.place(), Attribute("bfloat16"), None, often=0.9), often
        )

    def place(self) -> Attribute:
        return Attribute(self.choice(("DRAM_MEMORY_CONFIG", "L1_MEMORY_CONFIG")))

    def compute(self) -> Made:
        fields = {
            "math_fidelity": Attribute(f"MathFidelity.{self.choice(('LoFi', 'HiFi2', 'HiFi3', 'HiFi4'))}"),
            "math_approx_mode": self.random() < 0.3,
            "fp32_dest_acc_en": self.random() < 0.6,
            "packer_l1_acc": self.random() < 0.6,
        }
        if self.random() < 0.05:
            fields[self.choice(sorted(fields))] = self.choice((1, 2.0, None))
        return Made("WormholeComputeKernelConfig", fields)


# --- alterations -------------------------------------------------------------------------------------------------------


def _other_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    kind = draw.randrange(6)
    if kind == 0:
        return (1, *shape)
    if kind == 1:
        return shape[1:]
    if not shape:
        return (draw.choice((1, 32)),)
    at = draw.randrange(len(shape))
    size = {2: 0, 3: shape[at] + 1, 4: max(shape[at] - 1, 1), 5: shape[at] * 2}[kind]
    return (*shape[:at], size, *shape[at + 1 :])


def _altered_tensor(draw: Draw, tensor: Operand) -> Any:
    kind = draw.choice(("shape", "shape", "shape", "dtype", "dtype", "layout", "place", "state", "type"))
    if kind == "shape":
        return replace(tensor, shape=_other_shape(draw, tensor.shape))
    if kind == "dtype":
        return replace(tensor, dtype=draw.choice([name for name in FLOATS + INTEGERS if name != tensor.dtype]))
    if kind == "layout":
        return replace(tensor, layout=ROW_MAJOR if tensor.layout == TILE else TILE)
    if kind == "place":
        return replace(tensor, place=L1 if tensor.place == DRAM else DRAM)
    if kind == "state":
        return replace(tensor, place=draw.choice((HOST, FREED)))
    return draw.choice((None, 3, 1.5, "tensor", [1, 2], Attribute("bfloat16")))


def altered(draw: Draw, call: Call) -> Call:
    """The call with one thing changed that an operation should look at. Most results are illegal, some are not."""
    kind = draw.choice(("tensor",) * 6 + ("option", "left out", "unknown"))
    tensors = call.tensors()
    options = [name for name in call.arguments if name not in tensors]
    if kind == "unknown":
        return call.changed(**{draw.choice(("axis", "eps", "target", "layer", "mode")): draw.choice((1, None, 0.5))})
    if kind == "left out":
        return call.without(draw.choice(list(call.arguments)))
    if kind == "option" and options:
        name = draw.choice(options)
        return call.changed(**{name: draw.choice((None, "text", -1, 2.5, True, Attribute("TILE_LAYOUT"), []))})
    name = draw.choice(tensors) if tensors else draw.choice(options)
    return call.changed(**{name: _altered_tensor(draw, call[name]) if tensors else None})


def drawn(operation: str, generator: Callable[[Draw], Call], count: int) -> list[Call]:
    """`count` calls, the same ones in every run and on every machine."""
    draw = Draw(f"calls of {operation}")
    calls = []
    for _ in range(count):
        call = generator(draw)
        calls.append(altered(draw, call) if draw.random() < 0.45 else call)
    return calls


# --- making and describing ---------------------------------------------------------------------------------------------


def _resolve(t: Any, value: Any, make: Callable[[Operand], Any]) -> Any:
    if isinstance(value, Operand) or value is DEVICE:
        return make(value)
    if isinstance(value, Attribute):
        found = t
        for part in value.name.split("."):
            found = getattr(found, part)
        return found
    if isinstance(value, Made):
        return getattr(t, value.name)(**{key: _resolve(t, item, make) for key, item in value.fields.items()})
    if isinstance(value, InOrder):
        return getattr(t, value.name)(*value.values)
    if isinstance(value, list):
        return [_resolve(t, item, make) for item in value]
    return value


def outcome(t: Any, call: Call, make: Callable[[Operand], Any]) -> str:
    """What the call returns as text, or "refused"; an error of another kind than a refusal is named behind it."""
    try:
        arguments = {name: _resolve(t, value, make) for name, value in call.arguments.items()}
        by_place = [arguments.pop(name) for name in call.positional]
        result = _resolve(t, Attribute(call.operation), make)(*by_place, **arguments)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return "; ".join(describe(part) for part in parts)
    except (TypeError, RuntimeError):
        return "refused"
    except Exception as error:
        return f"refused by {type(error).__name__}"


def describe(tensor: Any) -> str:
    """Shape, padded shape, type, layout and the whole memory configuration of a result."""
    if tensor is None:
        return "nothing"

    def last(value: Any) -> str:
        return str(value).rsplit(".", 1)[-1]

    config = tensor.memory_config()
    place = f"{last(config.buffer_type)} {last(config.memory_layout)} {'sharded' if config.is_sharded() else 'whole'}"
    kinds = f"{last(tensor.dtype)} {last(tensor.layout)} {place}"
    return f"{list(tensor.shape)} padded {list(tensor.padded_shape)} {kinds}"


def on_namespace(t: Any, device: Any, fill: Callable[[Any, Operand], None]) -> Callable[[Operand], Any]:
    """How tensors are made on a device of the library or of the emulator; `fill` gives them their values."""

    def make(operand: Any) -> Any:
        if operand is DEVICE:
            return device
        dtype, layout = getattr(t, operand.dtype), getattr(t, f"{operand.layout}_LAYOUT")
        if operand.place == HOST:
            return t.zeros(list(operand.shape), dtype=dtype, layout=layout)
        place = t.L1_MEMORY_CONFIG if operand.place == L1 else t.DRAM_MEMORY_CONFIG
        tensor = t.empty(list(operand.shape), dtype=dtype, layout=layout, device=device, memory_config=place)
        fill(tensor, operand)
        if operand.place == FREED:
            t.deallocate(tensor)
        return tensor

    return make


def numbered(calls: Iterable[Call]) -> dict[str, Call]:
    return {f"{call.operation} {number}": call for number, call in enumerate(calls)}

"""What the library's captured graph says of a pass: its device operations, their buffers, what lived in memory, what
crossed to the host.

A graph is a list of nodes in the order of events. `recorder` puts marks into it that say which stage, layer and call
of the emitted module the next nodes belong to. Circular and dataflow buffers are only in graphs of mode NO_DISPATCH,
addresses only in those of mode NORMAL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from runtime.tables import TILE

Node = dict[str, Any]

MARK = "emitted:"  # begins the name of every mark
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "uint32": 4, "int32": 4, "uint16": 2, "uint8": 1}
TILE_BYTES = {
    "bfloat8_b": 1088,
    "bfloat4_b": 576,
}  # 1024 mantissas and 64 exponents, which the library's own sizes leave out
UPLOADS = ("Tensor::to_device", "tt::tt_metal::copy_to_device")
READS = ("Tensor::cpu",)
CREATION = "tt::tt_metal::create_device_tensor"
PER_CORE = ("circular_buffer_allocate", "dataflow_buffer_allocate", "scratchpad_allocate")
BORROWED = (
    "globally_allocated",
    "borrows_memory",
)  # buffers that lie in a tensor's memory, which is counted with the tensor

_RANGE = re.compile(r"\[(\d+)-(\d+) - (\d+)-(\d+)\]")
_FIDELITY = re.compile(r"math_fidelity=(?:MathFidelity::)?(\w+)")
_BUFFER = re.compile(r"buffer_type=BufferType::(\w+)")


@dataclass(frozen=True)
class Place:
    """Where in the emitted module an event belongs. `call` counts the module's calls of the library within one pass;
    `line` is only known in a pass that was followed line by line."""

    stage: str | None = None
    layer: int | None = None
    call: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class Operand:
    """A tensor as an operation saw it. `bytes` is what it occupies, padding and shared exponents included."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    buffer: str

    def to_json(self) -> dict[str, Any]:
        padded = self.padded_shape
        stated = {"padded_shape": list(padded)} if padded != self.shape else {}
        return {
            "shape": list(self.shape),
            **stated,
            "dtype": self.dtype,
            "layout": self.layout,
            "buffer": self.buffer,
            "bytes": self.bytes,
        }

    @property
    def padded_shape(self) -> tuple[int, ...]:
        if self.layout != "TILE":
            return self.shape
        whole = self.shape if len(self.shape) > 1 else (1, *self.shape)
        return (*whole[:-2], *(-(-size // TILE) * TILE for size in whole[-2:]))

    @property
    def bytes(self) -> int:
        elements = prod(self.padded_shape)
        if self.dtype in TILE_BYTES:
            return elements // (TILE * TILE) * TILE_BYTES[self.dtype]
        return elements * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Operation:
    """One device operation. `buffer_bytes` is what its circular and dataflow buffers reach on its fullest core."""

    name: str
    factory: str
    place: Place
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    cores: int
    buffer_bytes: int
    fidelity: str | None


@dataclass(frozen=True)
class Transfer:
    """A copy between host and device; `kind` is "upload" or "read"."""

    kind: str
    name: str
    place: Place


@dataclass(frozen=True)
class Memory:
    """What lived during one device operation, its outputs included. DRAM in bytes of all banks; L1 in bytes of one
    bank, from the top of the bank to the lowest address in use."""

    place: Place
    dram: int
    l1: int


def marked(nodes: Sequence[Node]) -> Iterator[tuple[Node, Place]]:
    """All nodes but the marks, each with the place that the marks before it give it."""
    place = Place()
    for node in nodes:
        name = (node["params"] or {}).get("name", "")
        if not name.startswith(MARK):
            yield node, place
            continue
        kind, value = name[len(MARK) :].split(":")
        number = int(value) if value.isdecimal() else None
        if kind == "call":  # a scope: it ends where the call returns, and calls do not nest
            place = replace(place, call=number if node["node_type"] == "function_start" else None)
        elif node["node_type"] == "function_start":
            place = replace(place, **{kind: value if kind == "stage" else number})


def is_operation(node: Node) -> bool:
    return node["node_type"] == "function_start" and "program_factory_type" in node["params"]


def _operand(node: Node) -> Operand:
    stated = node["params"]
    buffer = _BUFFER.search(stated.get("memory_config", ""))
    return Operand(
        shape=tuple(int(size) for size in re.findall(r"\d+", stated["shape"])),
        dtype=stated["dtype"].rpartition("::")[2].lower(),
        layout=stated["layout"].rpartition("::")[2],
        buffer=buffer[1] if buffer else "HOST",
    )


def _ends(nodes: Sequence[Node]) -> dict[int, int]:
    """Index of the end of every function by the index of its start."""
    ends, open_ones = {}, []
    for index, node in enumerate(nodes):
        if node["node_type"] == "function_start":
            open_ones.append(index)
        elif node["node_type"] == "function_end":
            ends[open_ones.pop()] = index
    return ends


def _tensors(nodes: Sequence[Node], counters: Iterable[int]) -> tuple[Operand, ...]:
    return tuple(_operand(nodes[index]) for index in counters if nodes[index]["node_type"] == "tensor")


def _outputs(nodes: Sequence[Node], start: int, end: int, ends: dict[int, int]) -> tuple[Operand, ...]:
    """What the operation returned; where the library does not connect it (several outputs), what it created."""
    returned = _tensors(nodes, nodes[end]["connections"])
    if returned:
        return returned
    created = (
        ends[index]
        for index in range(start, end)
        if nodes[index]["node_type"] == "function_start" and nodes[index]["params"]["name"] == CREATION
    )
    return tuple(one for index in created for one in _tensors(nodes, nodes[index]["connections"]))


@lru_cache(maxsize=4096)
def _cores(ranges: str) -> frozenset[tuple[int, int]]:
    return frozenset(
        (x, y)
        for left, top, right, bottom in (map(int, found) for found in _RANGE.findall(ranges))
        for x in range(left, right + 1)
        for y in range(top, bottom + 1)
    )


@lru_cache(maxsize=4096)
def footprint(buffers: tuple[tuple[str, int], ...]) -> tuple[int, int]:
    """Cores that buffers of (core ranges, bytes) lie on, and the bytes that they reach on the fullest core.

    A buffer starts at one address on all of its cores, above everything that lies on any of them.
    """
    reached: dict[tuple[int, int], int] = {}
    for ranges, size in buffers:
        cores = _cores(ranges)
        end = max((reached.get(core, 0) for core in cores), default=0) + size
        reached.update(dict.fromkeys(cores, end))
    return len(reached), max(reached.values(), default=0)


def operations(nodes: Sequence[Node]) -> tuple[Operation, ...]:
    """Device operations in order. Of a graph of mode NORMAL they have neither cores nor buffers."""
    ends = _ends(nodes)
    found = []
    for node, place in marked(nodes):
        if not is_operation(node):
            continue
        start, end = node["counter"], ends[node["counter"]]
        inside = [one for one in nodes[start:end] if one["node_type"] in PER_CORE]
        own = [one["params"] for one in inside if not any(one["params"].get(name) == "1" for name in BORROWED)]
        cores, reached = footprint(tuple((one["core_range_set"], one["size"]) for one in own))
        if len(own) < len(inside):
            cores = len(frozenset().union(*(_cores(one["params"]["core_range_set"]) for one in inside)))
        fidelity = _FIDELITY.search(" ".join(node["arguments"][:1]))
        found.append(
            Operation(
                name=node["params"]["name"],
                factory=node["params"]["program_factory_type"].replace("::ProgramFactory", "").rpartition("::")[2],
                place=place,
                inputs=_tensors(nodes, node["input_tensors"]),
                outputs=_outputs(nodes, start, end, ends),
                cores=cores,
                buffer_bytes=reached,
                fidelity=fidelity[1] if fidelity else None,
            )
        )
    return tuple(found)


def transfers(nodes: Sequence[Node]) -> tuple[Transfer, ...]:
    """Copies between host and device; one that another consists of counts once."""
    ends = _ends(nodes)
    found, until = [], -1
    for node, place in marked(nodes):
        if node["node_type"] != "function_start" or node["counter"] < until:
            continue
        name = node["params"]["name"]
        if name in UPLOADS or name in READS:
            found.append(Transfer("upload" if name in UPLOADS else "read", name, place))
            until = ends[node["counter"]]
    return tuple(found)


def memory(nodes: Sequence[Node], dram_banks: int, l1_top: int) -> tuple[Memory, ...]:
    """What the pass itself had allocated during each device operation, of a graph of mode NORMAL. `l1_top` is where the
    banks of L1 end: tensors fill them downwards."""
    ends = _ends(nodes)
    dram = 0
    l1: dict[int, int] = {}  # address by buffer
    found: list[Memory] = []
    current, until, most, lowest = Place(), -1, 0, l1_top
    for node, place in marked(nodes):
        kind, stated = node["node_type"], node["params"]
        if kind in ("buffer_allocate", "buffer_deallocate"):
            sign = 1 if kind == "buffer_allocate" else -1
            if stated["type"] == "DRAM":
                dram += sign * stated["max_size_per_bank"] * dram_banks
            elif sign > 0:
                l1[node["connections"][0]] = stated["address"]
            else:
                l1.pop(node["connections"][0], None)
        if until >= 0:
            most, lowest = max(most, dram), min(lowest, *l1.values()) if l1 else lowest
            if node["counter"] == until:
                found.append(Memory(current, most, l1_top - lowest))
                until = -1
        elif is_operation(node):
            current, until = place, ends[node["counter"]]
            most, lowest = dram, min(l1.values(), default=l1_top)
    return tuple(found)

"""Generated calls of what makes tensors and moves them between the host and the device."""

from __future__ import annotations

from dataclasses import replace

from tests.support.generated_cases import (
    DEVICE,
    DRAM,
    FLOATS,
    HOST,
    INTEGERS,
    L1,
    ROW_MAJOR,
    TILE,
    Attribute,
    Call,
    Draw,
    Operand,
)


def _shape(draw: Draw) -> list[int]:
    rank = draw.choice((1, 2, 3, 4, 4, 5))
    return [*(draw.choice((1, 1, 2, 3)) for _ in range(rank - 2)), draw.tiles(), draw.tiles()][-rank:]


def _form(draw: Draw) -> dict[str, Attribute]:
    layout = Attribute(draw.choice(("TILE_LAYOUT", "ROW_MAJOR_LAYOUT")))
    return {"dtype": Attribute(draw.choice(FLOATS + INTEGERS)), "layout": layout}


def _operand(draw: Draw, place: str) -> Operand:
    return Operand(tuple(_shape(draw)), draw.choice(FLOATS + INTEGERS), draw.choice((TILE, ROW_MAJOR)), place)


def empty(draw: Draw) -> Call:
    return Call("empty", (), {"shape": _shape(draw), **_form(draw), "device": DEVICE, **draw.memory()})


def zeros(draw: Draw) -> Call:
    form = {name: value for name, value in _form(draw).items() if draw.random() < 0.8}
    arguments = {"shape": _shape(draw), **form, **draw.maybe("device", lambda: DEVICE, 0.7), **draw.memory()}
    return Call("zeros", ("shape",), arguments)


def allocate(draw: Draw) -> Call:
    arguments = {"shape": _shape(draw), **_form(draw), "mesh_device": DEVICE, **draw.memory()}
    return Call("allocate_tensor_on_device", tuple(arguments)[:4], arguments)


def to_device(draw: Draw) -> Call:
    tensor = _operand(draw, draw.mostly(HOST, DRAM, often=0.8))
    return Call("to_device", ("tensor", "device"), {"tensor": tensor, "device": DEVICE, **draw.memory()})


def from_device(draw: Draw) -> Call:
    return Call("from_device", ("tensor",), {"tensor": _operand(draw, draw.mostly(DRAM, L1, HOST, often=0.6))})


def _pair(draw: Draw, first: str, second: str) -> tuple[Operand, Operand]:
    one = _operand(draw, first)
    other = replace(one, place=second)
    changes = {"shape": (*one.shape[:-1], one.shape[-1] + 32), "dtype": draw.choice(FLOATS + INTEGERS), "place": first}
    if draw.random() < 0.25:
        name = draw.choice(sorted(changes))
        other = replace(other, **{name: changes[name]})
    return one, other


def to_device_in_place(draw: Draw) -> Call:
    host, device = _pair(draw, HOST, draw.choice((DRAM, L1)))
    return Call("copy_host_to_device_tensor", ("host", "device"), {"host": host, "device": device})


def to_host_in_place(draw: Draw) -> Call:
    device, host = _pair(draw, draw.choice((DRAM, L1)), HOST)
    return Call("copy_device_to_host_tensor", ("device", "host"), {"device": device, "host": host})


TRANSFERS = {
    "empty": empty,
    "zeros": zeros,
    "allocate_tensor_on_device": allocate,
    "to_device": to_device,
    "from_device": from_device,
    "copy_host_to_device_tensor": to_device_in_place,
    "copy_device_to_host_tensor": to_host_in_place,
}

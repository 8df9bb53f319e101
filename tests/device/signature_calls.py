"""Put the same calls to the installed library and to the recorded signatures; a process with a mock device.

Each call starts from one that the library binds, with a tensor for a tensor and a number for a number, and changes one
thing. Standard output is one JSON object: how many calls were made, and those on which the two sides differ.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import ttnn

from generator.signatures import EITHER, POSITIONAL, Argument, Instance, Signature, read, refused

LITERALS = (None, True, 1, 0.5, 0.1, "a", [1], (1, 1), [0.5])
MEANT = {"ttnn.DataType": "bfloat16", "ttnn.MemoryConfig": "DRAM_MEMORY_CONFIG", "ttnn.Layout": "TILE_LAYOUT"}
Given = tuple[str | None, Any]  # keyword and literal; an Instance stands for a value of the library


def actual(value: Any, device: ttnn.MeshDevice) -> Any:
    """The value to call the library with."""
    if isinstance(value, list):
        return [actual(item, device) for item in value]
    if not isinstance(value, Instance):
        return value
    if value.type == "ttnn.Tensor":
        zeros = torch.zeros(1, 1, 32, 32)
        return ttnn.from_torch(zeros, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    return getattr(ttnn, MEANT[value.type])


def plain(kind: str) -> Any:
    """A value that a parameter takes, as plain as there is. Raises KeyError where none is at hand."""
    kind = kind.split(" | ")[0]
    if kind == "ttnn.Tensor" or kind in MEANT:
        return Instance(kind)
    if kind.startswith("Sequence["):
        return [plain(kind[len("Sequence[") : -1])] * 4  # the rank of the tensors here
    return {"int": 1, "float": 0.5, "bool": False, "str": "a", "tuple[int, int]": (1, 1), "ttnn.CoreCoord": (1, 1)}[
        kind
    ]


def stricter(kind: str, literal: Any) -> bool:
    """Whether the recorded rules may refuse what the library takes: a bool that stands for a number, a number for an
    enumeration or an operation."""
    if literal is True:
        return re.search(r"\bbool\b", kind) is None
    return literal in (1, [1], (1, 1)) and re.search(r"\b(int|float)\b", kind) is None


def calls(form: Signature) -> Iterator[list[Given]]:
    """A call of a form, and others that each differ from it in one thing; none where no plain value is at hand."""
    try:
        base = {parameter.name: plain(parameter.type) for parameter in form.parameters if parameter.required}
    except KeyError:
        return
    unnamed = [(None, base[one.name]) for one in form.parameters if one.name in base and one.kind == POSITIONAL]
    named = [(one.name, base[one.name]) for one in form.parameters if one.name in base and one.kind != POSITIONAL]
    yield [*unnamed, *named]
    yield [*unnamed, *named, ("no_such_argument", 1)]
    yield [*unnamed, *[(None, 1)] * (len(form.parameters) + 1), *named]
    yield from ([*unnamed, *named[:index], *named[index + 1 :]] for index in range(len(named)))
    if unnamed:
        yield unnamed[1:]
    if named and form.parameters[0].kind == EITHER:
        yield [(None, named[0][1]), *named]
    for parameter in form.parameters:
        others = [given for given in named if given[0] != parameter.name]
        for literal in LITERALS:
            if parameter.kind != POSITIONAL and not stricter(parameter.type, literal):
                yield [*unnamed, *others, (parameter.name, literal)]


def library_refuses(operation: Callable, call: list[Given], device: ttnn.MeshDevice) -> bool:
    positional = [actual(value, device) for name, value in call if name is None]
    try:
        operation(*positional, **{name: actual(value, device) for name, value in call if name is not None})
    except TypeError:
        return True
    except Exception:  # whatever the operation itself says, its arguments were bound
        return False
    return False


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    table, device = read(), ttnn.open_device(device_id=0)
    found: dict[str, Any] = {"calls": 0, "operations": 0, "refused": 0, "only_recorded": [], "only_library": []}
    for name, forms in table.calls.items():
        operation: Any = ttnn
        for part in name.split(".")[1:]:
            operation = getattr(operation, part)
        before = found["calls"]
        for form in forms:
            for call in calls(form):
                arguments = [Argument(keyword, value) for keyword, value in call]
                ours = bool(refused(name, arguments, table))
                theirs = library_refuses(operation, call, device)
                found["calls"] += 1
                found["refused"] += ours and theirs
                if ours != theirs:
                    shown = ", ".join(f"{keyword}={value}" if keyword else str(value) for keyword, value in call)
                    found["only_recorded" if ours else "only_library"].append(f"{name}({shown})")
        found["operations"] += found["calls"] > before
    answers.write(json.dumps(found))


if __name__ == "__main__":
    main()

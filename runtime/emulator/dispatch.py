"""The one way in which an operation reaches the device: check, compile, allocate, compute, round, store.

An operation supplies a `plan` (specs and attributes -> output specs, or a refusal), which runs once for each program,
a `check` of values that the device itself could not refuse, and a `compute` on plain torch values. `compute` and
`check` close over attributes only and never over tensors, so that a trace can run them again on the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .device import Device, caller
from .errors import EmulatorError, require
from .storage import Buffer, Ownership, TensorSpec
from .tensor import Tensor


class Plan(NamedTuple):
    """What a program is: its outputs, and the L1 memory that its own buffers take on each core.

    `moves` says that values are only moved, so that equal types need no rounding. `scratch` is device memory that the operation
    takes before its outputs and gives back at its end.
    """

    outputs: tuple[TensorSpec, ...]
    moves: bool = False
    l1_bytes: int = 0
    scratch: tuple[TensorSpec, ...] = ()


class Launch(NamedTuple):
    """One operation on particular buffers: what a trace keeps. `in_place` is the index of the input that it writes,
    or None.

    `specs` are the shapes under which the inputs were passed; a buffer may be seen through a view of another shape.
    `captured_at` is the line that asked for it, in a recording.
    """

    name: str
    inputs: tuple[Buffer, ...]
    specs: tuple[TensorSpec, ...]
    outputs: tuple[Buffer, ...]
    plan: Plan
    check: Callable[..., None] | None
    compute: Callable[..., Any]
    in_place: int | None
    scratch: tuple[Buffer, ...] = ()
    captured_at: tuple[str, int] | None = None


def launch(
    name: str,
    inputs: tuple[Tensor, ...],
    attributes: tuple[Any, ...],
    plan: Callable[..., Plan],
    compute: Callable[..., Any],
    *,
    check: Callable[..., None] | None = None,
    in_place: int | None = None,
) -> tuple[Tensor, ...]:
    """Run one operation and return its outputs (none for one that writes in place).

    `plan` is called with the device, the input specs and then the attributes; `compute` and `check` with the input
    values.
    """
    buffers = tuple([_buffer(name, tensor) for tensor in inputs])
    specs = tuple([tensor.spec for tensor in inputs])
    device = buffers[0].device
    device.enter(name)
    key = (name, attributes, specs)
    program = device.programs.get(key)
    if program is None:
        for spec in specs:
            require_values(name, spec)
        program = plan(device, *specs, *attributes)
        if device.recording is not None:
            raise EmulatorError(
                name, "a program may not be compiled during trace capture; run this shape once before it is captured"
            )
        device.check_program_memory(name, program.l1_bytes)
        device.compile(key, program)
    elif program.l1_bytes:
        device.check_program_memory(name, program.l1_bytes)
    values = []
    if device.recording is None:
        values = [_seen(buffer, spec) for buffer, spec in zip(buffers, specs)]
        if check is not None:
            check(*values)
    scratch, owners = _allocate(name, device, program)
    outputs = tuple([owner.buffer for owner in owners])
    work = Launch(name, buffers, specs, outputs, program, check, compute, in_place, scratch)
    if device.recording is None:
        _compute(device, work, values)
    else:
        device.recording.add(work._replace(captured_at=caller()))
    device.note(name, program.outputs)
    return tuple([Tensor(spec, ownership=owner) for spec, owner in zip(program.outputs, owners)])


def require_values(name: str, spec: TensorSpec) -> None:
    require(
        spec.volume > 0 and len(spec.shape) > 0,
        name,
        f"a tensor without values or without dimensions is a mistake of the caller's, got {spec!r}",
    )


def replay(device: Device, work: Launch) -> None:
    """Run a recorded operation again: the checks of values too, since the inputs may have been refreshed."""
    values = [_seen(buffer, spec) for buffer, spec in zip(work.inputs, work.specs)]
    if work.check is not None:
        work.check(*values)
    _compute(device, work, values)
    device.note(work.name, work.plan.outputs, work.captured_at)


def _buffer(name: str, tensor: Any) -> Buffer:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}(): incompatible function arguments: expected a Tensor, got {type(tensor).__name__}")
    return tensor.buffer(name)


def _seen(buffer: Buffer, spec: TensorSpec) -> torch.Tensor:
    values = buffer.read()
    return values if spec is buffer.spec else values.reshape(spec.shape)


def _allocate(name: str, device: Device, program: Plan) -> tuple[tuple[Buffer, ...], list[Ownership]]:
    """The scratch, which is free again on return, and the outputs."""
    made: list[Buffer] = []
    try:
        for spec in (*program.scratch, *program.outputs):
            made.append(Buffer(spec, device, name))
    except EmulatorError:
        for buffer in made:
            buffer.free()
        raise
    scratch = tuple(made[: len(program.scratch)])
    for buffer in scratch:
        buffer.free()
    return scratch, [Ownership(buffer) for buffer in made[len(program.scratch) :]]


def _compute(device: Device, work: Launch, values: list[torch.Tensor]) -> None:
    if work.in_place is not None:
        target = work.inputs[work.in_place]
        values[work.in_place] = target.writable().view(work.specs[work.in_place].shape)
        work.compute(*values)
        if device.check_representable:
            _require_representable(device, work.name, target.values, target.spec)
        return
    results = work.compute(*values)
    if len(work.outputs) == 1:
        results = (results,)
    input_dtype = work.specs[0].dtype
    for output, result in zip(work.outputs, results):
        spec = output.spec
        if not (work.plan.moves and spec.dtype is input_dtype):
            result = device.round(result, spec)
        output.values = result
        output.shared = False
        memory = result.untyped_storage().data_ptr()
        for buffer in work.inputs:
            if buffer.values is not None and buffer.values.untyped_storage().data_ptr() == memory:
                output.shared = buffer.shared = True
        if device.check_representable:
            _require_representable(device, work.name, result, spec)
    if len(work.outputs) > 1:
        for output in work.outputs:  # parts of one result may be windows on the same memory
            output.shared = True


def _require_representable(device: Device, name: str, values: torch.Tensor, spec: TensorSpec) -> None:
    if tuple(values.shape) != spec.shape:
        raise EmulatorError(name, f"computed a result of shape {list(values.shape)} for an output {spec!r}")
    rounded = device.round(values, spec)
    same = (values == rounded) | (values != values) & (rounded != rounded)
    if not bool(same.all()):
        raise EmulatorError(name, f"left {int((~same).sum())} values in {spec!r} that {spec.dtype.name} cannot hold")

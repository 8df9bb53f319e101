"""Trace capture and replay.

During capture nothing executes: operations are checked, their outputs get real addresses and the work is recorded.
What a captured operation returned therefore holds nothing until the first replay (it reads as NaN). Memory freed
during capture may be handed out again afterwards, and every replay then writes over it, as on silicon.
"""

from __future__ import annotations

from .configs import BufferType
from .device import Device
from .dispatch import Launch, replay
from .errors import EmulatorError
from .storage import Buffer

# Unverified: a record holds a launch command and, for each core, addresses and run-time arguments. Sized so that 600
# operations on 64 cores take 8.6 MB, which lies below the regions of 20 to 50 MB that published runtimes reserve for
# models of that depth.
BYTES_PER_OPERATION = 4096
BYTES_PER_OPERATION_AND_CORE = 160


def trace_bytes(operations: int, cores: int) -> int:
    """Estimated bytes of the trace region that a recording of `operations` on a chip of `cores` worker cores takes."""
    return operations * (BYTES_PER_OPERATION + BYTES_PER_OPERATION_AND_CORE * cores)


class Trace:
    """One recording. `externals` are buffers that it reads or writes in place and did not allocate itself."""

    def __init__(self, trace_id: int):
        self.trace_id = trace_id
        self.launches: list[Launch] = []
        self.externals: dict[int, tuple[str, Buffer]] = {}
        self.outputs: dict[int, Buffer] = {}
        self._dead_after: list[list[Buffer]] = []
        self.allocations_seen: dict[BufferType, int] = {}
        self.bytes = 0

    def add(self, work: Launch) -> None:
        for buffer in work.inputs:
            if id(buffer) not in self.outputs:
                self.externals[id(buffer)] = (work.name, buffer)
        for buffer in (*work.scratch, *work.outputs):
            self.outputs[id(buffer)] = buffer
        self.launches.append(work)

    def own(self, buffer: Buffer) -> None:
        """Memory that was asked for in the recording is its own, as the results of operations are."""
        self.outputs[id(buffer)] = buffer

    def finish(self, device: Device) -> None:
        """Note when each result is last used, so that a replay keeps no more of them than the device would."""
        last_use = {}
        for index, work in enumerate(self.launches):
            for buffer in (*work.inputs, *work.scratch, *work.outputs):
                last_use[id(buffer)] = index
        self._dead_after = [[] for _ in self.launches]
        for key, buffer in self.outputs.items():
            if key in last_use:
                self._dead_after[last_use[key]].append(buffer)
        self.allocations_seen = {kind: device.allocator(kind).allocations for kind in BufferType}

    def run(self, device: Device) -> None:
        for work, dead in zip(self.launches, self._dead_after):
            replay(device, work)
            for buffer in dead:
                if not buffer.allocated:
                    buffer.values = None

    def destroy_overlapped(self, device: Device) -> int:
        """Spoil every live tensor on memory that the recording uses as scratch.

        Returns how many of them are lost: an output of another trace is written again by its own replay.
        """
        destroyed = 0
        rewritten = {key for trace in device.traces.values() for key in trace.outputs}
        for kind in BufferType:
            allocator = device.allocator(kind)
            if allocator.allocations == self.allocations_seen[kind]:
                continue  # nothing was allocated since the capture, so nothing can lie on the scratch
            scratch = [
                (buffer.address, buffer.address + buffer.bytes)
                for buffer in self.outputs.values()
                if not buffer.allocated and buffer.spec.memory_config.buffer_type is kind
            ]
            for address, size, buffer in allocator.live():
                if id(buffer) in self.outputs or id(buffer) in self.externals:
                    continue
                if any(address < end and start < address + size for start, end in scratch):
                    buffer.poison()
                    destroyed += id(buffer) not in rewritten
        return destroyed


def begin_trace_capture(mesh_device: Device, *, cq_id: int | None = None) -> int:
    mesh_device.enter("begin_trace_capture")
    if mesh_device.recording is not None:
        raise EmulatorError("begin_trace_capture", f"trace {mesh_device.recording.trace_id} is being captured")
    _refuse_late_allocation(mesh_device)
    mesh_device.trace_count += 1
    mesh_device.recording = Trace(mesh_device.trace_count)
    return mesh_device.recording.trace_id


def end_trace_capture(mesh_device: Device, trace_id: int, *, cq_id: int | None = None) -> None:
    """Close the recording. One that does not fit the trace region is refused and dropped."""
    mesh_device.enter("end_trace_capture")
    trace = mesh_device.recording
    if trace is None or trace.trace_id != trace_id:
        raise EmulatorError("end_trace_capture", f"trace {trace_id} is not being captured")
    mesh_device.recording = None
    columns, rows = mesh_device.board.grid
    trace.bytes = trace_bytes(len(trace.launches), columns * rows)
    held = sum(other.bytes for other in mesh_device.traces.values())
    if held + trace.bytes > mesh_device.trace_region_size:
        _forget_when_last(mesh_device)
        raise EmulatorError(
            "end_trace_capture",
            f"a trace of {len(trace.launches)} operations needs about {trace.bytes} B beside the {held} B of other "
            f"traces, but the trace region has {mesh_device.trace_region_size} B; open the device with a larger "
            "trace_region_size",
        )
    trace.finish(mesh_device)
    mesh_device.traces[trace_id] = trace


def execute_trace(mesh_device: Device, trace_id: int, *, cq_id: int | None = None, blocking: bool = True) -> None:
    """Replay onto the captured addresses. Refused when a tensor that the recording reads is gone."""
    mesh_device.enter("execute_trace")
    if mesh_device.recording is not None:
        raise EmulatorError("execute_trace", f"trace {mesh_device.recording.trace_id} is being captured")
    trace = _trace(mesh_device, "execute_trace", trace_id)
    for name, buffer in trace.externals.values():
        if not buffer.allocated:
            raise EmulatorError(
                "execute_trace",
                f"trace {trace_id} uses the tensor {buffer.spec!r} at address {buffer.address} in {name}, which was "
                "freed after the capture; keep the inputs of a trace until it is released",
            )
    _settle_transients(mesh_device)
    mesh_device.counters.destroyed_tensors += trace.destroy_overlapped(mesh_device)
    trace.run(mesh_device)
    mesh_device.counters.replays += 1


def release_trace(mesh_device: Device, trace_id: int) -> None:
    mesh_device.enter("release_trace")
    _trace(mesh_device, "release_trace", trace_id)
    del mesh_device.traces[trace_id]
    _forget_when_last(mesh_device)


def _refuse_late_allocation(device: Device) -> None:
    """What is allocated between two captures may lie on the scratch of the first, whose replays would write over it."""
    late = device.trace_memory.first_outside
    if device.strict_traces and late is not None:
        raise EmulatorError(
            "begin_trace_capture",
            f"{late.describe(device.counters.operations, device.counters.replays)}, came after the first capture; "
            "allocate the inputs and workspaces of all traces, and run their programs, before the first one is "
            "captured, or release the traces",
        )


def _settle_transients(device: Device) -> None:
    """Refuse a replay while a tensor made since the first capture is wanted; let one that was read lose its values."""
    if not device.strict_traces:
        return
    outside = device.trace_memory.outside(device.traces)
    wanted = [allocation for allocation in outside if not allocation.read]
    if wanted:
        raise EmulatorError(
            "execute_trace",
            f"{wanted[0].describe(device.counters.operations, device.counters.replays)}, is still held and was not "
            f"read, and a replay may write over it ({len(wanted)} such tensors in all); read or free it before, or "
            "allocate it before the first capture",
        )
    for allocation in outside:
        allocation.buffer.poison()


def _forget_when_last(device: Device) -> None:
    if not device.tracing:
        device.trace_memory.clear()


def _trace(device: Device, operation: str, trace_id: int) -> Trace:
    trace = device.traces.get(trace_id)
    if trace is None:
        raise EmulatorError(
            operation, f"no trace {trace_id}; captured and not released: {sorted(device.traces) or 'none'}"
        )
    return trace

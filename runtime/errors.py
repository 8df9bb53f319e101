"""Every refusal of the runtime: one class for each kind, all under `PrefillError`.

A refusal is raised before anything is written or allocated on the device. Its message carries the numbers that were
compared, the rule, and what to do next.
"""

from __future__ import annotations

from typing import NamedTuple


class PrefillError(Exception):
    """Base of everything that the runtime refuses."""


# --- modules, devices, weights ---------------------------------------------------------------------------------------


class ModuleError(PrefillError):
    """An emitted module lacks a section, or its tables contradict each other."""


class DeviceMismatch(PrefillError):
    """The module was built for another board, or its weights and stores do not belong together."""


class BackendUnavailable(PrefillError):
    """What a process was to run on is not there: no library is installed, or its device is taken, missing or another."""


class WeightError(PrefillError):
    """A checkpoint tensor is missing, superfluous, misshapen, unreadable or not finite."""


# --- requests --------------------------------------------------------------------------------------------------------


class RequestError(PrefillError):
    """The arguments of a call do not fit together, whatever its rows hold."""


class UnknownSampling(RequestError):
    """The sampling path is not one that the module computes."""


class UnknownMode(RequestError):
    """A named mode is none of those that exist."""


class OutputMismatch(RequestError):
    """The caller's output buffer has another size or element type than the result."""


class RowError(PrefillError):
    """One row cannot be served. `row` is its index in the call; `servable` are the rows that alone would have been
    served.
    """

    def __init__(self, row: int, message: str, servable: tuple[int, ...] = ()) -> None:
        super().__init__(row, message, servable)
        self.row = row
        self.message = message
        self.servable = servable

    def __str__(self) -> str:
        others = f"; servable rows of this call: {', '.join(map(str, self.servable))}" if self.servable else ""
        return f"row {self.row}: {self.message}{others}"


class InvalidLength(RowError):
    """The prompt is empty or longer than the tokens given for it."""


class ContextExceeded(RowError):
    """The prompt is longer than the context that the module was built for."""


class InvalidStart(RowError):
    """The cached length is negative, past the prompt, or inside a key-value block."""


class InvalidToken(RowError):
    """A token id is outside the vocabulary."""


class InvalidSlot(RowError):
    """A slot is out of range or named twice."""


class InvalidSampling(RowError):
    """A sampling parameter is out of range, or the row has none where others do."""


class CapacityExceeded(RowError):
    """The prompt needs more key-value blocks than its page table or the store holds."""


class InvalidPage(RowError):
    """A page-table entry within the prompt is not a block of the store."""


class SharedBlock(RowError):
    """A block that this row would write also belongs to another position or row of the call."""


class NoShape(RowError):
    """The module's tables hold no pass for this row."""


class InvalidSlice(RowError):
    """A slice of a prompt is empty or ends inside a key-value block, where the next one could not start."""


class SliceOrder(RowError):
    """A slice does not start where the last committed one of its slot ended."""


class RotarySwitch(RowError):
    """A slice takes its prompt past the length from which on all keys are turned otherwise than those in place."""


class DirtySlot(RowError):
    """An earlier slice of this slot failed half way; `reset(slot)` forgets the sequence."""


class StatePosition(RowError):
    """A row does not start where its slot holds recurrent state, or no longer begins where its plan says."""


class InvalidBoundary(RowError):
    """A position whose recurrent state is to be kept is no multiple of the module's alignment."""


# --- recurrent state -------------------------------------------------------------------------------------------------


class StateSlotError(PrefillError):
    """A slot of recurrent state is out of range, holds none, or none is free."""


class SnapshotMismatch(PrefillError):
    """A snapshot is not whole, or is of a module with other recurrent layers."""


class NoBatchedRecurrence(PrefillError):
    """The module has no recurrence for so many rows at once; the rows are to be run one by one."""


# --- running ---------------------------------------------------------------------------------------------------------


class NotCompiled(PrefillError):
    """A program is not compiled where traces are, or are about to be, captured."""


class RegistrationError(PrefillError):
    """A trace or program cannot be registered now, or its identity stands for another already."""


class TraceRegionTooSmall(PrefillError):
    """The traces of the module are estimated to need more bytes than the device's trace region has."""


class TraceCoverage(PrefillError):
    """A traced run was asked for and a shape of it has no trace."""


class UnreadResult(PrefillError):
    """A result is still on the device, where the next replay or capture could write over it."""


class LayerKindMismatch(PrefillError):
    """A phase was called for a layer of another kind than it is made for."""


class PhaseOrder(PrefillError):
    """A phase was given something else than what the phase before it gives."""


class PhaseFailed(PrefillError):
    """A phase failed while the device was waited for after each; the message names it and the tokens of the pass."""


class ReentrantCall(PrefillError):
    """A call was made while another run is still open."""


class CollectError(PrefillError):
    """The results handed to `collect` do not belong to one call."""


class CleanupRequired(PrefillError):
    """A device tensor could not be released earlier: `cleanup()` must retry before new work."""


class CleanupFailed(PrefillError):
    """`cleanup()` could not release every orphan; `failures` holds the errors in order."""

    def __init__(self, message: str, failures: tuple[BaseException, ...]) -> None:
        super().__init__(message)
        self.failures = failures


class Row(NamedTuple):
    """One line of the table of errors."""

    name: str
    base: str
    meaning: str


def table(base: type[PrefillError] = PrefillError) -> tuple[Row, ...]:
    """Every error that a caller may meet, bases before what derives from them, with the first sentence of its
    description.
    """
    text = " ".join((base.__doc__ or "").split())
    sentence = text[: text.find(". ") + 1] if ". " in text else text
    rows = [Row(base.__name__, base.__base__.__name__, sentence)]
    for derived in base.__subclasses__():
        rows += table(derived)
    return tuple(rows)

"""Host values on their way to the device: fresh tensors for an eager pass, refreshed in place for a trace."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from runtime.backend import ttnn
from runtime.errors import ModuleError
from runtime.request import PrefillChunk, PreparedPrefill
from runtime.resources import Scope
from runtime.stats import Stats
from runtime.tables import Input, Shape
from runtime.values import HostValues

ALWAYS, CHANGED, NEVER = "always", "changed", "never"


class Persistent:
    """Device tensors that keep their addresses while traces live, by name in `tensors`, and what each of them holds.

    None stands for contents that are not known, as after a copy that failed.
    """

    def __init__(self, entries: tuple[Input, ...], tensors: SimpleNamespace, held: Mapping[str, torch.Tensor]) -> None:
        self.entries = entries
        self.tensors = tensors
        self.held: dict[str, torch.Tensor | None] = dict(held)


class Stager:
    """The only way in which host values reach the device. Every copy is counted."""

    def __init__(self, module: ModuleType, device: Any, stats: Stats) -> None:
        self._device = device
        self._stats = stats
        self._values = HostValues(module)

    def values(self, prepared: PreparedPrefill, chunk: PrefillChunk) -> dict[str, torch.Tensor]:
        """Every input of a pass on the host."""
        return {entry.name: self._values.value(entry, prepared, chunk) for entry in self._values.inputs(chunk.shape)}

    def stage(self, prepared: PreparedPrefill, chunk: PrefillChunk, scope: Scope) -> SimpleNamespace:
        """All inputs of a pass as new tensors, each owned by `scope` as soon as it exists."""
        return self.upload(self._values.inputs(chunk.shape), self.values(prepared, chunk), scope)

    def upload(self, entries: tuple[Input, ...], values: Mapping[str, torch.Tensor], scope: Scope) -> SimpleNamespace:
        """New device tensors: row-major, interleaved over DRAM."""
        return SimpleNamespace(**{entry.name: scope.own(self._upload(entry, values[entry.name])) for entry in entries})

    def keep(self, entries: tuple[Input, ...], values: Mapping[str, torch.Tensor], scope: Scope) -> Persistent:
        """New tensors that `refresh` may write again. They hold `values`, so that they are legal to read at once."""
        return Persistent(entries, self.upload(entries, values, scope), values)

    def keep_pass(self, prepared: PreparedPrefill, chunk: PrefillChunk, scope: Scope) -> Persistent:
        """The persistent inputs of one trace."""
        return self.keep(self._values.inputs(chunk.shape), self.values(prepared, chunk), scope)

    def refresh(self, persistent: Persistent, values: Mapping[str, torch.Tensor]) -> None:
        """Copy in place what the module says must be copied: always, or where the value changed. Allocates nothing.

        Raises ModuleError, before anything is copied, where names or shapes are not those that were kept.
        """
        expected = {entry.name: entry.shape for entry in persistent.entries}
        found = {name: tuple(value.shape) for name, value in values.items()}
        if found != expected:
            raise ModuleError(f"a trace was captured over the inputs {expected} and is refreshed with {found}")
        for entry in persistent.entries:
            if entry.refresh == NEVER:
                continue
            value, held = values[entry.name], persistent.held[entry.name]
            if entry.refresh == CHANGED and held is not None and torch.equal(held, value):
                continue
            persistent.held[entry.name] = None
            host = ttnn.from_torch(value, dtype=entry.dtype, layout=ttnn.ROW_MAJOR_LAYOUT)
            ttnn.copy_host_to_device_tensor(host, getattr(persistent.tensors, entry.name))
            persistent.held[entry.name] = value
            self._count(entry, value)

    def refresh_pass(self, persistent: Persistent, prepared: PreparedPrefill, chunk: PrefillChunk) -> None:
        self.refresh(persistent, self.values(prepared, chunk))

    def blank(self, shape: Shape) -> tuple[PreparedPrefill, PrefillChunk]:
        """A plan of `shape` that writes nothing to a cache and reads block 0: to compile, to prime, to allocate by."""
        return self._values.blank(shape)

    def _upload(self, entry: Input, value: torch.Tensor) -> Any:
        tensor = ttnn.from_torch(
            value,
            dtype=entry.dtype,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=self._device,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
        )
        self._count(entry, value)
        return tensor

    def _count(self, entry: Input, value: torch.Tensor) -> None:
        self._stats.uploaded(value.numel() * (2 if entry.dtype == ttnn.bfloat16 else 4))

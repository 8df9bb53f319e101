"""The facade: what a serving engine or a script calls to have prompts prefilled.

One `Prefill` belongs to one device and one thread. It borrows weights and stores and never frees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from runtime.admission import Admission
from runtime.eager import run_eager
from runtime.errors import DeviceMismatch, NotCaptured, ReentrantCall
from runtime.load import check_device, check_module
from runtime.planner import Planner
from runtime.postprocess import sampling_path
from runtime.request import InvocationResult, PreparedPrefill
from runtime.resources import Ownership, forget_frames
from runtime.results import Collected, check_output, collect
from runtime.slices import SliceCursors
from runtime.staging import HostValues


class Prefill:
    """Plans calls, runs them and collects their results.

    module: an emitted module. device: an open device of its board. weights, stores: what `runtime.weights.load_weights`
    and `runtime.stores.allocate` return, of equally many layers. Raises ModuleError or DeviceMismatch.
    """

    def __init__(self, module: ModuleType, device: Any, weights: SimpleNamespace, stores: SimpleNamespace) -> None:
        check_module(module)
        check_device(module, device)
        for store in module.STORES:
            tensors = getattr(stores, store.name, ())
            if len(tensors) != len(weights.layers):
                raise DeviceMismatch(
                    f"weights have {len(weights.layers)} layers and the store {store.name} has {len(tensors)}; "
                    f"allocate it for as many"
                )
        self._module = module
        self._device = device
        self._weights = weights
        self._stores = stores
        self._cursors = SliceCursors()
        self._admission = Admission(module, self._cursors)
        self._planner = Planner(module)
        self._values = HostValues(module)
        self._ownership = Ownership()
        self._running = False

    @property
    def orphans(self) -> int:
        """Device tensors that could not be released; `cleanup()` retries them."""
        return self._ownership.orphans

    def prepare(
        self,
        tokens: Any,
        page_table: Any,
        prompt_lens: Any,
        start_pos: Any = None,
        slots: Any = None,
        sampling: str | None = None,
        final: bool | Sequence[bool] = True,
    ) -> tuple[PreparedPrefill, ...]:
        """Plan a call. Nothing on the device is touched, and the plan keeps copies, so the arguments may be reused at
        once.

        tokens: ids [rows, width], each row a whole prompt from position 0 (what lies past its length is not read).
        page_table: blocks [rows, at least ceil(length / BLOCK_SIZE)]. prompt_lens: tokens of each prompt. start_pos:
        tokens of each that are in the cache already, multiples of BLOCK_SIZE. slots: the sequence each row belongs to,
        by default its index. sampling: None for logits, or a name in the module's SAMPLING. final: False for a slice of
        a prompt that the caller cuts itself: prompt_lens is then the slice's end, and no result is computed.

        Raises RequestError, or a RowError that names the row, the numbers and the rows that could be served.
        """
        self._ownership.require_clean()
        path = sampling_path(self._module, sampling)
        return self._planner.plan(self._admission.rows(tokens, page_table, prompt_lens, start_pos, slots, final), path)

    def run(self, prepared: Iterable[PreparedPrefill], traced: bool = False) -> Iterator[InvocationResult]:
        """Run plans in order. Each result is yielded as soon as it is dispatched and belongs to the caller from then
        on.

        Plans run as the iterator is advanced; until it is exhausted or closed no other run may begin. On an error
        everything acquired is released and the device's own error is raised, with `cleanup_failures` attached.
        """
        plans = tuple(prepared)
        if traced:
            shapes = sorted(
                {f"{c.shape.variant} {c.shape.rows} x {c.shape.tokens}" for plan in plans for c in plan.chunks}
            )
            raise NotCaptured(f"no trace is captured for {', '.join(shapes)}; run with traced=False")
        return self._run(plans)

    def collect(self, results: Iterable[InvocationResult]) -> Collected:
        """Read results in turn, release each, and return them in the caller's row order.

        One tensor if every row has a value: logits float32 [rows, VOCABULARY] or token ids int64 [rows]. Otherwise a
        tuple with one entry for each row, None where the prompt is not finished.
        """
        return collect(results, self._ownership)

    def prefill_forward(
        self,
        tokens: Any,
        page_table: Any,
        prompt_lens: Any,
        start_pos: Any = None,
        slots: Any = None,
        sampling: str | None = None,
        final: bool | Sequence[bool] = True,
        out: torch.Tensor | None = None,
    ) -> Collected:
        """`prepare`, `run` and `collect` in one call. `out`, if given, takes the result: float32 [rows, VOCABULARY] or
        int64 [rows].
        """
        prepared = self.prepare(tokens, page_table, prompt_lens, start_pos, slots, sampling, final)
        if out is not None:
            rows = sum(len(plan.requests) for plan in prepared)
            check_output(out, rows, self._module.VOCABULARY, prepared[0].sampling)
        return collect(self.run(prepared), self._ownership, out)

    def reset(self, slot: int) -> None:
        """Forget how far a slot's prompt has come, also after a slice of it failed."""
        self._cursors.reset(slot)

    def cleanup(self) -> None:
        """Retry every release that failed. Does nothing the second time."""
        self._refuse_open_run()
        self._ownership.cleanup()

    def _run(self, plans: tuple[PreparedPrefill, ...]) -> Iterator[InvocationResult]:
        self._refuse_open_run()
        self._ownership.require_clean()
        self._running = True
        try:
            for plan in plans:
                yield self._invoke(plan)
        except BaseException as error:
            forget_frames(error)
            raise
        finally:
            self._running = False

    def _invoke(self, plan: PreparedPrefill) -> InvocationResult:
        self._cursors.begin(plan.requests)
        result = run_eager(self._module, self._device, self._weights, self._stores, self._values, self._ownership, plan)
        self._cursors.commit(plan.requests)
        return result

    def _refuse_open_run(self) -> None:
        if self._running:
            raise ReentrantCall("a run is still open; exhaust or close its iterator before the next call")

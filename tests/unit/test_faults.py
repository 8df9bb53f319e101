"""A fault at every device call of every kind of request: nothing leaks, the first error is the one that is seen, and the
next request is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from runtime.request import Sampling
from tests.support.twins import TRACE_REGION, Rig, narrow_module

DRAW = Sampling(100.0, 8, 0.9, seed=3, log_probabilities=True)
REQUESTS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "single": ([20], {}),
    "batched": ([64, 50], {}),
    "chunked": ([290], {}),
    "chunked wave": ([190, 180], {"start_pos": [128, 128]}),
    "sampled": ([20], {"sampling": DRAW}),
    "sampled chunks": ([190], {"sampling": DRAW}),
    "several plans": ([20, 100, 64], {"sampling": "argmax"}),
    "slice": ([256], {"final": False}),
}


class Injected(RuntimeError):
    pass


class Fault:
    """Counts device calls and fails one of them."""

    def __init__(self, device: Any, at: int | None = None) -> None:
        self.names: list[str] = []
        self.raised: Injected | None = None
        self._at = at
        device.before_operation = self

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._at:
            self.raised = Injected(f"{name} {self._at}")
            raise self.raised


@pytest.fixture(scope="module", params=["eager", "traced"])
def rig(request):
    made = Rig(module=narrow_module(), trace_region_size=TRACE_REGION)
    made.base = made.live()
    made.traced = request.param == "traced"
    prepare_traces(made)
    return made


def prepare_traces(rig):
    rig.prefill.warm_up()
    if rig.traced:
        rig.prefill.capture(decode_traces="none")


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found is None and expected is None or torch.equal(found, expected)


def forward(rig: Rig, request: str) -> Callable[[], Any]:
    lengths, options = REQUESTS[request]
    call = rig.call(lengths)

    def run():
        try:
            return rig.prefill.prefill_forward(**vars(call), **options, traced=rig.traced)
        finally:
            rig.prefill.reset(0)

    return run


@pytest.mark.parametrize("request_name", REQUESTS)
def test_s000_36_a_fault_at_any_device_call_leaks_nothing_keeps_its_error_and_is_recovered_from(
    rig, request_name, record_property
):
    run = forward(rig, request_name)
    run()
    counted = Fault(rig.device)
    expected = run()
    rig.device.before_operation = None
    live = len(rig.live())
    for index in range(len(counted.names)):
        run()  # so that the inputs which change are those of this request
        fault = Fault(rig.device, index)
        with pytest.raises(Injected) as caught:
            run()
        rig.device.before_operation = None
        assert fault.names[: index + 1] == counted.names[: index + 1]
        assert caught.value is fault.raised and caught.value.cleanup_failures == ()
        assert rig.prefill.orphans <= (fault.names[index] == "deallocate")
        if rig.prefill.orphans:
            rig.prefill.cleanup()
            assert rig.live() == rig.base, (index, fault.names[index])
            prepare_traces(rig)
        assert len(rig.live()) == live, (index, fault.names[index])
        assert same(run(), expected), (index, fault.names[index])
    assert rig.device.counters.double_frees == 0
    record_property(
        f"count of faults injected, {'traced' if rig.traced else 'eager'} {request_name}", len(counted.names)
    )
    record_property("count of faults injected", len(counted.names))

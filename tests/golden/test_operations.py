"""What the device is asked to do: by whom, how often, and that every result is one that the declared type can hold."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.twins import Rig

FAMILIES = ("llama-3.2-1b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-0.6b")
CALLS = {
    "single": ([33], [0]),
    "ragged": ([64, 50, 33], [0, 0, 0]),
    "chunked": ([500], [0]),
    "cached": ([200], [96]),
}


@pytest.fixture(scope="module", params=FAMILIES)
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(request.param, precision="declared", ragged=True)


def operations(rig: Rig, lengths: list[int], cached: list[int], sampling: str | None = None) -> list:
    with rig.device.record_operations() as log:
        rig.prefill.prefill_forward(**vars(rig.call(lengths)), start_pos=cached, sampling=sampling)
    return list(log)


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("sampling", [None, "argmax"])
def test_every_device_operation_is_called_from_the_emitted_file(rig: Rig, kind: str, sampling: str | None):
    log = operations(rig, *CALLS[kind], sampling)
    assert len(log) > 20
    assert {operation.file for operation in log} == {rig.module.__file__}


def test_the_operations_of_a_wave_do_not_depend_on_its_rows(rig: Rig):
    calls = ([64] * 2, [64] * 4, [1, 128, 33], [32] * 8, [128] * 8, [5] * 32)
    counts = {str(call): Counter(one.name for one in operations(rig, call, [0] * len(call))) for call in calls}
    assert len({tuple(sorted(count.items())) for count in counts.values()}) == 1, counts


def test_s002_23_only_the_picked_rows_reach_the_head(rig: Rig):
    *_, pick, norm, head = operations(rig, [128, 100], [0, 0])
    assert [pick.name, norm.name, head.name] == ["embedding", "rms_norm", "linear"]
    assert {one.outputs[0].shape[-2] for one in (pick, norm, head)} == {rig.module.ROW_SLOTS}
    assert head.outputs[0].shape[-1] == rig.module.VOCABULARY


@pytest.mark.parametrize("kind", CALLS)
def test_after_every_operation_each_value_is_representable_in_its_declared_type(rig: Rig, kind: str):
    rig.device.check_representable = True
    try:
        assert operations(rig, *CALLS[kind])
    finally:
        rig.device.check_representable = False

"""Counters: what each of them counts, also when a call fails."""

from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError

import pytest

from runtime.stats import PHASES, Variant
from tests.support.twins import Rig, traced_rig


@pytest.fixture
def rig():
    return Rig()


def test_s002_21_a_call_counts_passes_tokens_waves_and_chunks(rig):
    rig.prefill.prefill_forward(**vars(rig.call([300, 5, 20, 128])))
    stats = rig.prefill.stats()
    assert stats.variants == {
        "chunked": Variant(3, 0, 300, 128 + 128 + 64),
        "batched": Variant(1, 0, 25, 64),
        "single": Variant(1, 0, 128, 128),
    }
    assert (stats.calls, stats.failed, stats.tokens, stats.waves, stats.chunks) == (3, 0, 453, 1, 3)
    assert (stats.passes, stats.replays, stats.tokens_computed) == (5, 0, 512)
    assert stats.wave_layers == len(rig.weights.layers)


def test_s002_21_uploads_and_bytes_are_those_that_the_device_took(rig):
    before = rig.device.counters.uploads
    rig.prefill.prefill_forward(**vars(rig.call([300, 5])), sampling="top_k")
    stats = rig.prefill.stats()
    assert stats.uploads == rig.device.counters.uploads - before > 0
    assert stats.uploads_per_pass == stats.uploads / 4 and stats.bytes_per_pass == stats.upload_bytes / 4
    assert stats.upload_bytes == rig.device.counters.upload_bytes - uploaded_otherwise(rig)


def uploaded_otherwise(rig):
    """Bytes of weights and stores."""
    tensors = [value for value in vars(rig.weights).values() if not isinstance(value, (list, tuple))]
    tensors += [tensor for layer in rig.weights.layers for tensor in vars(layer).values()]
    tensors += [tensor for store in vars(rig.stores).values() for tensor in store]
    return sum(tensor.spec.pages * tensor.spec.page_bytes for tensor in tensors)


def test_s002_21_a_failed_call_counts_its_tokens_and_time_but_no_pass(rig):
    def fail(name):
        if name == "rms_norm":
            raise RuntimeError("injected")

    rig.device.before_operation = fail
    with pytest.raises(RuntimeError):
        rig.prefill.prefill_forward(**vars(rig.call([40])))
    stats = rig.prefill.stats()
    assert (stats.calls, stats.failed, stats.tokens, stats.passes) == (1, 1, 40, 0)
    assert stats.phases["dispatch"].entered == 1 and stats.phases["dispatch"].seconds > 0
    assert stats.phases["stage"].seconds > 0 and stats.phases["read"].entered == 0


def test_s002_21_waiting_is_told_apart_from_dispatching(rig):
    rig.prefill.prefill_forward(**vars(rig.call([40, 300])))
    stats = rig.prefill.stats()
    assert tuple(stats.phases) == PHASES and all(phase.seconds > 0 for phase in stats.phases.values())
    assert {name: phase.entered for name, phase in stats.phases.items()} == {
        "plan": 1, "stage": 4, "dispatch": 6, "read": 2
    }  # fmt: skip


def test_a_refused_call_counts_its_planning_and_nothing_else(rig):
    with pytest.raises(Exception, match="sampling"):
        rig.prefill.prepare(**vars(rig.call([4])), sampling="dice")
    stats = rig.prefill.stats()
    assert stats.phases["plan"].entered == 1 and stats.calls == 0


def test_s000_48_replays_and_what_they_copy_are_counted_and_warm_up_is_not():
    rig = traced_rig()
    assert rig.prefill.stats().uploads == rig.prefill.stats().passes == 0
    before = rig.device.counters.uploads
    rig.prefill.prefill_forward(**vars(rig.call([300])), traced=True)
    stats = rig.prefill.stats()
    assert (stats.replays, stats.variants["chunked"].replays) == (3, 3) == (rig.device.counters.replays,) * 2
    assert stats.uploads == rig.device.counters.uploads - before


def test_a_snapshot_is_frozen_and_does_not_follow_the_counters(rig):
    first = rig.prefill.stats()
    rig.prefill.prefill_forward(**vars(rig.call([40])))
    assert first.calls == 0 and first.variants == {} and rig.prefill.stats().calls == 1
    with pytest.raises(FrozenInstanceError):
        first.calls = 3


def test_each_call_logs_one_line_with_the_numbers(rig, caplog):
    with caplog.at_level(logging.INFO, logger="runtime.prefill"):
        rig.prefill.prefill_forward(**vars(rig.call([40, 300])))
    (record,) = caplog.records
    assert record.getMessage() == f"prefill: {rig.prefill.stats().line()}"
    assert (
        "2 calls (0 failed), 4 passes (0 replays), 0 waves, 3 chunks, 340 tokens as 384 (1.13x)" in record.getMessage()
    )
    assert "\n" not in record.getMessage()

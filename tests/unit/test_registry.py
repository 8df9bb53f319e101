"""Identities of programs and traces, and the states they may be added in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.errors import NotCompiled, RegistrationError, TraceCoverage
from runtime.registry import Registry, State, Trace
from runtime.tables import Shape

ONE = Shape("single", 1, 128, 4, 0, "last", "one")
TWO = Shape("batched", 2, 128, 8, 0, "last", "two")
PROGRAMS = {(shape.digest, ending) for shape in (ONE, TWO) for ending in ("logits", "argmax")}


def trace(shape):
    return Trace(shape, None, None, None)


@pytest.fixture
def registry():
    """Everything compiled, nothing captured."""
    made = Registry()
    for shape in (ONE, TWO):
        made.counted(shape, 10)
        for ending in ("logits", "argmax"):
            made.compiled(shape, ending)
    return made


def active(registry, *shapes):
    registry.begin_capture(shapes, PROGRAMS)
    for shape in shapes:
        registry.register(trace(shape))
    registry.activate()


def test_s000_41_a_trace_needs_every_program_compiled_before(registry):
    with pytest.raises(NotCompiled, match="1 of the module's programs are not compiled; call warm_up"):
        registry.begin_capture((ONE, TWO), PROGRAMS | {("one", "top_k")})
    assert registry.state is State.OPEN
    with pytest.raises(NotCompiled):
        Registry().begin_capture((ONE,), ())


def test_s000_41_nothing_is_registered_before_capture_nor_after_activation(registry):
    with pytest.raises(RegistrationError, match="single 1 x 128 cannot be registered while the registry is open"):
        registry.register(trace(ONE))
    active(registry, ONE)
    with pytest.raises(RegistrationError, match="while the registry is active"):
        registry.register(trace(TWO))
    with pytest.raises(RegistrationError, match=r"call cleanup\(\)"):
        registry.begin_capture((ONE,), PROGRAMS)


def test_s000_41_one_shape_has_one_trace_and_a_digest_one_shape(registry):
    registry.begin_capture((ONE, TWO), PROGRAMS)
    registry.register(trace(ONE))
    with pytest.raises(RegistrationError, match="single 1 x 128 has a trace already"):
        registry.register(trace(ONE))
    with pytest.raises(RegistrationError, match="the digest one stands for single 1 x 128 and for batched 2 x 128"):
        registry.register(trace(replace(TWO, digest="one")))
    assert [kept.shape for kept in registry.traces] == [ONE]


def test_s000_41_a_program_whose_digest_stands_for_another_shape_is_refused(registry):
    with pytest.raises(RegistrationError, match="the digest one stands for single 1 x 128 and for batched 2 x 128"):
        registry.compiled(replace(TWO, digest="one"), "logits")


@pytest.mark.parametrize("begun", [False, True])
def test_s000_47_an_unseen_program_may_not_compile_while_traces_are_made_or_live(registry, begun):
    registry.begin_capture((ONE, TWO), PROGRAMS)
    if not begun:
        registry.activate()
    with pytest.raises(NotCompiled, match="single 1 x 128 with top_k is not compiled and the traces are"):
        registry.compiled(ONE, "top_k")
    registry.compiled(ONE, "logits")


def test_s000_46_every_shape_without_a_trace_is_named(registry):
    with pytest.raises(TraceCoverage, match="no trace is captured for batched 2 x 128, single 1 x 128;"):
        registry.require_coverage([ONE, TWO])
    active(registry, ONE)
    registry.require_coverage([ONE])
    with pytest.raises(TraceCoverage, match="for batched 2 x 128;"):
        registry.require_coverage([ONE, TWO, ONE])


def test_s000_29_a_traces_identity_is_its_shape_alone():
    assert Shape("single", 1, 128, 4, 0, "last", "one") == ONE and hash(ONE) == hash(replace(ONE))
    assert {field for field in vars(ONE)} == {
        "variant", "rows", "tokens", "fill_pages", "read_pages", "row_selection", "digest", "microseconds"
    }  # fmt: skip


def test_a_registry_that_forgot_its_traces_is_open_again(registry):
    active(registry, ONE, TWO)
    assert [kept.shape for kept in registry.forget_traces()] == [ONE, TWO]
    assert registry.state is State.OPEN and registry.traces == () and not registry.covers(ONE)
    active(registry, ONE)
    registry.forget_programs()
    assert registry.programs == frozenset()

"""What must not matter to a module with recurrent layers: how a prompt is cut, what its neighbours, rows and slots are, what
padding holds, and what failed before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from runtime.backend import ttnn
from runtime.errors import DirtySlot
from runtime.stores import tensors
from runtime.verification.comparison import relative_error
from runtime.verification.routes import Row
from tests.support.hybrids import HYBRIDS, PARTS, SPARE, HybridBench, hybrid_bench

LENGTHS = (5, 33, 70, 100, 128, 129, 300)  # single, batched and chunked passes, full ones and padded ones
CUTS = [(64,), (128,), (192,), (256,), (64, 128), (64, 128, 192, 256), (32, 96)]
SAME = 1e-5
HUGE = 1e4
PRECISIONS = ("float32", "declared")


@pytest.fixture(params=HYBRIDS)
def family(request):
    return request.param


@pytest.fixture
def bench(family):
    return emptied(family)


def emptied(family: str, precision: str = "float32") -> HybridBench:
    made = hybrid_bench(family, precision)
    made.device.before_operation = None
    made.forget()
    return made


def in_slices(bench: HybridBench, row: Row, cuts: tuple[int, ...], end: int, slot: int) -> torch.Tensor:
    bench.prefill.reset(slot)
    for start, stop in zip((0, *cuts), cuts):
        bench.call([row], ends=[stop], starts=[start], slots=[slot], final=False)
    return bench.call([row], ends=[end], starts=[cuts[-1]], slots=[slot])[0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_prompt_in_slices_leaves_the_bits_of_one_call_in_every_state(family, precision):
    """All recurrent layers of these modules come before attention, which a chunk and a single pass sum in other orders."""
    bench = emptied(family, precision)
    for end in (256, 300):
        (row,) = bench.rows([end], seed=end)
        one = bench.whole(row, end)
        wanted = bench.held(SPARE)
        for cuts in CUTS:
            if cuts[-1] >= end:
                continue
            found = in_slices(bench, row, cuts, end, 2)
            held = bench.held(2)
            for name in PARTS:
                assert all(map(torch.equal, held[name], wanted[name])), f"{name} of {end} tokens cut at {cuts}"
            assert relative_error(found, one) <= (SAME if precision == "float32" else 0.05)


def test_slices_of_a_module_with_attention_before_its_recurrent_layers_leave_its_states():
    bench = emptied("qwen3_5-attention-first")
    (row,) = bench.rows([300], seed=1)
    one = bench.whole(row)
    wanted = bench.held(SPARE)
    for cuts in CUTS:
        assert relative_error(in_slices(bench, row, cuts, 300, 2), one) <= SAME
        held = bench.held(2)
        assert max(relative_error(*pair) for name in PARTS for pair in zip(held[name], wanted[name])) <= SAME


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_s001_14_any_order_of_rows_and_slots_gives_every_row_the_same_bits(family, precision, seed):
    bench = emptied(family, precision)
    rows = bench.rows(LENGTHS)
    logits = bench.call(rows)
    before = bench.bits(rows, range(len(rows)))
    drawn = np.random.default_rng(seed)
    order = drawn.permutation(len(rows)).tolist()
    slots = drawn.permutation(bench.module.STATE_SLOTS)[: len(rows)].tolist()
    again = bench.call([rows[index] for index in order], slots=slots)
    assert torch.equal(again, logits[order])
    assert bench.bits([rows[index] for index in order], slots) == [before[index] for index in order]


def test_s001_14_carried_states_follow_their_slots_whatever_the_order_of_rows(bench):
    """The second call of a chunked wave begins with the states of its own slots, in another order than the first."""
    rows = bench.rows([300] * 5, seed=4)
    cut = [128] * 5

    def twice(order: list[int], slots: list[int]) -> tuple[torch.Tensor, list[bytes]]:
        bench.forget()
        bench.call(rows, ends=cut, slots=slots, final=False)
        moved = [slots[index] for index in order]
        found = bench.call([rows[index] for index in order], starts=cut, slots=moved)
        back = torch.stack([found[order.index(index)] for index in range(5)])
        return back, bench.bits(rows, slots)

    logits, stored = twice([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    for order, slots in (([3, 1, 4, 0, 2], [0, 1, 2, 3, 4]), ([4, 3, 2, 1, 0], [9, 2, 11, 0, 5])):
        found, held = twice(order, slots)
        assert torch.equal(found, logits) and held == stored


def test_a_row_alone_equals_the_same_row_in_a_wave(bench):
    rows = bench.rows([90, 128, 70, 101, 66, 3, 1], seed=2)
    together = bench.call(rows)
    for slot, (row, logits) in enumerate(zip(rows, together)):
        held, cache = bench.held(slot), bench.cache(row)
        assert relative_error(bench.whole(row), logits) <= SAME
        alone = bench.held(SPARE)
        assert max(relative_error(*pair) for name in PARTS for pair in zip(alone[name], held[name])) <= SAME
        again = bench.cache(row)
        assert max(relative_error(*pair) for name in cache for pair in zip(again[name], cache[name])) <= SAME


@pytest.mark.parametrize("value", [HUGE, -HUGE])
def test_s001_26_what_padding_tokens_embed_to_changes_no_bit(family, value):
    """Experts also work on the padding that is sent to them, so that sums over more tokens at once may round otherwise."""
    bench = emptied(family)
    rows = bench.rows(LENGTHS)  # without token 0, which is what padding holds
    logits = bench.call(rows)[:, 1:]  # a tied head gives token 0 another logit
    stored = [stored_of(bench, rows, slot) for slot in range(len(rows))]
    embedding = bench.peer.tensors["model.embed_tokens.weight"].clone()
    embedding[0] = value * (-1.0) ** torch.arange(embedding.shape[1])
    other = HybridBench(family)
    other.load(dict(bench.peer.tensors) | {"model.embed_tokens.weight": embedding})
    found = other.call(rows)[:, 1:]
    again = [stored_of(other, rows, slot) for slot in range(len(rows))]
    if bench.geometry.experts is None:
        assert torch.equal(found, logits)
        assert all(torch.equal(*pair) for pairs in zip(again, stored) for pair in zip(*pairs, strict=True))
    assert relative_error(found, logits) <= SAME
    assert max(relative_error(*pair) for pairs in zip(again, stored) for pair in zip(*pairs, strict=True)) <= SAME


def stored_of(bench: HybridBench, rows: list[Row], slot: int) -> list[torch.Tensor]:
    """Keys, values, states and tails of the row in a slot."""
    parts = bench.cache(rows[slot]) | bench.held(slot)
    return [layer for layers in parts.values() for layer in layers]


def test_what_rows_of_passes_and_free_held_states_hold_changes_no_bit(bench):
    """Whatever earlier passes left there, also in rows that are now padding; the zero state alone is always read."""
    rows = bench.rows(LENGTHS)
    logits = bench.call(rows)
    before = bench.bits(rows, range(len(rows)))
    bench.forget()
    of_rows = [tensor for part in PARTS for tensor in tensors(getattr(bench.stores, part))]
    held = [tensor for one in bench.stores.slots[1:] for tensor in tensors(one)]
    for tensor in (*of_rows, *held):
        host = torch.full(tuple(tensor.shape), HUGE)
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(host, dtype=tensor.dtype, layout=tensor.layout), tensor)
    assert torch.equal(bench.call(rows), logits)
    assert bench.bits(rows, range(len(rows))) == before


CALLS = {
    "single": ([20], {}),
    "wave": ([64, 50, 3], {}),
    "chunks": ([290], {}),
    "chunked wave": ([300, 290, 280], {}),
    "slice between aligned positions": ([160], {"final": False}),
    "kept on the way": ([300], {"keep_at": 64}),
}


def neighbours(bench: HybridBench) -> tuple[list[Row], list[int], list[bytes]]:
    """Sequences in slots and blocks of their own, one of them open, and what is stored of them."""
    rows = [replace(row, pages=tuple(page + 60 for page in row.pages)) for row in contiguous(bench, [300, 100, 192])]
    slots = [8, 9, 10]
    bench.call(rows[:2], slots=slots[:2])
    bench.call(rows[2:], slots=slots[2:], final=False)
    return rows, slots, bench.bits(rows, slots)


def contiguous(bench: HybridBench, lengths: list[int]) -> list[Row]:
    """Rows with blocks 0 and on."""
    rows, at = [], 0
    for row in bench.rows(lengths, seed=11):
        rows.append(replace(row, pages=tuple(range(at, at + len(row.pages)))))
        at += len(row.pages)
    return rows


@pytest.mark.parametrize("name", CALLS)
def test_other_slots_keep_every_bit_whatever_is_called_and_whatever_fails(bench, name):
    """After a pass that fails at any of its device calls, too; then the call that failed gives what it would have given."""
    lengths, options = CALLS[name]
    others, slots, kept = neighbours(bench)
    rows = contiguous(bench, lengths)
    own = list(range(len(rows)))
    names: list[str] = []
    bench.device.before_operation = names.append
    expected = bench.call(rows, **options)
    bench.device.before_operation = None
    stored = bench.bits(rows, own)
    assert bench.bits(others, slots) == kept

    def fail_at(index: int) -> None:
        calls = iter(range(index + 1))
        bench.device.before_operation = lambda name: _raise(name) if next(calls) == index else None

    def _raise(name: str) -> None:
        bench.device.before_operation = None
        raise RuntimeError(f"injected before {name}")

    places = [index for index, name in enumerate(names) if name != "deallocate"]
    copies = [index for index in places if names[index] == "copy"]
    for index in sorted({*places[:: max(1, len(places) // 8)], *copies[:: max(1, len(copies) // 4)], places[-1]}):
        for slot in own:
            bench.prefill.reset(slot)
        fail_at(index)
        with pytest.raises(RuntimeError, match="injected"):
            bench.call(rows, **options)
        bench.device.before_operation = None
        assert bench.bits(others, slots) == kept, f"{name}: a failure before {names[index]}, call {index}"
        for row in own:
            if not options.get("final", True) and index < len(names) - 1:
                with pytest.raises(DirtySlot):
                    bench.call(rows, **options)
            bench.prefill.reset(row)
    again = bench.call(rows, **options)
    assert again == expected if isinstance(expected, tuple) else torch.equal(again, expected)
    assert bench.bits(rows, own) == stored and bench.bits(others, slots) == kept


@pytest.mark.parametrize("lengths", [(50,), (300,), (100, 70, 128), (300, 290, 257, 384, 301)])
def test_what_blocks_held_before_reaches_no_state(bench, lengths):
    """Attention of a padding token may not read what is no number either: a product with 0 would keep that in a tail."""
    rows, slots = bench.rows(lengths, seed=len(lengths)), list(range(len(lengths)))
    found = []
    for held in (0.0, float("nan")):
        bench.forget()
        bench.fill(held)
        found.append((bench.call(rows, slots=slots), bench.bits(rows, slots)))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]

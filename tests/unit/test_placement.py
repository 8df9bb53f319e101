"""Places of intermediates: laid out as the emulator's allocator does, and the quickest legal of all sixteen choices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import kinds, placement, programs
from generator.cost import Work
from generator.geometry import Resolved
from generator.kinds.rows import extent
from generator.layer import layer_steps
from generator.matmuls import Matmul, NoProgram, choose_matmul, choose_minimal_matmul, program_cycles
from generator.placement import choose_programs
from generator.programs import norm_bytes
from generator.shapes import enumerate_shapes
from generator.steps import PLACES, Step, Tensor, sizes
from generator.tiles import TILE_BYTES, tiles
from runtime.emulator.allocator import BankAllocator
from runtime.emulator.errors import EmulatorError
from tests.support.building import resolved


def l1_of_one_core(size: int) -> BankAllocator:
    return BankAllocator("L1", banks=1, bank_bytes=size, base=0, page_alignment=16, size_alignment=32, from_top=True)


class Held:
    """What the allocator refers to weakly: a buffer that somebody holds."""


class Laid:
    """Tensors in the emulator's L1 by name."""

    def __init__(self, size: int, cores: int) -> None:
        self.size, self.cores, self.allocator, self.live = size, cores, l1_of_one_core(size), {}

    def place(self, tensor: Tensor) -> None:
        page, buffer = TILE_BYTES[tensor.dtype], Held()
        share = -(-tensor.tiles // self.cores)
        address = self.allocator.allocate("test", share, page, buffer)
        self.live[tensor.name] = (address, share * page, buffer)

    def free(self, tensor: Tensor) -> None:
        if tensor.name in self.live:
            address, size, _ = self.live.pop(tensor.name)
            self.allocator.release(address, size)

    @property
    def room(self) -> int:
        lowest = self.allocator.lowest_address()
        return self.size if lowest is None else lowest


def board_of(size: int, cores: int = 1) -> SimpleNamespace:
    return SimpleNamespace(board=SimpleNamespace(cores=cores, l1_bank_bytes=size))


tensors = st.builds(
    Tensor, st.uuids().map(str), st.integers(1, 200), st.sampled_from(["bfloat16", "bfloat8_b"]), st.just("heads")
)
events = st.lists(st.tuples(st.lists(tensors, max_size=3), st.integers(0, 2**16)), min_size=1, max_size=25)


@settings(max_examples=300, deadline=None)
@given(events, st.integers(1, 12), st.integers(100_000, 1_500_000).map(lambda size: size // 32 * 32))
def test_tensors_lie_where_the_emulators_allocator_puts_them(events, cores: int, size: int) -> None:
    """Any order of writes and frees, until one does not fit: then no room is left."""
    laid, steps, rooms, alive = Laid(size, cores), [], [], []
    for written, bits in events:
        frees = tuple(tensor for number, tensor in enumerate(alive) if bits >> number % 16 & 1)
        steps.append(Step("any", (), tuple(written), frees))
        try:
            for tensor in written:
                laid.place(tensor)
        except EmulatorError:
            rooms.append(None)
            break
        rooms.append(laid.room)
        for tensor in frees:
            laid.free(tensor)
        alive = [tensor for tensor in [*alive, *written] if tensor not in frees]
    modelled = list(placement._free_below(board_of(size, cores), steps, frozenset({"heads"})))
    assert all(found < 0 if room is None else found == room for found, room in zip(modelled, rooms, strict=True))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30), st.integers(1, 60))
def test_the_highest_gap_is_the_allocators_next_address(made: list[tuple[int, bool]], pages: int) -> None:
    allocator, top, kept = l1_of_one_core(2048 * 300), 2048 * 300, []
    try:
        for count, stays in made:
            buffer = Held()
            kept.append((allocator.allocate("test", count, 2048, buffer), 2048 * count, stays, buffer))
    except EmulatorError:
        pass  # full enough
    for address, size, stays, _ in kept:
        if not stays:
            allocator.release(address, size)
    taken = [(address, size) for address, size, stays, _ in kept if stays]
    found = placement._highest_gap(taken, 2048 * pages, top)
    try:
        assert found == allocator.allocate("test", pages, 2048, Held())
    except EmulatorError:
        assert found < 0


def test_tensors_outside_the_places_take_no_room() -> None:
    tensor = Tensor("a", 4, "bfloat16", "gated")
    steps = [Step("any", (), (tensor,))]
    assert list(placement._free_below(board_of(9000), steps, frozenset({"heads"}))) == [9000]
    assert list(placement._free_below(board_of(9000), steps, frozenset({"gated"}))) == [9000 - 4 * 2048]


def test_what_an_operation_reads_beside_tensors_goes_through_dram_and_into_its_cores() -> None:
    """A table of 100 bytes, one tile in L1 and one in DRAM, on two cores; a matmul is bound by its program's cycles instead."""
    inside, outside = Tensor("a", 1, "bfloat16", "heads"), Tensor("b", 1, "bfloat16")
    step = Step("any", (inside,), (outside,), dram_bytes=100, units=2)
    assert placement.step_work(board_of(9000, 64), step, frozenset({"heads"}), {}) == Work(2148, 4196 / 2)
    assert placement.step_work(board_of(9000, 1), step, frozenset(), {}) == Work(4196, 4196)
    product = replace(step, role="down")
    assert placement.step_work(board_of(9000, 64), product, frozenset(), {"down": 7.0}) == Work(4196, cycles=7.0)
    attention = replace(step, cycles=9.0)
    assert placement.step_work(board_of(9000, 64), attention, frozenset(), {}) == Work(4196, cycles=9.0)


def seconds_of(numbers: Resolved, step: Step, inside: frozenset[str], cycles: float) -> tuple[float, float]:
    """Modelled seconds and DRAM bytes of one operation, written out."""
    rates, cores = numbers.board.rates, numbers.board.grid[0] * numbers.board.grid[1]
    dram, all_bytes = step.dram_bytes, step.dram_bytes
    for tensor in step.reads + step.writes:
        size = tensor.tiles * {"bfloat16": 2048, "bfloat8_b": 1088}[tensor.dtype]
        all_bytes += size
        dram += 0 if tensor.place in inside else size
    through_dram = dram / rates.dram_bytes_per_second
    if step.role or step.cycles:
        other = (cycles if step.role else step.cycles) / rates.clock_hertz
    else:
        other = all_bytes / min(cores, step.units) / rates.network_bytes_per_cycle / rates.clock_hertz
    return max(through_dram, other) + rates.traced_launch_seconds, dram


def room_by_role(numbers: Resolved, variants: list, inside: frozenset[str]) -> dict[str, int] | None:
    """Bytes left to each matmul by the emulator's allocator; None where a tensor or another operation does not fit."""
    cores, rooms = numbers.board.grid[0] * numbers.board.grid[1], {}
    for steps in variants:
        laid = Laid(numbers.board.l1_bank_bytes, cores)
        for step in steps:
            try:
                for tensor in step.writes:
                    if tensor.place in inside:
                        laid.place(tensor)
            except EmulatorError:
                return None
            if step.role:
                rooms[step.role] = min(laid.room, rooms.get(step.role, laid.room))
            elif step.buffer_bytes > laid.room:
                return None
            for tensor in step.frees:
                laid.free(tensor)
    return rooms


def program_of(numbers: Resolved, role, size: int, room: int, inner_block: int | None):
    sizes = (
        size,
        tiles(role.inner),
        tiles(role.output),
        numbers.board.grid,
        room,
        role.weight_dtype,
        role.output_dtype,
    )
    if role.fused:
        return choose_minimal_matmul(numbers.board.rates.core, *sizes, role.fused, role.bias_dtype)
    return choose_matmul(numbers.board.rates.core, *sizes, role.bias_dtype, inner_block)


def options(
    numbers: Resolved, size: int, inner: dict[str, int | None]
) -> Iterator[tuple[float, float, frozenset, dict]]:
    """Seconds, DRAM bytes, places and programs of every legal one of the sixteen choices."""
    shapes = [shape for shape in enumerate_shapes(numbers) if shape.token_tiles == size]
    attentions = choose_programs(numbers, enumerate_shapes(numbers)).attentions
    variants = [layer_steps(numbers, shape, attentions[shape], kind) for shape in shapes for kind in numbers.kinds]
    roles = {role.name: role for role in kinds.layer_matmuls(numbers)}
    for chosen in product((False, True), repeat=4):
        inside = frozenset(place for place, taken in zip(PLACES, chosen) if taken)
        rooms = room_by_role(numbers, variants, inside)
        if rooms is None:
            continue
        try:
            matmuls = {name: program_of(numbers, role, size, rooms[name], inner[name]) for name, role in roles.items()}
        except NoProgram:
            continue
        cycles = {
            name: program_cycles(
                numbers.board.rates.core,
                matmuls[name],
                size,
                tiles(role.inner),
                tiles(role.output),
                role.weight_dtype,
                role.fused,
            )
            for name, role in roles.items()
        }
        costs = [seconds_of(numbers, step, inside, cycles.get(step.role, 0.0)) for steps in variants for step in steps]
        yield sum(cost[0] for cost in costs), sum(cost[1] for cost in costs), inside, matmuls


def with_bank(numbers: Resolved, share: float) -> Resolved:
    """The model on a board with so much of its L1."""
    return replace(
        numbers, board=replace(numbers.board, l1_bank_bytes=int(numbers.board.l1_bank_bytes * share) // 32 * 32)
    )


def smallest_inner_blocks(numbers: Resolved, sizes: Iterable[int]) -> dict[str, int | None]:
    """Of each role, what every size can take when all of them must take the same."""
    whole = numbers.board.l1_bank_bytes
    return {
        role.name: min(program_of(numbers, role, size, whole, None).inner_block for size in sizes)
        for role in kinds.layer_matmuls(numbers)
    }


SMALL_SHARE = {"smollm2-135m": 0.4, "llama-3.1-8b": 0.95, "qwen3-0.6b": 0.5}
CASES = [
    (model, target, share, invariant)
    for model, small in SMALL_SHARE.items()
    for target, share, invariant in (("n150", 1.0, False), ("p150", small, False), ("p150", 1.0, True))
]


@pytest.mark.parametrize(("model", "target", "share", "invariant"), CASES)
def test_the_choice_is_the_quickest_of_all_sixteen_and_of_equals_the_one_that_spares_dram(
    model: str, target: str, share: float, invariant: bool
) -> None:
    numbers = replace(with_bank(resolved(model, target), share), batch_invariant=invariant)
    chosen = choose_programs(numbers, enumerate_shapes(numbers))
    roles = [role.name for role in kinds.layer_matmuls(numbers)]
    inner = smallest_inner_blocks(numbers, chosen.places) if invariant else dict.fromkeys(roles)
    for size, places in chosen.places.items():
        legal = list(options(numbers, size, inner))
        alike = [option for option in legal if option[0] <= 1.002 * min(legal, key=lambda one: one[0])[0]]
        best = min(alike, key=lambda option: (option[1], option[0]))
        assert places == best[2], (size, sorted(places), sorted(best[2]))
        assert {name: chosen.matmuls[name, size] for name in roles} == best[3], size


def test_sparing_dram_and_sparing_time_are_both_seen_to_decide() -> None:
    """Among the cases above: an option as quick was passed over for fewer bytes, and fewer bytes for time."""
    spared, quicker = 0, 0
    for model, target, share, _ in CASES[1::3]:
        numbers = with_bank(resolved(model, target), share)
        for size, places in choose_programs(numbers, enumerate_shapes(numbers)).places.items():
            legal = list(options(numbers, size, dict.fromkeys([role.name for role in kinds.layer_matmuls(numbers)])))
            spared += min(legal, key=lambda option: option[0])[2] != places
            quicker += min(legal, key=lambda option: option[1])[2] != places
    assert spared and quicker, (spared, quicker)


def test_on_a_board_with_small_l1_every_intermediate_of_a_long_pass_lies_in_dram() -> None:
    """A core that just holds the norm's buffers, and passes whose shares of any tensor are many tiles."""
    numbers = resolved("smollm2-135m", "n150")
    needed = norm_bytes(tiles(numbers.hidden))
    tight = replace(numbers, board=replace(numbers.board, l1_bank_bytes=needed))
    places = choose_programs(tight, enumerate_shapes(tight)).places
    assert places[max(places)] == frozenset()
    assert all("normed" not in inside for inside in places.values())


def test_a_board_on_which_an_operation_finds_no_room_is_refused_with_the_size() -> None:
    numbers = resolved("smollm2-135m", "n150")
    needed = norm_bytes(tiles(numbers.hidden))
    shapes = enumerate_shapes(numbers)
    with pytest.raises(NoProgram, match=r"rms_norm takes 446464 of \d+ bytes of L1 on one core for 7 tiles of tokens"):
        choose_programs(replace(numbers, board=replace(numbers.board, l1_bank_bytes=needed - 32)), shapes)
    with pytest.raises(NoProgram, match="no attention over 224 tokens of 64 fits 20000 bytes"):
        choose_programs(replace(numbers, board=replace(numbers.board, l1_bank_bytes=20000)), shapes)


@pytest.mark.parametrize(
    ("hidden", "board", "inside"), [(4608, "n150", True), (5120, "n150", False), (5376, "p150", False)]
)
def test_rows_too_wide_for_a_core_are_normed_in_blocks(hidden: int, board: str, inside: bool) -> None:
    """Sizes that the library's row-major form takes and refuses on mock devices."""
    numbers = replace(resolved("llama-3.1-8b", board), hidden=hidden)
    size = sizes(numbers, 4)
    assert programs.norms_in_blocks(numbers) is not inside
    assert size.norm_bytes == (norm_bytes(tiles(hidden)) if inside else 446464) <= numbers.board.l1_bank_bytes
    rows = [row for row in (*kinds.model_weights(numbers), *kinds.layer_weights(numbers)) if row.name.endswith("_norm")]
    assert {row.layout for row in rows} == {"ROW_MAJOR" if inside else "TILED"}
    assert {extent(row, numbers) for row in rows} == {(1, 1, hidden // 32, 32) if inside else (1, 1, 1, hidden)}


@pytest.mark.parametrize("model", ["smollm2-135m", "llama-3.1-8b"])
def test_b15_a_batch_invariant_build_has_plain_matmuls_with_equal_sums_and_still_chooses_places(model: str) -> None:
    numbers = replace(resolved(model, "p150"), batch_invariant=True)
    chosen = choose_programs(numbers, enumerate_shapes(numbers))
    assert all(isinstance(program, Matmul) for program in chosen.matmuls.values())
    for role in kinds.layer_matmuls(numbers):
        assert len({program.inner_block for (name, _), program in chosen.matmuls.items() if name == role.name}) == 1
    assert any(chosen.places.values()) and set(chosen.places) == {
        shape.token_tiles for shape in enumerate_shapes(numbers)
    }


def test_rows_of_explicit_scores_live_until_their_heads_are_joined():
    """As the emitted body frees them, so that joining finds no more room than there is."""
    numbers = resolved("gemma-2-2b", "p150")
    shapes = enumerate_shapes(numbers)
    shape = next(one for one in shapes if one.variant == "batched")
    steps = {
        step.operation: step
        for step in layer_steps(numbers, shape, choose_programs(numbers, (shape,)).attentions[shape], "full")
    }
    assert {tensor.name for tensor in steps["mixture"].frees} == {"shares"}
    assert len([tensor for tensor in steps["nlp_concat_heads"].frees if tensor.name.endswith("_rows")]) == 3

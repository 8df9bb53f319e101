"""The modelled time of a pass before it is emitted: its layers' planned operations, and what lies around the layers.

A pass has inputs that are copied to the device and a body, which a prompt's every pass runs, and a tail, which only the last one does:
the last row's norm, the head, and the likeliest token. Nothing here was measured on a board; every rate is the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from generator import kinds
from generator.cost import Work, time_of
from generator.layer import layer_steps
from generator.matmuls import program_cycles
from generator.placement import Programs, choose_programs, step_work
from generator.shapes import PassShape
from generator.tiles import TILE, TILE_BYTES, tiles
from generator.uploads import upload_seconds

if TYPE_CHECKING:
    from generator.geometry import Resolved

ATTENTION = "attention"  # the operation of a layer
INDEX_BYTES = 4  # of a token id, a position, a row that is picked


@dataclass(frozen=True)
class PassTime:
    """Modelled seconds of copying the inputs of a pass, of its body and of its tail; DRAM bytes and device operations of its body;
    `bound`: seconds of the body by what bounds an operation ("dram", "network", "compute"), launches among them.
    """

    upload: float
    body: float
    tail: float
    dram_bytes: float
    operations: int
    bound: dict[str, float]

    @property
    def seconds(self) -> float:
        return self.without_tail + self.tail

    @property
    def without_tail(self) -> float:
        """Of a pass that is not a prompt's last."""
        return self.upload + self.body


def pass_time(resolved: Resolved, programs: Programs, shape: PassShape, start: int = 0) -> PassTime:
    """Of one pass, all of whose rows begin at position `start`, which is 0 unless it is a chunk."""
    rates, size = resolved.board.rates, shape.token_tiles
    roles = {role.name: role for role in kinds.layer_matmuls(resolved)}
    cycles = {
        name: program_cycles(rates.core, programs.matmuls[name, size], *role.sides(size), role.weight_dtype, role.fused)
        for name, role in roles.items()
    }
    # Steps put a chunk in the middle of the context; nothing else in them depends on it.
    placed = replace(resolved, context=2 * start) if shape.read_pages else resolved
    seconds = dram_bytes = 0.0
    operations = 0
    bound = {"dram": 0.0, "network": 0.0, "compute": 0.0}
    for works, times in (
        (_before_layers(resolved, size), 1),
        *((_layer(placed, programs, shape, kind, cycles), resolved.layer_kinds.count(kind)) for kind in resolved.kinds),
    ):
        for work in works:
            time = time_of(work, rates)
            seconds += times * time.seconds
            bound[time.bound] += times * time.seconds
            dram_bytes += times * work.dram_bytes
            operations += times
    tail = sum(time_of(work, rates).seconds for work in _tail(resolved, programs, size))
    return PassTime(upload_seconds(resolved, shape), seconds, tail, dram_bytes, operations, bound)


def pass_times(resolved: Resolved, shapes: Iterable[PassShape]) -> dict[PassShape, PassTime]:
    """Of each pass, chunks in the middle of the context."""
    shapes = tuple(shapes)
    programs = choose_programs(resolved, shapes)
    return {
        shape: pass_time(resolved, programs, shape, resolved.context // 2 if shape.read_pages else 0)
        for shape in shapes
    }


def attention_works(resolved: Resolved, programs: Programs, shape: PassShape) -> tuple[tuple[int, Work], ...]:
    """Of a pass from the start of prompts, what queries that meet keys take in each kind of layer, and how many layers that are."""
    places = programs.places[shape.token_tiles]
    return tuple(
        (resolved.layer_kinds.count(kind), step_work(resolved, step, places, {}))
        for kind in resolved.kinds
        for step in layer_steps(resolved, shape, programs.attentions[shape], kind)
        if step.operation == ATTENTION
    )


def attention_time(resolved: Resolved, programs: Programs, shape: PassShape) -> float:
    """Modelled seconds of the same: as much for a row wherever it runs."""
    works = attention_works(resolved, programs, shape)
    return sum(layers * time_of(work, resolved.board.rates).seconds for layers, work in works)


def microseconds(resolved: Resolved, programs: Programs, shapes: Iterable[PassShape]) -> dict[PassShape, int]:
    """Of each pass that rows of any lengths may run in, without attention: what they are packed by. None where waves have equal
    rows.
    """
    if not resolved.ragged_tokens:
        return {}
    found = {}
    for shape in shapes:
        if shape.variant in ("single", "ragged"):
            rest = pass_time(resolved, programs, shape).seconds - attention_time(resolved, programs, shape)
            found[shape] = round(1e6 * rest)
    return found


def _layer(
    resolved: Resolved, programs: Programs, shape: PassShape, kind: str, cycles: dict[str, float]
) -> Iterator[Work]:
    places = programs.places[shape.token_tiles]
    for step in layer_steps(resolved, shape, programs.attentions[shape], kind):
        yield step_work(resolved, step, places, cycles)


def _gathered(resolved: Resolved, rows: int, columns: int) -> Work:
    """Rows picked out of a table: what is read is what is returned."""
    moved = rows * (2 * columns * 2 + INDEX_BYTES)  # bfloat16, in and out
    return Work(moved, moved / min(tiles(rows), resolved.board.cores))


def _before_layers(resolved: Resolved, token_tiles: int) -> Iterator[Work]:
    """The embedding, and the cosines and sines of the positions."""
    tokens = token_tiles * TILE
    yield _gathered(resolved, tokens, resolved.hidden)
    for _ in range(4 if resolved.local_rope is not None else 2):
        yield _gathered(resolved, tokens, resolved.head_dim)


def _tail(resolved: Resolved, programs: Programs, token_tiles: int) -> Iterator[Work]:
    """The last rows picked, normed and multiplied by the head, and the likeliest token of each."""
    hidden, vocabulary, cores = tiles(resolved.hidden), tiles(resolved.device_vocabulary), resolved.board.cores
    wide = TILE_BYTES["bfloat16"]
    untilized = 2 * token_tiles * hidden * wide
    yield Work(untilized, untilized / cores)
    yield _gathered(resolved, TILE, resolved.hidden)
    yield Work(2 * hidden * wide, 2 * hidden * wide)
    role = kinds.head_matmul(resolved)
    cycles = program_cycles(
        resolved.board.rates.core, programs.matmuls[role.name, 1], *role.sides(1), role.weight_dtype, role.fused
    )
    weight = hidden * vocabulary * TILE_BYTES[role.weight_dtype]
    yield Work((hidden + vocabulary) * wide + weight, cycles=cycles)
    yield Work(2 * vocabulary * wide, 2 * vocabulary * wide / cores)
    yield Work(vocabulary * wide, vocabulary * wide / cores)

"""Programs and places of a module: for every pass size, what lies in L1 and how each operation is cut, by modelled time.

Intermediates in L1 save their way through DRAM and take room from the buffers of the programs around them. All sixteen
choices of roles are tried for each number of token tiles; one is legal when every operation of every pass of that size finds
room for its buffers below the tensors that are alive, as the library's allocator lays them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from generator import kinds, programs
from generator.attentions import ATTENTION_CHUNKS, Attention, choose_attention
from generator.cost import Work, time_of
from generator.experts import MOST_EXPERTS, WHY_SO_FEW
from generator.geometry import RECURRENT, Resolved
from generator.kinds.attention_steps import chained, windows
from generator.layer import layer_steps
from generator.matmuls import (
    Matmul,
    MinimalMatmul,
    NoProgram,
    choose_matmul,
    choose_minimal_matmul,
    matmul_bytes,
    minimal_matmul_bytes,
    program_cycles,
)
from generator.programs import packs_rows
from generator.scores import Scores, choose_scores
from generator.shapes import PassShape
from generator.steps import PLACES, Step, Tensor
from generator.tiles import TILE_BYTES

Program = Matmul | MinimalMatmul
RAGGED_CHUNK = (
    128  # tokens: in a chunk that lies in two rows, the keys of one are computed for the queries of the other
)
ALIKE = 1.002  # modelled times closer than this are no reason to prefer one


@dataclass(frozen=True)
class Programs:
    """The tables of a module. `matmuls` by role and token tiles, the head's with one tile of rows; `places` by token tiles:
    which roles of PLACES lie in L1.
    """

    matmuls: Mapping[tuple[str, int], Program]
    attentions: Mapping[PassShape, Attention | Scores]
    places: Mapping[int, frozenset[str]]

    @property
    def scores(self) -> dict[int, Scores]:
        """Of a model with explicit scores, by the tokens of a row: every number of rows has the same."""
        return {shape.tokens: cut for shape, cut in self.attentions.items() if isinstance(cut, Scores)}


def choose_programs(resolved: Resolved, shapes: tuple[PassShape, ...]) -> Programs:
    """The quickest legal programs and places by the model. Raises NoProgram where a size has none.

    In a batch-invariant build all sizes of a role sum the inner dimension in the same blocks (the smallest that any of them
    would choose, which the others can take too) and a wave's attention is cut as one of its rows alone.
    """
    if resolved.experts is not None and resolved.experts.count > MOST_EXPERTS:
        raise NoProgram(
            f"{resolved.experts.count} experts are over the {MOST_EXPERTS} that are routed on a device: {WHY_SO_FEW}"
        )
    sizes = sorted({shape.token_tiles for shape in shapes})
    roles = {role.name: role for role in kinds.layer_matmuls(resolved)}
    whole = resolved.board.l1_bank_bytes
    blocks: dict[str, int | None] = dict.fromkeys(roles)
    if resolved.batch_invariant:
        blocks = {
            name: min(_choose(resolved, role, size, whole, None).inner_block for size in sizes)
            for name, role in roles.items()
        }
    attentions = {shape: _attention(resolved, shape) for shape in shapes}
    matmuls: dict[tuple[str, int], Program] = {}
    places: dict[int, frozenset[str]] = {}
    for size in sizes:
        variants = [
            layer_steps(resolved, shape, attentions[shape], kind)
            for shape in shapes
            if shape.token_tiles == size
            for kind in resolved.kinds
        ]
        best = _quickest(resolved, size, variants, roles, blocks)
        places[size] = best.places
        matmuls |= {(name, size): program for name, program in best.matmuls.items()}
    head = kinds.head_matmul(resolved)
    matmuls[head.name, 1] = _choose(resolved, head, 1, whole, None)
    order = [*roles, head.name]
    ordered = sorted(matmuls, key=lambda key: (order.index(key[0]), key[1]))
    return Programs({key: matmuls[key] for key in ordered}, attentions, places)


def _choose(
    resolved: Resolved, role: kinds.MatmulRole, token_tiles: int, room: int, inner_block: int | None
) -> Program:
    """What is best with a whole core's room, where that fits, is best with less: a search for each number of tiles serves most rooms."""
    sizes, dtypes = (*role.sides(token_tiles), resolved.board.grid), (role.weight_dtype, role.output_dtype)
    whole, rates = max(room, resolved.board.l1_bank_bytes), resolved.board.rates.core
    if role.fused:
        best = choose_minimal_matmul(rates, *sizes, whole, *dtypes, role.fused, role.bias_dtype)
        fits = minimal_matmul_bytes(best, *dtypes, role.bias_dtype, role.fused) <= room
        return best if fits else choose_minimal_matmul(rates, *sizes, room, *dtypes, role.fused, role.bias_dtype)
    best = choose_matmul(rates, *sizes, whole, *dtypes, role.bias_dtype, inner_block)
    fits = matmul_bytes(best, *dtypes, role.bias_dtype) <= room
    return best if fits else choose_matmul(rates, *sizes, room, *dtypes, role.bias_dtype, inner_block)


def _attention(resolved: Resolved, shape: PassShape) -> Attention | Scores:
    if resolved.attention_soft_cap:
        return choose_scores(
            resolved.board.rates.core,
            shape.tokens,
            resolved.device_query_heads // resolved.device_key_value_heads,
            resolved.head_dim,
            resolved.board.grid,
            resolved.board.l1_bank_bytes,
            resolved.dtypes.key_value,
            programs.heads_dtype(resolved),
        )
    bounds, hand_on = windows(resolved, shape, "full"), chained(resolved, shape, "full")
    if resolved.batch_invariant and not shape.read_pages:  # one cut, which fits both a row by itself and any wave
        bounds = max(resolved.waves) + 1 if packs_rows(resolved, "full") else 0
        hand_on = resolved.board.architecture == "blackhole"
    ragged = shape.variant == "ragged"
    return choose_attention(
        shape.rows * shape.tokens if ragged else shape.tokens,
        1 if resolved.batch_invariant or ragged else shape.rows,
        resolved.device_query_heads,
        resolved.head_dim,
        resolved.board.grid,
        resolved.board.l1_bank_bytes,
        resolved.dtypes.key_value,
        programs.heads_dtype(resolved),
        bounds,
        shape.read_pages,
        resolved.attention_chunk if shape.read_pages else None,
        hand_on,
        tuple([kind for kind in resolved.kinds if kind != RECURRENT]),
        resolved.attention_sinks,
        RAGGED_CHUNK if ragged else ATTENTION_CHUNKS[0],
    )


@dataclass(frozen=True)
class _Option:
    """One way to run all passes of a size."""

    places: frozenset[str]
    matmuls: Mapping[str, Program]
    seconds: float
    dram_bytes: float


def _quickest(
    resolved: Resolved,
    size: int,
    variants: list[tuple[Step, ...]],
    roles: Mapping[str, kinds.MatmulRole],
    blocks: Mapping[str, int | None],
) -> _Option:
    """The option with the least modelled time over the variants of one size.

    Of options as quick as the model can tell, the one that moves the fewest bytes through DRAM: other traffic shares it.
    """
    subsets = [frozenset(subset) for count in range(len(PLACES) + 1) for subset in combinations(PLACES, count)]
    costs = _Costs(resolved, variants)
    options = [
        option
        for places in subsets
        if (option := _option(resolved, size, variants, costs, roles, blocks, places)) is not None
    ]
    if not options:
        raise NoProgram(_too_large(resolved, size, variants))
    limit = ALIKE * min(option.seconds for option in options)
    return min(
        (option for option in options if option.seconds <= limit),
        key=lambda option: (option.dram_bytes, option.seconds),
    )


def _too_large(resolved: Resolved, size: int, variants: list[tuple[Step, ...]]) -> str:
    """Which operation of a layer needs more than a whole core, with the numbers."""
    room = resolved.board.l1_bank_bytes
    step = max((step for steps in variants for step in steps if not step.role), key=lambda step: step.buffer_bytes)
    return f"{step.operation} takes {step.buffer_bytes} of {room} bytes of L1 on one core for {size} tiles of tokens"


class _Costs:
    """What the operations of all variants take under some places. Most are alike in every variant, and under most places: each is
    timed once.
    """

    def __init__(self, resolved: Resolved, variants: list[tuple[Step, ...]]) -> None:
        self._resolved = resolved
        self._counts = Counter(step for steps in variants for step in steps)
        self._places = [
            frozenset(tensor.place for tensor in (*step.reads, *step.writes) if tensor.place) for step in self._counts
        ]
        self._timed: dict[tuple[int, frozenset[str], float], tuple[float, float]] = {}

    def __call__(self, places: frozenset[str], cycles: Mapping[str, float]) -> tuple[float, float]:
        """Seconds and DRAM bytes; `cycles` are those of the matmuls, by role."""
        seconds = dram_bytes = 0.0
        for index, (step, count) in enumerate(self._counts.items()):
            key = (index, places & self._places[index], cycles.get(step.role, 0.0))
            timed = self._timed.get(key)
            if timed is None:
                work = step_work(self._resolved, step, places, cycles)
                timed = self._timed[key] = (time_of(work, self._resolved.board.rates).seconds, work.dram_bytes)
            seconds += count * timed[0]
            dram_bytes += count * timed[1]
        return seconds, dram_bytes


def _option(
    resolved: Resolved,
    size: int,
    variants: list[tuple[Step, ...]],
    costs: _Costs,
    roles: Mapping[str, kinds.MatmulRole],
    blocks: Mapping[str, int | None],
    places: frozenset[str],
) -> _Option | None:
    """The programs that fit beside these places and what they cost; None where one does not fit."""
    room = _rooms(resolved, variants, places)
    if room is None:
        return None
    try:
        chosen = {name: _choose(resolved, role, size, room[name], blocks[name]) for name, role in roles.items()}
    except NoProgram:
        if not places:
            raise
        return None
    cycles = {
        name: program_cycles(resolved.board.rates.core, chosen[name], *role.sides(size), role.weight_dtype, role.fused)
        for name, role in roles.items()
    }
    return _Option(places, chosen, *costs(places, cycles))


def _rooms(resolved: Resolved, variants: list[tuple[Step, ...]], places: frozenset[str]) -> dict[str, int] | None:
    """The least room that each matmul role finds for its buffers; None where another operation's do not fit."""
    rooms: dict[str, int] = {}
    for steps in variants:
        for step, room in zip(steps, _free_below(resolved, steps, places)):
            if step.role:
                rooms[step.role] = min(room, rooms.get(step.role, room))
            elif step.buffer_bytes > room:
                return None
    return rooms


def _free_below(resolved: Resolved, steps: Iterable[Step], places: frozenset[str]) -> Iterator[int]:
    """Bytes of one core below the lowest live tensor while each operation runs.

    Tensors are laid as the library does: into the highest gap that holds them.
    """
    top = resolved.board.l1_bank_bytes
    live: dict[str, tuple[int, int]] = {}  # name -> first byte and size
    for step in steps:
        for tensor in step.writes:
            if tensor.place in places:
                share = -(-tensor.tiles // resolved.board.cores) * TILE_BYTES[tensor.dtype]
                live[tensor.name] = (_highest_gap(live.values(), share, top), share)
        yield min((start for start, _ in live.values()), default=top)
        for tensor in step.frees:
            live.pop(tensor.name, None)


def _highest_gap(taken: Iterable[tuple[int, int]], share: int, top: int) -> int:
    end = top
    for start, size in sorted(taken, reverse=True):
        if end - (start + size) >= share:
            break
        end = start
    return end - share


def step_work(resolved: Resolved, step: Step, places: frozenset[str], cycles: Mapping[str, float]) -> Work:
    """What an operation moves and computes under some places; `cycles` are those of the matmuls, by role."""

    def in_dram(tensor: Tensor) -> bool:
        return tensor.place not in places

    operands = (*step.reads, *step.writes)
    dram_bytes = step.dram_bytes + sum(tensor.bytes for tensor in operands if in_dram(tensor))
    if step.role:
        return Work(dram_bytes, cycles=cycles[step.role])
    cores = min(step.units, resolved.board.cores)
    moved = step.dram_bytes + sum(tensor.bytes for tensor in operands)
    return Work(dram_bytes, 0.0 if step.cycles else moved / cores, step.cycles)

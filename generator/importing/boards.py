"""The table of a board for a model: storage dtypes, context, cache and passes, chosen by what the board's memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from generator import geometry, manifest, memory
from generator.choosing.default import choose_default
from generator.geometry import GIB, BoardTooSmall, Resolved
from generator.matmuls import NoProgram
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from generator.targets import Board
from generator.toml_source import Source

SHORTEST_CONTEXT = 128
CHUNKS = (128, 256, 512, 1024, 2048)  # of a prompt, the longest that fits its context
ONE_PASS = (4096, 8192)  # longer ones of a model whose prompts run in one pass
ALL_CHUNKS = CHUNKS + ONE_PASS
WAVES = (1, 2, 4, 8, 16, 32)
SHORTEST_ROW = 128  # tokens a row in the largest wave
MOST_WAVE_TOKENS = 8192
BLOCK, ATTENTION_CHUNK = 32, 128
LONGEST_CONTEXT = 131072
CONTEXT_BESIDE_SLOTS = 8192  # tokens that are worth more than twice the sequences with a recurrent state
SENSIBLE_CONTEXT = 32768  # tokens; less is no reason to keep the layers' weights in bfloat16
ROWS, CONTEXTS = (
    32,
    2,
)  # the cache holds a full pass of rows of prefill_chunk tokens, or so many whole contexts, where it can
STATE_SLOTS = (8, 4, 2, 1)  # sequences whose recurrent state is held, and so the most rows of a pass of such a model
FREE_SHARE = 32  # this part of the DRAM stays free: what a pass takes is an estimate
PASS_SHARE = 12  # what passes take may be this part of the DRAM
WIDE, NARROW = "bfloat16", "bfloat8_b"
STATE = "float32"  # what is carried from token to token keeps its rounding
NARROWEST = "bfloat4_b"  # of all weights, at a loss of precision that nobody should come by unasked; of experts, where it must be
WEIGHTS = ((WIDE, None), (NARROW, None))
WEIGHTS_AND_EXPERTS = ((WIDE, WIDE), (NARROW, NARROW), (NARROW, NARROWEST))
HEAD_AND_CACHE = ((WIDE, WIDE), (NARROW, WIDE), (NARROW, NARROW))


@dataclass(frozen=True)
class Chosen:
    """A [target.NAME] table as plain data, with what is said about its keys (`dtypes` among them) and about the whole."""

    target: str
    table: dict[str, Any]
    notes: Mapping[str, str]
    summary: str


@dataclass(frozen=True)
class Misfit:
    """Why a model does not run on a board, with the numbers, and what would."""

    target: str
    rule: str
    hint: str


@dataclass(frozen=True)
class Fitted:
    """Numbers that fit a board, and what is said about those that were chosen."""

    resolved: Resolved
    notes: Mapping[str, str]


def choose(data: Mapping[str, Any], board: Board) -> Chosen | Misfit:
    """The table for a board, given the rest of a manifest as plain data.

    Raises ManifestError where that rest breaks a rule of manifests, with the manifest's keys.
    """
    maximum, outcome = data["model"]["maximum_context"], None
    fitting = [chunk for chunk in CHUNKS if chunk <= maximum] or [SHORTEST_CONTEXT]
    if not data["model"].get("attention_soft_cap"):
        return _choose(data, board, maximum, fitting[-1])
    fitting += [chunk for chunk in ONE_PASS if chunk <= maximum]
    while fitting and not isinstance(outcome, Chosen):
        chunk = fitting.pop()
        outcome = _choose(data, board, chunk, chunk)
    if isinstance(outcome, Chosen):
        note = "one pass, prefill_chunk: attention over the caches takes no soft cap"
        return replace(outcome, notes={**outcome.notes, "context": note})
    return outcome


def _choose(data: Mapping[str, Any], board: Board, maximum: int, chunk: int) -> Chosen | Misfit:
    """The same with this chunk and a context of at most `maximum` tokens."""
    table = _table(chunk, "gated_delta_net" in data["model"])
    try:
        resolved = _resolved(data, board, table)
    except BoardTooSmall as error:
        return Misfit(board.name, f"is too small: {error.diagnostics[0].rule}", error.diagnostics[0].hint)
    if maximum < SHORTEST_CONTEXT:
        return Misfit(
            board.name, f"takes prompts from {SHORTEST_CONTEXT} tokens on, over maximum_context {maximum}", ""
        )
    missing = None
    for resolved in _with_slots(resolved):
        for weights, experts in WEIGHTS if resolved.experts is None else WEIGHTS_AND_EXPERTS:
            for wave_tokens in _wave_tokens(resolved, board):
                dtypes = replace(resolved.dtypes, experts=experts)
                waves = _waves(resolved, board, wave_tokens)
                here = replace(resolved, dtypes=dtypes, wave_tokens=wave_tokens, waves=waves)
                found = _fitted(here, board, weights, maximum)
                if found is None or _too_short(found.resolved, maximum):
                    continue
                if (missing := _without_program(found.resolved)) is None:
                    return _chosen(data, board, _with_lengths(data, board, found, maximum))
    if missing is not None:
        return Misfit(board.name, f"is too small: {missing}", "no model of these sizes runs on such a board")
    return _misfit(replace(resolved, waves=_waves(resolved, board, resolved.prefill_chunk)), board)


def _table(chunk: int, recurrent: bool) -> dict[str, Any]:
    """The smallest table: one context of one chunk, one row at a time. Its lengths stand for those that are chosen once the rest is."""
    return {
        "context": chunk,
        "block_size": BLOCK,
        "key_value_blocks": chunk // BLOCK,
        "lengths": [length for length in ALL_CHUNKS if length <= chunk],
        "waves": [1],
        "wave_tokens": chunk,
        "prefill_chunk": chunk,
        "attention_chunk": ATTENTION_CHUNK,
        **({"state_slots": STATE_SLOTS[0]} if recurrent else {}),
        "dtypes": _dtypes(NARROW, NARROW, NARROW) | ({"state": STATE} if recurrent else {}),
    }


def _dtypes(weights: str, head: str, key_value: str) -> dict[str, str]:
    return {"weights": weights, "embedding": WIDE, "head": head, "key_value": key_value, "activation": WIDE}


def _resolved(data: Mapping[str, Any], board: Board, table: Mapping[str, Any]) -> Resolved:
    """The numbers of a table whether or not they fit: on the same board with boundless memory."""
    short = {**table, "context": min(table["context"], max(BLOCK, data["model"]["maximum_context"] // BLOCK * BLOCK))}
    if short["context"] < table["context"]:  # refused by the caller, once the rest of the manifest is known to be sound
        chunk = short["context"]
        short |= {"lengths": [chunk], "wave_tokens": chunk, "prefill_chunk": chunk, "attention_chunk": BLOCK}
    return _boundless(data, board, short)


def _boundless(data: Mapping[str, Any], board: Board, table: Mapping[str, Any]) -> Resolved:
    file = manifest.check({**data, "target": {board.name: dict(table)}}, "", Source((), {}), (board.name,))
    return geometry.resolve(file, replace(board, dram_bank_bytes=2**50))


def _with_slots(resolved: Resolved) -> Iterator[Resolved]:
    """With the slots of recurrent states that are wanted, down to one; itself where the model has none."""
    for slots in STATE_SLOTS if resolved.state_slots else (0,):
        yield replace(resolved, state_slots=slots)


def _too_short(resolved: Resolved, maximum: int) -> bool:
    """Whether fewer state slots should make room for a longer context."""
    return resolved.state_slots > STATE_SLOTS[-1] and resolved.context < min(maximum, CONTEXT_BESIDE_SLOTS)


def _waves(resolved: Resolved, board: Board, wave_tokens: int) -> tuple[int, ...]:
    most = min(board.maximum_wave, resolved.state_slots or board.maximum_wave)  # each row has a slot of its own
    return tuple(wave for wave in WAVES if wave <= most and wave * SHORTEST_ROW <= wave_tokens)


def _capacity(board: Board) -> int:
    return board.dram_banks * board.dram_bank_bytes


def _wave_tokens(resolved: Resolved, board: Board) -> Iterator[int]:
    """Tokens of the largest pass, from the most whose tensors take a fitting part of the memory, down to one chunk."""
    tokens, taken = max(MOST_WAVE_TOKENS, resolved.prefill_chunk), 0
    while tokens > resolved.prefill_chunk:
        used = memory.report(replace(resolved, wave_tokens=tokens, waves=_waves(resolved, board, tokens)))
        taken = used.activation_peak + used.captured_rows
        if taken * PASS_SHARE <= _capacity(board):
            yield tokens
        tokens //= 2
    yield resolved.prefill_chunk


def _fitted(resolved: Resolved, board: Board, weights: str, maximum: int) -> Fitted | None:
    """With weights of a dtype: the widest head and cache that hold the whole context, else the longest context there is."""
    chunk = resolved.prefill_chunk
    whole = min(maximum, LONGEST_CONTEXT) // chunk * chunk
    contexts = {pair: _longest(_with(resolved, weights, *pair), board, whole) for pair in HEAD_AND_CACHE}
    pair = next((pair for pair in HEAD_AND_CACHE if contexts[pair] == whole), HEAD_AND_CACHE[-1])
    context = contexts[pair]
    if context < (min(whole, SENSIBLE_CONTEXT) if weights == WIDE else chunk):
        return None
    notes = {"context": _context_note(maximum, whole, context, chunk), **_dtype_notes(weights, pair, whole)}
    return Fitted(_with_cache(_with(resolved, weights, *pair, context), board), notes)


def _misfit(resolved: Resolved, board: Board) -> Misfit:
    narrowest = resolved.dtypes if resolved.experts is None else replace(resolved.dtypes, experts=NARROWEST)
    used, chunk = memory.report(replace(resolved, dtypes=narrowest)), resolved.prefill_chunk
    of_experts = "" if resolved.experts is None else " and experts in bfloat4_b"
    parts = (
        (f"weights in bfloat8_b{of_experts}", used.weights),
        ("rotary tables", used.rotary_tables),
        (f"a cache of {chunk} tokens in bfloat8_b", used.key_value),
        *([("a recurrent state", used.recurrent_states)] if used.recurrent_states else []),
        ("passes", used.activation_peak + used.captured_rows),
        ("trace region", used.trace_region),
    )
    listed = " + ".join(f"{size / GIB:.2f} {name}" for name, size in parts)
    limit = (
        f"{used.total / GIB:.2f} GiB, over {_usable(board) / GIB:.2f} usable of {_capacity(board) / GIB:.2f} GiB DRAM"
    )
    hint = "import it for a larger board"
    if _fits(_with(resolved, NARROWEST, NARROW, NARROW), board):
        hint += f", or write its manifest by hand with weights in {NARROWEST}, which fit"
    return Misfit(board.name, f"does not hold the model: {listed} = {limit}", hint)


def _with(resolved: Resolved, weights: str, head: str, key_value: str, context: int | None = None) -> Resolved:
    context = context or resolved.prefill_chunk
    blocks = context // BLOCK
    dtypes = replace(resolved.dtypes, weights=weights, head=head, key_value=key_value)
    return replace(resolved, dtypes=dtypes, context=context, context_blocks=blocks, key_value_blocks=blocks)


def _usable(board: Board) -> int:
    return _capacity(board) - _capacity(board) // FREE_SHARE


def _fits(resolved: Resolved, board: Board) -> bool:
    return memory.report(resolved).total <= _usable(board)


def _most(step: int, whole: int, fits: Callable[[int], bool]) -> int:
    """The largest multiple of `step` up to `whole` that fits, or 0."""
    low, high = 0, whole // step + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step


def _longest(resolved: Resolved, board: Board, whole: int) -> int:
    dtypes = resolved.dtypes

    def fits(context: int) -> bool:
        return _fits(_with(resolved, dtypes.weights, dtypes.head, dtypes.key_value, context), board)

    return whole if fits(whole) else _most(resolved.prefill_chunk, whole, fits)


def _with_cache(resolved: Resolved, board: Board) -> Resolved:
    """As many blocks as serving wants and as fit, at least those of one context."""
    tokens = max(CONTEXTS * resolved.context, ROWS * resolved.prefill_chunk)
    step = resolved.prefill_chunk // BLOCK
    blocks = _most(step, tokens // BLOCK, lambda blocks: _fits(replace(resolved, key_value_blocks=blocks), board))
    return replace(resolved, key_value_blocks=max(blocks, resolved.context_blocks))


def _context_note(maximum: int, whole: int, context: int, chunk: int) -> str:
    if context < whole:
        return f"what the memory holds of {whole}, in multiples of prefill_chunk"
    if context == maximum:
        return "all of maximum_context"
    return "the most that import chooses" if context == LONGEST_CONTEXT else f"maximum_context in multiples of {chunk}"


def _dtype_notes(weights: str, pair: tuple[str, str], whole: int) -> dict[str, str]:
    sensible = f"a context of {min(whole, SENSIBLE_CONTEXT)}"
    notes = {
        "weights": (
            f"bfloat16 fits beside {sensible}" if weights == WIDE else f"bfloat16 does not fit beside {sensible}"
        ),
        "head": (
            f"bfloat16 fits beside a context of {whole}" if pair[0] == WIDE else "half the bytes, for a longer context"
        ),
        "key_value": f"bfloat16 fits for a context of {whole}",
    }
    if pair[1] == NARROW:
        notes["key_value"] = f"bfloat16 does not fit for a context of {whole}"
    return notes


def _slots_note(resolved: Resolved) -> str:
    held = "sequences whose recurrent state is held at a time"
    if resolved.state_slots == STATE_SLOTS[0]:
        return held
    return f"{held}: the memory holds no {2 * resolved.state_slots} beside a context of {CONTEXT_BESIDE_SLOTS}"


def _experts_note(resolved: Resolved) -> str:
    if resolved.dtypes.experts != NARROWEST:
        return "as the other weights"
    return "bfloat8_b does not fit"


def _without_program(resolved: Resolved) -> str | None:
    """Why an operation of the largest or smallest pass has no legal program, where one has none."""
    shapes = enumerate_shapes(resolved)
    sizes = [shape.token_tiles for shape in shapes]
    try:
        choose_programs(resolved, tuple(one for one in shapes if one.token_tiles in (min(sizes), max(sizes))))
    except NoProgram as error:
        return str(error)
    return None


def _with_lengths(data: Mapping[str, Any], board: Board, fitted: Fitted, maximum: int) -> Fitted:
    """With the lengths of a model for which no log is at hand, the waves that they leave room for, and what then fits."""
    numbers = fitted.resolved
    # Resolved anew: a context may have grown past a window.
    found = choose_default(_boundless(data, board, _table_of(numbers)))
    chosen = {"lengths": found.lengths, "waves": found.waves, "ragged_tokens": found.ragged_tokens}
    waves, numbers = numbers.waves, replace(numbers, **chosen)
    again = _fitted(numbers, board, numbers.dtypes.weights, maximum) or Fitted(numbers, fitted.notes)
    notes = {
        **again.notes,
        "lengths": f"{found.over_ideal:.3f}x the modelled time of no padding, in the mean over log-uniform lengths",
        "ragged_tokens": "of waves whose rows are of any lengths, for log-uniform sums of those",
        **(
            {"waves": "whose passes are within wave_tokens and whose traces are within the region"}
            if found.waves != waves
            else {}
        ),
    }
    return Fitted(again.resolved, notes)


def _table_of(found: Resolved) -> dict[str, Any]:
    """The numbers as a table says them."""
    recurrent = found.gated_delta_net is not None
    table = _table(found.prefill_chunk, recurrent) | {
        "lengths": list(found.lengths),
        "context": found.context,
        "key_value_blocks": found.key_value_blocks,
        "waves": list(found.waves),
        "wave_tokens": found.wave_tokens,
        **({"ragged_tokens": list(found.ragged_tokens)} if found.ragged_tokens else {}),
        "dtypes": _dtypes(found.dtypes.weights, found.dtypes.head, found.dtypes.key_value),
    }
    if recurrent:
        table["state_slots"] = found.state_slots
        table["dtypes"]["state"] = found.dtypes.state
    if found.dtypes.experts is not None:
        table["dtypes"]["experts"] = found.dtypes.experts
    return table


def _chosen(data: Mapping[str, Any], board: Board, fitted: Fitted) -> Chosen:
    found = fitted.resolved
    recurrent = found.gated_delta_net is not None
    table = _table_of(found)
    file = manifest.check({**data, "target": {board.name: table}}, "", Source((), {}), (board.name,))
    used = geometry.resolve(file, board).memory  # the same rules that a build keeps, on the board as it is
    states = f"recurrent states {used.recurrent_states / GIB:.2f}, " if recurrent else ""
    summary = (
        f"{used.total / GIB:.2f} of {used.capacity / GIB:.2f} GiB DRAM: weights {used.weights / GIB:.2f}, "
        f"cache {used.key_value / GIB:.2f}, {states}passes {(used.activation_peak + used.captured_rows) / GIB:.2f}, "
        f"traces {used.trace_region / GIB:.2f}"
    )
    tokens = found.key_value_blocks * BLOCK
    notes = {
        "experts": _experts_note(found),
        "state_slots": _slots_note(found),
        "key_value_blocks": f"{tokens} tokens, {tokens / found.context:.3g} x context",
        "wave_tokens": (
            f"tensors of passes take at most 1/{PASS_SHARE} of the memory"
            if found.wave_tokens > found.prefill_chunk
            else "one row of prefill_chunk"
        ),
        **fitted.notes,
    }
    return Chosen(board.name, table, notes, summary)

"""A call's arguments -> its rows as `PrefillRequest`s, or a refusal that names the row, the numbers and the rows that
are fine.

Nothing is written and nothing on the device is touched here. What counts for capacity are the real tokens of a row,
never its padding: fill entries past its last block are -1, so padding needs no blocks.
"""

from __future__ import annotations

from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np

from runtime.arguments import flags, largest_unsigned, matrix, numbers
from runtime.errors import (
    CapacityExceeded,
    ContextExceeded,
    InvalidBoundary,
    InvalidLength,
    InvalidPage,
    InvalidSlice,
    InvalidSlot,
    InvalidStart,
    InvalidToken,
    RequestError,
    RowError,
    SharedBlock,
)
from runtime.pages import block_count
from runtime.positions import Positions
from runtime.request import PrefillRequest
from runtime.slices import SliceCursors
from runtime.tables import state_slots


class Admission:
    """Checks rows against the sizes that a module states and the slices that are under way."""

    def __init__(
        self,
        module: ModuleType,
        cursors: SliceCursors,
        blocks: int | None = None,
        positions: Positions | None = None,
    ) -> None:
        """positions: where the slots of a module with recurrent state stand."""
        self._vocabulary: int = module.VOCABULARY
        self._context: int = module.CONTEXT
        self._block_size: int = module.BLOCK_SIZE
        self._blocks: int = module.KEY_VALUE_BLOCKS if blocks is None else blocks
        self._alignment: int = module.ALIGNMENT
        self._cursors = cursors
        self._positions = positions
        # A live sequence holds at least one block, so no more sequences than blocks can exist.
        self._slots = min(self._blocks, state_slots(module) if positions is not None else self._blocks)

    def rows(
        self,
        tokens: Any,
        page_table: Any,
        prompt_lens: Any,
        start_pos: Any,
        slots: Any,
        final: Any,
        moves: tuple[tuple[int, int], ...] = (),
        keep_at: Any = None,
    ) -> tuple[PrefillRequest, ...]:
        """The rows of a call in the caller's order.

        tokens: [rows, width], whole prompts from position 0. page_table: [rows, blocks]. prompt_lens, start_pos, slots:
        one for each row. final: one bool, or one for each row. moves: what happens to open slots first. keep_at: None, or a
        position or None for each row. Raises
        RequestError where these do not fit together and a RowError, which names the first row that cannot be served and
        those that could, otherwise.
        """
        token_rows = matrix(tokens, "tokens")
        count = len(token_rows)
        if not count:
            raise RequestError("the call has no rows")
        page_rows = matrix(page_table, "page_table")
        if len(page_rows) != count:
            raise RequestError(
                f"page_table has {len(page_rows)} rows for {count} rows of tokens; give one for each row"
            )
        lengths = numbers(prompt_lens, "prompt_lens", count)
        starts = [0] * count if start_pos is None else numbers(start_pos, "start_pos", count)
        taken = list(range(count)) if slots is None else numbers(slots, "slots", count)
        finals = flags(final, "final", count)
        kept = self._kept(keep_at, count)
        # One look at the span of the longest row usually clears every row of being looked at alone.
        widest = max(0, *lengths)
        trusted = (
            largest_unsigned(token_rows[:, :widest]) < self._vocabulary
            and largest_unsigned(page_rows[:, : block_count(widest, self._block_size)]) < self._blocks
        )

        admitted: list[PrefillRequest] = []
        refused: list[RowError] = []
        seen: set[int] = set()
        for row in range(count):
            try:
                slot = taken[row]
                if slot in seen or not 0 <= slot < self._slots:
                    self._refuse_slot(row, slot, taken)
                seen.add(slot)
                admitted.append(
                    self._request(
                        row,
                        token_rows[row],
                        page_rows[row],
                        lengths[row],
                        starts[row],
                        slot,
                        finals[row],
                        trusted,
                        moves,
                        kept[row],
                    )
                )
            except RowError as error:
                refused.append(error)
        if not refused:
            refused = self._shared_blocks(admitted)
        if refused:
            unservable = {error.row for error in refused}
            first = refused[0]
            first.servable = tuple(row for row in range(count) if row not in unservable)
            raise first
        return tuple(admitted)

    def _request(
        self,
        row: int,
        tokens: np.ndarray,
        pages: np.ndarray,
        length: int,
        cached: int,
        slot: int,
        final: bool,
        trusted: bool,
        moves: tuple[tuple[int, int], ...],
        keep_at: int,
    ) -> PrefillRequest:
        block_size = self._block_size
        begin, recomputed = self._begin(row, length, cached, len(tokens)), ""
        if not final and (cached == length or length % block_size):
            self._refuse_slice(row, cached, length)
        self._cursors.check(row, slot, cached, length, moves)
        if self._positions is not None:
            begin, recomputed = self._positions.begin(row, slot, cached, length, moves)
            keep_at = self._boundary(row, keep_at, begin, length)
        blocks = block_count(length, block_size)
        if blocks > len(pages) or blocks > self._blocks:
            self._refuse_capacity(row, length, blocks, len(pages))
        computed = tokens[begin:length]
        if not trusted and largest_unsigned(computed) >= self._vocabulary:
            self._refuse_token(row, computed, begin)
        live = pages[:blocks]
        if not trusted and largest_unsigned(live) >= self._blocks:
            self._refuse_page(row, live)
        own, live = computed.astype(np.int32), live.astype(np.int32)
        return PrefillRequest(row, slot, own, begin, cached, length, live, final, keep_at, recomputed)

    def _begin(self, row: int, length: int, cached: int, width: int) -> int:
        """The first position that is computed."""
        if not 0 < length <= self._context or length > width:
            self._refuse_length(row, length, width)
        if not 0 <= cached <= length or cached % self._block_size:
            self._refuse_start(row, cached, length)
        # A row whose every token is cached still has to produce its last hidden row: back off to the boundary below it.
        return min(cached, length - 1) // self._alignment * self._alignment

    def _kept(self, keep_at: Any, count: int) -> list[int]:
        """For each row the position whose state is to be kept, 0 for none."""
        if keep_at is None:
            return [0] * count
        if self._positions is None:
            raise RequestError("keep_at is given, and the module has no recurrent state that could be kept")
        if isinstance(keep_at, Integral) and not isinstance(keep_at, bool):
            return [int(keep_at)] * count
        given = list(keep_at) if isinstance(keep_at, (list, tuple)) else keep_at
        return numbers([0 if entry is None else entry for entry in given], "keep_at", count)

    def _boundary(self, row: int, keep_at: int, begin: int, length: int) -> int:
        """The position to keep where it lies within what is computed; elsewhere no pass comes by and it is passed over."""
        if keep_at % self._alignment:
            below = keep_at // self._alignment * self._alignment
            raise InvalidBoundary(
                row,
                f"the state at {keep_at} cannot be kept, since passes begin at multiples of {self._alignment}; ask for "
                f"{below} or {below + self._alignment}",
            )
        return keep_at if begin < keep_at < length else 0

    def spans(
        self, tokens: Any, page_table: Any, prompt_lens: Any, start_pos: Any, slots: Any = None
    ) -> list[tuple[int, int, int]]:
        """(cached, first computed position, length) of each row, after the checks of ranks, lengths and states alone."""
        width = matrix(tokens, "tokens").shape[1]
        count = len(matrix(page_table, "page_table"))
        lengths = numbers(prompt_lens, "prompt_lens", count)
        starts = [0] * count if start_pos is None else numbers(start_pos, "start_pos", count)
        found = [
            (cached, self._begin(row, length, cached, width), length)
            for row, (length, cached) in enumerate(zip(lengths, starts))
        ]
        if self._positions is None:
            return found
        taken = list(range(count)) if slots is None else numbers(slots, "slots", count)
        return [
            (cached, self._positions.begin(row, slot, cached, length)[0], length)
            for row, (slot, (cached, _, length)) in enumerate(zip(taken, found))
        ]

    def _shared_blocks(self, requests: list[PrefillRequest]) -> list[RowError]:
        """A block that is written may appear nowhere else in the call; cached blocks may be shared as rows like."""
        written: list[int] = []
        cached: list[int] = []
        for request in requests:
            first = request.cached // self._block_size
            pages = request.pages.tolist()
            written += pages[first:]
            cached += pages[:first]
        if len(set(written)) == len(written) and set(cached).isdisjoint(written):
            return []
        return self._name_shared_blocks(requests)

    def _name_shared_blocks(self, requests: list[PrefillRequest]) -> list[RowError]:
        owners: dict[int, tuple[int, int]] = {}
        for request in requests:
            for position, block in enumerate(request.pages[: request.cached // self._block_size].tolist()):
                owners.setdefault(block, (request.row, position))
        errors: dict[int, RowError] = {}
        for request in requests:
            first = request.cached // self._block_size
            for position, block in enumerate(request.pages[first:].tolist(), start=first):
                row, other = owners.setdefault(block, (request.row, position))
                if (row, other) != (request.row, position):
                    message = (
                        f"block {block} would be written as its block {position} and is also block {other} "
                        f"of row {row}; give every written position a block of its own"
                    )
                    errors.setdefault(request.row, SharedBlock(request.row, message))
        return list(errors.values())

    def _refuse_length(self, row: int, length: int, width: int) -> None:
        if length < 1:
            raise InvalidLength(row, f"a prompt of {length} tokens; give at least 1")
        if length > self._context:
            raise ContextExceeded(
                row,
                f"a prompt of {length} tokens does not fit the context of {self._context}; shorten it to that",
            )
        raise InvalidLength(
            row, f"a prompt of {length} tokens in a row of {width}; give the whole prompt, from position 0"
        )

    def _refuse_start(self, row: int, cached: int, length: int) -> None:
        if not 0 <= cached <= length:
            raise InvalidStart(row, f"{cached} cached tokens of a prompt of {length}; give 0 to {length}")
        size = self._block_size
        raise InvalidStart(
            row,
            f"{cached} cached tokens end inside a block of {size}; give {cached // size * size}, a multiple of {size}",
        )

    def _refuse_slice(self, row: int, cached: int, length: int) -> None:
        if cached == length:
            raise InvalidSlice(
                row, f"the slice from {cached} to {length} is empty; only the last slice may be wholly cached"
            )
        size = self._block_size
        raise InvalidSlice(
            row,
            f"the slice ends at {length}, inside a block of {size}, and is not the last; "
            f"end it at {length // size * size}, a multiple of {size}",
        )

    def _refuse_capacity(self, row: int, length: int, blocks: int, width: int) -> None:
        if blocks > self._blocks:
            raise CapacityExceeded(row, f"{length} tokens need {blocks} blocks and the store has {self._blocks}")
        raise CapacityExceeded(
            row, f"{length} tokens need {blocks} blocks and the page table has {width}; widen it to {blocks}"
        )

    def _refuse_token(self, row: int, computed: np.ndarray, begin: int) -> None:
        where = int(np.flatnonzero((computed < 0) | (computed >= self._vocabulary))[0])
        raise InvalidToken(
            row,
            f"token id {int(computed[where])} at position {begin + where} is outside the vocabulary of "
            f"{self._vocabulary}; "
            f"ids are 0 to {self._vocabulary - 1}",
        )

    def _refuse_page(self, row: int, live: np.ndarray) -> None:
        where = int(np.flatnonzero((live < 0) | (live >= self._blocks))[0])
        raise InvalidPage(
            row,
            f"page-table entry {where} is block {int(live[where])}, which the prompt needs; "
            f"the store has blocks 0 to {self._blocks - 1}",
        )

    def _refuse_slot(self, row: int, slot: int, slots: list[int]) -> None:
        if not 0 <= slot < self._slots:
            held = "; the module holds the recurrent state of so many sequences" if self._slots < self._blocks else ""
            raise InvalidSlot(row, f"slot {slot} is not one of 0 to {self._slots - 1}{held}")
        raise InvalidSlot(row, f"slot {slot} is also the slot of row {slots.index(slot)}; give each row its own")

"""Request logs: what arrived when, how long its prompt was, and how much of it an earlier request of the log had in common."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.measure import PROJECT

SHARED = PROJECT.parent / "shared" / "workloads"
AZURE, MOONCAKE = "azure_llm_code_2023.csv", "mooncake_synthetic.jsonl"
HASHED_TOKENS = 512  # of one entry of hash_ids
SYNTHETIC_REQUESTS = 400


@dataclass(frozen=True)
class Request:
    """Arrival in seconds, prompt tokens, and leading tokens that are in the cache (a multiple of 512, maybe all of them)."""

    arrival: float
    length: int
    cached: int = 0


def azure(path: Path) -> list[Request]:
    """Rows of TIMESTAMP, ContextTokens. The log says nothing of common prefixes. Prompts of no tokens are left out."""
    with path.open(newline="") as lines:
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"][:26]), int(row["ContextTokens"])) for row in csv.DictReader(lines)
        ]
    return [Request((time - rows[0][0]).total_seconds(), length) for time, length in rows if length]


def mooncake(path: Path) -> list[Request]:
    """Objects of timestamp (milliseconds), input_length and hash_ids: equal ids at equal places are equal prefixes."""
    entries = map(json.loads, path.read_text().splitlines())
    return list(with_prefixes((e["timestamp"] / 1000, e["input_length"], e["hash_ids"]) for e in entries))


def with_prefixes(entries: Iterator[tuple[float, int, list[int]]]) -> Iterator[Request]:
    """Requests over a cache that forgets nothing: cached are the leading blocks that all occurred before."""
    seen: set[int] = set()
    for arrival, length, blocks in entries:
        common = next((index for index, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        if length:
            yield Request(arrival, length, min(common * HASHED_TOKENS, length // HASHED_TOKENS * HASHED_TOKENS))


def synthetic() -> list[Request]:
    """A small log for where no other is at hand: log-normal lengths up to about 30,000 tokens, a third with a prefix."""
    drawn = random.Random(1)
    made = []
    for index in range(SYNTHETIC_REQUESTS):
        length = max(1, min(30000, int(drawn.lognormvariate(7.5, 1.2))))
        cached = drawn.choice((0, 0, 1)) * (length // 2 // HASHED_TOKENS * HASHED_TOKENS)
        made.append(Request(index / 4, length, cached))
    return made


def available(folder: Path = SHARED) -> dict[str, list[Request]]:
    """The logs that are there by name, or the synthetic one where none is."""
    readers = {AZURE: azure, MOONCAKE: mooncake}
    found = {name.split("_")[0]: read(folder / name) for name, read in readers.items() if (folder / name).is_file()}
    return found or {"synthetic": synthetic()}


def calls(log: list[Request], rows: int, seconds: float) -> Iterator[list[Request]]:
    """Requests in the order of the log, together where they arrive within `seconds` of the first, at most `rows` to a call."""
    call: list[Request] = []
    for request in log:
        if call and (len(call) == rows or request.arrival - call[0].arrival >= seconds):
            yield call
            call = []
        call.append(request)
    if call:
        yield call

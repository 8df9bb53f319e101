"""Lengths chosen by modelled time beside the padding of hand-written runtimes, on request logs and at equal numbers of lengths.

Times are modelled, tokens and passes counted, seconds of the choice itself measured. Every prompt runs by itself, but in
the table that says what sharing waves is worth.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path

import numpy as np

from benchmarks import request_logs
from benchmarks.measure import Figure
from generator import catalog, geometry, manifest, targets
from generator.choosing import command, power_of_two, waves
from generator.choosing.choose import Choice, choose, evaluate
from generator.choosing.rows import cut
from generator.choosing.search import Search
from generator.choosing.times import Times, times
from generator.choosing.workload import Workload
from generator.geometry import Resolved
from runtime.packing import MICROSECONDS, Packer

MODEL, TARGET, CHUNK = "llama-3.1-8b", "n150", 2048
COUNTS = (1, 3, 9, 12, 16)  # lengths of which figures are kept
MOST, PROMISED = 16, 9  # lengths of the printed table, and where waves are shared
WINDOWS = (0.5, 2.0)  # seconds
ALONE, EQUAL = "each alone", "equal rows"
RAGGED = {
    "any rows": inf,
    "any rows, at most 0.1 s later": 0.1,
}  # by the most seconds that packing may make a prompt's pass longer
UNLIMITED = 10**6  # programs
CHOOSING = ((20000, 2.0), (1000000, 20.0))  # requests of a log, and seconds within which a choice is made for it


def workload(log: list[request_logs.Request], prefixes: bool) -> Workload:
    lengths, cached = (np.array([getattr(one, name) for one in log], dtype=np.int64) for name in ("length", "cached"))
    return Workload(lengths, cached * prefixes, np.ones_like(lengths), None, 0, prefixes)


def hand_written(log: Workload, resolved: Resolved, found: Times) -> tuple[float, int, int]:
    """Modelled seconds, computed tokens and refused prompts of the policy `power-of-two`, every prompt by itself."""
    limits = power_of_two.Limits(resolved.context, CHUNK, resolved.block_size)
    seconds = computed = refused = 0
    for length, cached in zip(log.lengths.tolist(), log.cached.tolist()):
        try:
            passes = power_of_two.plan([length], [cached], limits).passes
        except power_of_two.Refused:
            refused += 1
            continue
        for one in passes:
            at = one.tokens // found.step - 1
            chunked = one.variant == "chunked"
            seconds += found.chunked[at] + one.start * found.growth[at] if chunked else found.regular[at]
            computed += one.tokens
        seconds -= sum(found.tail[one.tokens // found.step - 1] for one in passes[:-1])
    return float(seconds), computed, refused


def half(log: Workload, first: bool) -> Workload:
    part = slice(None, len(log.lengths) // 2) if first else slice(len(log.lengths) // 2, None)
    return Workload(log.lengths[part], log.cached[part], log.weights[part], None, 0, log.has_prefixes)


def _choices(log: Workload, resolved: Resolved, found: Times, most: int) -> list[Choice]:
    ones = [1] * len(found.lengths)
    return choose(cut(log, resolved, CHUNK), found, CHUNK, ones, most, UNLIMITED)


def _seconds_to_choose(requests: int, window: float) -> float:
    """Of the whole choice for a log of so many requests, eight a second, reading it among them."""
    drawn = np.random.default_rng(1).lognormal(7.5, 1.2, requests).astype(int).clip(1, 30000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        began = datetime(2023, 11, 16)
        rows = (f"{began + timedelta(seconds=at / 8)},{tokens}" for at, tokens in enumerate(drawn))
        path.write_text("TIMESTAMP,ContextTokens\n" + "\n".join(rows) + "\n")
        started = time.perf_counter()
        command.find(catalog.BUILT_IN, MODEL, TARGET, path, None, None, None, Packer, window)
        return time.perf_counter() - started


def _logs() -> Iterator[tuple[str, Workload, int, float, float]]:
    """Name, log, and a number of lengths with its limits of modelled time and of computed tokens."""
    logs = request_logs.available()
    limits = {"azure": (9, 1.05, 1.08), "mooncake": (9, 1.01, 1.02), "synthetic": (9, 1.05, 1.10)}
    for name, log in logs.items():
        yield name, workload(log, False), *limits[name]
        if name == "mooncake":
            yield f"{name}, prefixes cached", workload(log, True), 12, 1.02, 1.02


def wave_figure(name: str, window: float, way: str) -> str:
    return f"{name}: window {window:g} s, {way}"


def in_waves(name: str, log: list[request_logs.Request], resolved: Resolved) -> list[Figure]:
    """What sharing passes is worth, at some windows: the best PROMISED lengths alone, with the best waves of equal rows, and with rows
    of any lengths packed into ragged waves.
    """
    fitting = [one for one in log if one.length <= resolved.context]
    arrivals = np.array([one.arrival for one in fitting])
    whole = replace(workload(fitting, False), arrivals=arrivals)
    equal = replace(resolved, ragged_tokens=())
    by_rows = waves.wave_times(equal, CHUNK)
    ones = [1] * len(by_rows[1].lengths)
    figures = []
    print(
        f"{name}, sharing waves, {PROMISED} lengths: modelled time over each prompt by itself without padding; passes"
    )
    for window in WINDOWS:
        calls = waves.calls_of(arrivals, window, resolved.board.maximum_wave)
        groups = waves.groups_of(whole, equal, CHUNK, calls, by_rows[1])
        of_sizes = [
            waves.choose_in_waves(groups, by_rows, equal.waves[:count], CHUNK, ones, PROMISED, UNLIMITED)[-1]
            for count in range(1, len(equal.waves) + 1)
        ]
        told = {ALONE: of_sizes[0], EQUAL: min(of_sizes, key=lambda choice: choice.seconds)}
        for way, delay in RAGGED.items():
            packer = partial(Packer, delay=MICROSECONDS * delay)
            told[way] = Search(resolved, whole, PROMISED, None, packer).in_waves(CHUNK, window).chosen
        print(
            f"  {window:g} s: " + "; ".join(f"{way}: {one.over_ideal:.4f}x {one.passes}" for way, one in told.items())
        )
        figures += [Figure(wave_figure(name, window, way), "x", (one.over_ideal,)) for way, one in told.items()]
    return figures


def measure() -> list[Figure]:
    board = targets.load_board(catalog.BUILT_IN, TARGET)
    resolved = geometry.resolve(manifest.load(catalog.BUILT_IN, MODEL), board)
    found = times(resolved, CHUNK)
    figures = []
    for name, whole, count, time_limit, token_limit in _logs():
        log = Workload(
            *(part[whole.lengths <= resolved.context] for part in (whole.lengths, whole.cached, whole.weights)),
            None,
            0,
            False,
        )
        asked = cut(log, resolved, CHUNK)
        choices = _choices(log, resolved, found, MOST)
        seconds, computed, refused = hand_written(log, resolved, found)
        ideal = choices[0].ideal_seconds
        print(f"{name}: {asked.requests} requests, {asked.real} tokens to compute, {MODEL} on {TARGET}, chunk {CHUNK}")
        print(
            f"  lengths  time  tokens   (modelled over passes of exactly the tokens asked for; computed over asked for)"
        )
        for choice in choices:
            print(
                f"  {len(choice.lengths):>7} {choice.over_ideal:.3f}x {choice.computed / asked.real:.3f}x  {choice.lengths}"
            )
        print(f"  hand-written {seconds / ideal:.3f}x {computed / asked.real:.3f}x, {refused} refused")
        second = half(log, False)
        moved = evaluate(
            cut(second, resolved, CHUNK), found, _choices(half(log, True), resolved, found, count)[-1].lengths, 0
        )
        own = _choices(second, resolved, found, count)[-1]
        for shown in COUNTS:
            one, held = choices[shown - 1], shown == count
            figures += [
                Figure(f"{name}: modelled time, {shown} lengths", "x", (one.over_ideal,), time_limit if held else None),
                Figure(
                    f"{name}: computed tokens, {shown} lengths",
                    "x",
                    (one.computed / asked.real,),
                    token_limit if held else None,
                ),
            ]
        figures += [
            Figure(f"{name}: modelled time, hand-written", "x", (seconds / ideal,)),
            Figure(f"{name}: computed tokens, hand-written", "x", (computed / asked.real,)),
            Figure(f"{name}: first half's choice on the second", "x", (moved.seconds / own.seconds,), 1.01),
        ]
    for name, log in request_logs.available().items():
        figures += in_waves(name, log, resolved)
    for requests, limit in CHOOSING:
        figures += [
            Figure(f"choosing for {requests} requests{told}", "s", (_seconds_to_choose(requests, window),), limit)
            for told, window in ((" by themselves", 0.0), (f" within {WINDOWS[0]:g} s", WINDOWS[0]))
        ]
    return figures

"""Logs of requests and histograms of lengths: read line by line, so that a log may be larger than the memory.

The first line that is not blank tells the formats apart: a `{` begins JSON lines, anything else is the header of a CSV.
The first mistake ends the reading, because a log that is wrong in one line is mostly wrong in all of them.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np

from generator.errors import Diagnostic, ManifestError, did_you_mean, shown

HASHED_TOKENS = 512  # of one entry of hash_ids
MOST_TOKENS = 2**24  # of one prompt; more is a mistake in the log
MOST_REQUESTS = 2**38  # of a whole histogram, so that the sum of all tokens stays within an int64
MOST_MILLISECONDS = 2**53  # beyond, a float64 no longer counts them
PROGRESS_LINES = 50_000
LINE_BYTES = 2**24  # of the longest line; the hashes of the longest prompt take less than a tenth of it
LISTED_NAMES = 20  # columns or keys listed in a hint

CONTEXT, TIME = "ContextTokens", "TIMESTAMP"  # columns of a CSV log
LENGTH, COUNT = "length", "count"  # columns of a histogram
INPUT, MILLISECONDS, HASHES = "input_length", "timestamp", "hash_ids"  # keys of a JSON line

WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
STAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FRACTION_DIGITS = 7  # 100 ns: the finest step in which the years of a datetime still fit an int64
STEPS = 10**FRACTION_DIGITS  # of a second


@dataclass(frozen=True, eq=False)
class Workload:
    """The prompts of a log that have tokens, in its order. All arrays are as long as there are such rows.

    `lengths` and `cached` (int64) are tokens; cached are the leading ones that an earlier request of the log had in
    common: a multiple of 512, maybe the whole length. `weights` (int64) says how often the prompt came: 1 in a log, the
    count in a histogram. `arrivals` (float64) are seconds from the first of these prompts, None where the log says
    nothing of time. `empty` counts the prompts of no tokens, which are left out. `has_prefixes` is whether the log says
    anything of common prefixes.
    """

    lengths: np.ndarray
    cached: np.ndarray
    weights: np.ndarray
    arrivals: np.ndarray | None
    empty: int
    has_prefixes: bool
    back_in_time: int | None = None  # the first line whose prompt arrives before the one above it


def require_usable(log: Workload, name: str, context: int, window: float) -> None:
    """Refuse a log that tells no time, or not in its order, where a window is asked for, and one without a prompt that fits. Raises
    ManifestError.
    """
    if window and log.arrivals is None:
        rule = "is asked to be seen as it arrives, and the log says nothing of time"
        raise ManifestError([Diagnostic(name, None, "--window", str(window), rule, "leave it out")])
    if window and log.back_in_time is not None:
        rule = "is asked to be seen as it arrives, and this request arrives before the one above it"
        hint = "sort the log by time, or leave the window out"
        raise ManifestError([Diagnostic(name, log.back_in_time, "--window", str(window), rule, hint)])
    if not (log.lengths <= context).any():
        rule = f"holds no prompt of at most {context} tokens, the context of the module"
        raise ManifestError([Diagnostic(name, None, "", "", rule, "give a log that the model can serve")])


def read(path: Path, progress: Callable[[int], None] = lambda lines: None) -> Workload:
    """Read a log or a histogram. `progress` hears of the lines read, every 50,000. Raises ManifestError."""
    lines, skipped, first = _lines(path, progress), 0, ""
    for first in lines:
        if first != "\n":
            break
        skipped += 1
    else:
        raise _nothing(path)
    log = _Log(path)
    lines = chain([first], lines)
    if first.lstrip().startswith("{"):
        _read_objects(log, lines, skipped)
    else:
        _read_rows(log, lines, skipped)
    return log.workload()


@dataclass
class _Log:
    """What has been read so far, in arrays of machine numbers: 32 bytes for each request."""

    path: Path
    lengths: array[int] = field(default_factory=lambda: array("q"))
    cached: array[int] = field(default_factory=lambda: array("q"))
    weights: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] | array[float] | None = None  # in units of which `per_second` make a second
    per_second: int = 1
    empty: int = 0
    has_prefixes: bool = False
    back_in_time: int | None = None

    def arrive(self, line: int, time: int | float) -> None:
        if self.back_in_time is None and self.times and time < self.times[-1]:
            self.back_in_time = line
        self.times.append(time)

    def workload(self) -> Workload:
        if not self.lengths:
            raise _nothing(self.path)
        lengths, weights = np.array(self.lengths, np.int64), np.array(self.weights, np.int64)
        cached = np.array(self.cached, np.int64) if self.cached else np.zeros_like(lengths)
        arrivals = None
        if self.times is not None:
            times = np.array(self.times)  # subtracted as they are: integers lose nothing
            arrivals = (times - times[0]) / float(self.per_second)
        return Workload(lengths, cached, weights, arrivals, self.empty, self.has_prefixes, self.back_in_time)


def _refuse(path: Path, line: int | None, key: str, value: str, rule: str, hint: str) -> ManifestError:
    return ManifestError([Diagnostic(str(path), line, key, value, rule, hint)])


def _nothing(path: Path) -> ManifestError:
    hint = f"a log is a CSV with a column {CONTEXT} or JSON lines with {INPUT}, a histogram has {LENGTH},{COUNT}"
    return _refuse(path, None, "", "", "holds no request with tokens", hint)


# Lines


def _raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, each at most LINE_BYTES; what stands around a yield only meets errors of the file itself."""
    try:
        with path.open("rb") as file:
            yield from iter(partial(file.readline, LINE_BYTES), b"")
    except (OSError, ValueError) as error:  # a ValueError is a NUL in the path
        hint = "name a file" if isinstance(error, IsADirectoryError) else "check the path and its permissions"
        reason = getattr(error, "strerror", None) or error
        raise _refuse(path, None, "", "", f"cannot be read ({reason})", hint) from None


def _lines(path: Path, progress: Callable[[int], None]) -> Iterator[str]:
    """The lines of a file as text without its byte order mark, a blank one as a bare line end."""
    for number, raw in enumerate(_raw_lines(path), 1):
        if number == 1 and raw.startswith(b"\xef\xbb\xbf"):
            raw = raw[3:] or b"\n"
        if len(raw) == LINE_BYTES and not raw.endswith(b"\n"):
            rule, hint = f"a line has fewer than {LINE_BYTES} bytes", "write one request to a line"
            raise _refuse(path, number, "", "", rule, hint)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{raw[error.start]:02x}"
            raise _refuse(path, number, "", byte, "a workload is UTF-8", "save it as UTF-8") from None
        if b"\0" in raw:  # the csv module refuses it in Python 3.10 only, and a UTF-16 without its mark is full of them
            raise _refuse(path, number, "", "byte 0x00", "a workload is text", "save it as UTF-8")
        yield "\n" if raw.isspace() else text
        if not number % PROGRESS_LINES:
            progress(number)


# CSV


def _read_rows(log: _Log, lines: Iterator[str], skipped: int) -> None:
    rows = _rows(log.path, lines, skipped)
    line, header = next(rows)
    names = [name.strip() for name in header]
    if CONTEXT in names:
        _read_log(log, rows, len(names), *(_column(log.path, line, names, name) for name in (CONTEXT, TIME)))
        return
    if LENGTH not in names and COUNT not in names:
        raise _missing(log.path, line, CONTEXT, names, f"a log has this column, a histogram has {LENGTH} and {COUNT}")
    for name in (LENGTH, COUNT):
        if name not in names:
            raise _missing(log.path, line, name, names, f"a histogram has the columns {LENGTH} and {COUNT}")
    _read_histogram(log, rows, len(names), *(_column(log.path, line, names, name) for name in (LENGTH, COUNT)))


def _rows(path: Path, lines: Iterator[str], skipped: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with their first lines, without blank ones. `strict`, or a stray quote would swallow the rows after it."""
    reader = csv.reader(lines, strict=True)
    before = skipped
    try:
        for row in reader:
            if row:
                yield before + 1, row
            before = skipped + reader.line_num
    except csv.Error as error:
        rule, hint = f"is not CSV ({error})", "quote a cell on both sides or not at all, and end lines with a line feed"
        raise _refuse(path, before + 1, "", "", rule, hint) from None


def _column(path: Path, line: int, names: list[str], name: str) -> int | None:
    """Where a column stands; None where it is missing."""
    if names.count(name) > 1:
        raise _refuse(path, line, name, "", f"{names.count(name)} columns have this name", "keep one of them")
    return names.index(name) if name in names else None


def _read_log(
    log: _Log, rows: Iterator[tuple[int, list[str]]], width: int, context_at: int, time_at: int | None
) -> None:
    if time_at is not None:
        log.times, log.per_second = array("q"), STEPS
    for line, row in rows:
        if len(row) != width:
            _check_width(log.path, line, row, width)
        tokens = _tokens(log.path, line, CONTEXT, row[context_at])
        time = None if time_at is None else _time(log.path, line, row[time_at])
        if not tokens:
            log.empty += 1
            continue
        log.lengths.append(tokens)
        log.weights.append(1)
        if time is not None:
            log.arrive(line, time)


def _read_histogram(
    log: _Log, rows: Iterator[tuple[int, list[str]]], width: int, length_at: int, count_at: int
) -> None:
    total = 0
    for line, row in rows:
        if len(row) != width:
            _check_width(log.path, line, row, width)
        tokens = _tokens(log.path, line, LENGTH, row[length_at])
        count = _counted(log.path, line, COUNT, row[count_at])
        total += count
        if total > MOST_REQUESTS:
            rule, hint = f"all counts are at most {MOST_REQUESTS} together", "divide them all by one number"
            raise _refuse(log.path, line, COUNT, shown(count), rule, hint)
        if not tokens:
            log.empty += count
        elif count:
            log.lengths.append(tokens)
            log.weights.append(count)


def _check_width(path: Path, line: int, row: list[str], width: int) -> None:
    """A row that was cut off may still hold a number, only another one; empty cells at its end do no harm."""
    if len(row) < width or any(cell.strip() for cell in row[width:]):
        rule = f"has {len(row)} of the header's {width} cells" if len(row) < width else f"has more than {width} cells"
        raise _refuse(path, line, "", shown(row), rule, "give each column of the header one cell")


def _tokens(path: Path, line: int, key: str, text: str) -> int:
    if len(text) < 8 and text.isdigit() and text.isascii():  # the usual cell, and always below MOST_TOKENS
        return int(text)
    return _checked_tokens(path, line, key, _counted(path, line, key, text))


def _counted(path: Path, line: int, key: str, text: str) -> int:
    """An integer that is not negative. int() alone would take 1_000 and digits of other scripts."""
    text = text.strip()
    if not WHOLE_NUMBER.fullmatch(text):
        raise _refuse(path, line, key, shown(text), "is not an integer", "write digits only")
    digits = text.lstrip("+-").lstrip("0")
    if text.startswith("-") and digits:
        raise _refuse(path, line, key, shown(text), "is negative", "the least is 0")
    if len(digits) > 18:  # int() is slow on very many digits, or refuses them
        raise _refuse(path, line, key, shown(text), f"is absurd ({len(digits)} digits)", f"give the {key} of one row")
    return int(digits or "0")


def _checked_tokens(path: Path, line: int, key: str, tokens: int) -> int:
    if tokens > MOST_TOKENS:
        rule = f"is absurd (more than {MOST_TOKENS} tokens)"
        raise _refuse(path, line, key, shown(tokens), rule, "give the tokens of one prompt")
    return tokens


def _time(path: Path, line: int, text: str) -> int:
    """A time in steps of 100 ns from 1970, taken apart by hand: Python 3.10 reads 3 or 6 digits of a fraction only."""
    match = STAMP.fullmatch(text) or STAMP.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        fraction = (match[2] or "0").ljust(FRACTION_DIGITS, "0")[:FRACTION_DIGITS]
        return _seconds(match[1], match[3]) * STEPS + int(fraction)
    except ValueError:
        hint = "write it as 2023-11-16 18:17:03.9799600, with or without a fraction"
        raise _refuse(path, line, TIME, shown(text), "is not a time", hint) from None


@lru_cache(maxsize=1024)  # many requests arrive in the same second
def _seconds(text: str, zone: str | None) -> int:
    """Whole seconds from 1970; a time without a zone counts as UTC."""
    time = datetime.fromisoformat(text + ("+00:00" if zone in (None, "Z") else zone))
    return (time - EPOCH) // timedelta(seconds=1)


# JSON lines


def _read_objects(log: _Log, lines: Iterator[str], skipped: int) -> None:
    seen: set[int] = set()
    is_timed: bool | None = None
    for line, text in enumerate(lines, skipped + 1):
        if text == "\n":
            continue
        entry = _object(log.path, line, text)
        tokens = _input_length(log.path, line, entry)
        if is_timed is None and (is_timed := MILLISECONDS in entry):
            log.times, log.per_second = array("d"), 1000
        if is_timed != (MILLISECONDS in entry):
            rule = "is missing, but earlier lines have it" if is_timed else "is here, but missing in earlier lines"
            raise _refuse(log.path, line, MILLISECONDS, "", rule, "give it to all requests or to none")
        time = _milliseconds(log.path, line, entry[MILLISECONDS]) if is_timed else None
        common = 0
        if HASHES in entry:
            log.has_prefixes = True
            blocks = _blocks(log.path, line, entry[HASHES])
            common = next((index for index, block in enumerate(blocks) if block not in seen), len(blocks))
            seen.update(blocks)  # of an empty prompt too: its blocks are said to be there
        if not tokens:
            log.empty += 1
            continue
        log.lengths.append(tokens)
        log.weights.append(1)
        log.cached.append(min(common, tokens // HASHED_TOKENS) * HASHED_TOKENS)  # only whole blocks are ever in a cache
        if time is not None:
            log.arrive(line, time)


def _object(path: Path, line: int, text: str) -> dict[str, object]:
    hint = f'write one object to a line, as {{"{INPUT}": 4808}}'
    try:
        entry = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refuse(path, line, "", "", f"is not JSON ({error.msg}, column {error.colno})", hint) from None
    except (ValueError, RecursionError):  # an integer of thousands of digits, brackets in brackets without end
        raise _refuse(path, line, "", "", "is not JSON that can be read (too deep, or a huge number)", hint) from None
    if not isinstance(entry, dict):
        raise _refuse(path, line, "", shown(text.strip()), "is not a JSON object", hint)
    return entry


def _input_length(path: Path, line: int, entry: dict[str, object]) -> int:
    if INPUT not in entry:
        raise _missing(path, line, INPUT, list(entry), "each request has this key")
    tokens = entry[INPUT]
    if type(tokens) is not int:  # not isinstance: true is an int in Python
        raise _refuse(path, line, INPUT, _json(tokens), "is not an integer", "give the tokens of the prompt")
    if tokens < 0:
        raise _refuse(path, line, INPUT, _json(tokens), "is negative", "the least is 0")
    return _checked_tokens(path, line, INPUT, tokens)


def _milliseconds(path: Path, line: int, value: object) -> float:
    if type(value) not in (int, float) or not -MOST_MILLISECONDS <= value <= MOST_MILLISECONDS:  # NaN is in no range
        rule, hint = "is not a time in milliseconds", "write a number, or leave the key out of all lines"
        raise _refuse(path, line, MILLISECONDS, _json(value), rule, hint)
    return value


def _blocks(path: Path, line: int, value: object) -> list[int]:
    hint = "write one number for each 512 tokens, or leave the key out"
    if not isinstance(value, list):
        raise _refuse(path, line, HASHES, _json(value), "is not a list", hint)
    if not {int}.issuperset(map(type, value)):
        wrong = next(item for item in value if type(item) is not int)
        raise _refuse(path, line, HASHES, _json(wrong), "is not an integer", hint)
    if value and min(value) < 0:
        raise _refuse(path, line, HASHES, _json(min(value)), "is negative", hint)
    return value


# What errors show


def _json(value: object) -> str:
    """A value as the log's author wrote it."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _missing(path: Path, line: int, key: str, names: list[str], rule: str) -> ManifestError:
    """A column or key that is not there, with those that are: escaped and not too many, for they may be anything."""
    there = [shown(name)[1:-1] if len(name) <= 60 else f"{shown(name[:30])[1:-1]}..." for name in names]
    hint = did_you_mean(key, there[:LISTED_NAMES]).replace("known:", "there:").replace("none is known", "none is there")
    more = f" and {len(there) - LISTED_NAMES} more" if len(there) > LISTED_NAMES else ""
    return _refuse(path, line, key, "", f"is missing; {rule}", hint + more)

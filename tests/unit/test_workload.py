"""Logs of requests and histograms: what is read of them, and what is said of their mistakes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.choosing import workload
from generator.errors import ManifestError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "workloads"


@pytest.fixture
def log(tmp_path):
    """Writes a log and gives its path."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "log"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(path):
    """The one mistake that is found in a file."""
    with pytest.raises(ManifestError) as caught:
        workload.read(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.path == str(path) and diagnostic.hint and "\n" not in str(diagnostic)
    return diagnostic


def check_types(found):
    assert {one.dtype for one in (found.lengths, found.cached, found.weights)} == {np.dtype(np.int64)}
    assert {one.shape for one in (found.lengths, found.cached, found.weights)} == {found.lengths.shape}
    if found.arrivals is not None:
        assert found.arrivals.dtype == np.float64 and found.arrivals.shape == found.lengths.shape


def objects(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


# What is read


def test_a_csv_log_gives_lengths_and_arrivals_in_its_order(log):
    stamps = ("03.9799600", "04.0319600", "04", "03.5")
    rows = [f"2023-11-16 18:17:{stamp},{10 + index},7" for index, stamp in enumerate(stamps)]
    found = workload.read(log("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])))
    check_types(found)
    assert found.lengths.tolist() == [10, 11, 12, 13] and found.weights.tolist() == [1] * 4
    assert found.cached.tolist() == [0] * 4 and not found.has_prefixes and found.empty == 0
    assert found.arrivals.tolist() == [0, 0.052, 0.02004, -0.47996]  # out of order, kept, and exact


def test_a_csv_log_without_times_has_no_arrivals(log):
    found = workload.read(log("GeneratedTokens, ContextTokens \r\n1, 16777216\r\n2,+007\r\n"))
    check_types(found)
    assert found.arrivals is None and found.lengths.tolist() == [2**24, 7]


@pytest.mark.parametrize(
    "stamp, seconds",
    [
        ("2023-11-16 00:00:01", 1),
        ("2023-11-16T00:00:01Z", 1),
        ("2023-11-16 00:00:00.1", 0.1),
        ("2023-11-16 00:00:00.123", 0.123),
        ("2023-11-16 00:00:00.1234567", 0.1234567),
        ("2023-11-16 00:00:00.123456789", 0.1234567),  # cut to 100 ns
        ("2023-11-16 02:00:00.000001+02:00", 0.000001),
        (" 2023-11-17 00:00:00 ", 86400),
        ("1969-12-31 23:59:59.5", -1700092800.5),
        ("9999-12-31 23:59:59.9999999", 251702208000 - 1e-7),
        ("0001-01-01 00:00:00", -63835689600),
    ],
)
def test_times_have_any_number_of_fractional_digits_and_maybe_a_zone(log, stamp, seconds):
    found = workload.read(log(f"TIMESTAMP,ContextTokens\n2023-11-16 00:00:00.0000000,1\n{stamp},1\n"))
    assert found.arrivals[1] == seconds


def test_json_lines_give_lengths_arrivals_and_prefixes(log):
    entries = (
        {"timestamp": 3000, "input_length": 1100, "output_length": 3, "hash_ids": [1, 2, 3]},
        {"timestamp": 3000.5, "input_length": 1024, "hash_ids": [1, 2]},
        {"timestamp": 2000, "input_length": 1600, "hash_ids": [1, 2, 9, 3]},
        {"timestamp": 4000, "input_length": 1023, "hash_ids": [1, 2]},
        {"timestamp": 4000, "input_length": 5},
    )
    found = workload.read(log(objects(*entries)))
    check_types(found)
    assert found.lengths.tolist() == [1100, 1024, 1600, 1023, 5] and found.weights.tolist() == [1] * 5
    assert found.cached.tolist() == [0, 1024, 1024, 512, 0] and found.has_prefixes
    assert found.arrivals.tolist() == [0, 0.0005, -1, 1, 1]


def test_json_lines_need_only_lengths(log):
    found = workload.read(log(objects({"input_length": 3}, {"input_length": 2**24})))
    check_types(found)
    assert found.lengths.tolist() == [3, 2**24] and found.cached.tolist() == [0, 0]
    assert found.arrivals is None and not found.has_prefixes


def test_a_histogram_gives_weights(log):
    found = workload.read(log("count,length\n3,100\n0,50\n4,0\n1000000000,7\n"))
    check_types(found)
    assert found.lengths.tolist() == [100, 7] and found.weights.tolist() == [3, 10**9]  # a count of 0 is no prompt
    assert found.empty == 4 and found.arrivals is None and not found.has_prefixes


def test_empty_prompts_are_counted_and_left_out_and_times_begin_with_the_first_that_is_not(log):
    found = workload.read(log("TIMESTAMP,ContextTokens\n2023-11-16 00:00:00,0\n2023-11-16 00:00:05,8\n"))
    assert found.lengths.tolist() == [8] and found.arrivals.tolist() == [0] and found.empty == 1
    entries = (
        {"timestamp": 1, "input_length": 0, "hash_ids": [4]},
        {"timestamp": 2, "input_length": 600, "hash_ids": [4]},
    )
    found = workload.read(log(objects(*entries)))
    assert found.lengths.tolist() == [600] and found.cached.tolist() == [512] and found.empty == 1
    assert found.arrivals.tolist() == [0]


@pytest.mark.parametrize("text", ["ContextTokens\n5\n6\n", '{"input_length": 5}\n{"input_length": 6}'])
def test_blank_lines_and_a_byte_order_mark_are_passed(log, text):
    spaced = "\ufeff" + "\n \t\r\n" + text.replace("\n", "\n\n  \n")
    assert workload.read(log(spaced)).lengths.tolist() == [5, 6]
    assert workload.read(log("\ufeff" + text)).lengths.tolist() == [5, 6]


def test_quoted_cells_may_hold_commas_and_line_ends_and_a_row_may_end_in_empty_cells(log):
    path = log('name,ContextTokens\n"a, ""b""\n\nc",5\nd,6,,\ne,?\n')
    assert refused(path).line == 6
    assert workload.read(log(path.read_bytes().replace(b"?", b"7"))).lengths.tolist() == [5, 6, 7]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.lists(st.integers(0, 5), max_size=6)), min_size=1, max_size=8))
def test_cached_are_the_leading_blocks_that_all_occurred_before(tmp_path_factory, entries):
    expected = []
    for index, (length, blocks) in enumerate(entries):
        earlier = [block for _, others in entries[:index] for block in others]
        most = max(count for count in range(len(blocks) + 1) if all(block in earlier for block in blocks[:count]))
        while most * 512 > length:
            most -= 1
        if length:
            expected.append((length, most * 512))
    path = tmp_path_factory.getbasetemp() / "prefixes.jsonl"
    path.write_text(objects(*({"input_length": length, "hash_ids": blocks} for length, blocks in entries)))
    if not expected:
        assert "no request with tokens" in refused(path).rule
        return
    found = workload.read(path)
    assert list(zip(found.lengths.tolist(), found.cached.tolist())) == expected
    assert found.empty == len(entries) - len(expected)


def test_a_long_log_streams_and_tells_how_far_it_is(log):
    count = 200_000
    rows = (
        f"2023-11-16 18:{row // 6000:02}:{row // 100 % 60:02}.{row % 100:02}00000,{row % 9000 + 1},1"
        for row in range(count)
    )
    path = log("TIMESTAMP,ContextTokens,GeneratedTokens,id\n" + "".join(f"{row},{'x' * 80}\n" for row in rows))
    heard = []
    tracemalloc.start()
    try:
        found = workload.read(path, heard.append)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert heard == [50_000, 100_000, 150_000, 200_000]
    assert len(found.lengths) == count and found.lengths[-1] == (count - 1) % 9000 + 1
    assert np.allclose(found.arrivals, np.arange(count) / 100)
    assert peak < 90 * count < 0.8 * path.stat().st_size  # numbers, with their copies: never the rows as Python objects


def test_an_error_of_the_listener_is_its_own(log):
    def stop(lines):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        workload.read(log("ContextTokens\n" + "1\n" * 50_000), stop)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs are not here")
@pytest.mark.parametrize(
    "name, requests, has_prefixes", [("azure_llm_code_2023.csv", 8819, False), ("mooncake_synthetic.jsonl", 3993, True)]
)
def test_the_shared_logs_are_read(name, requests, has_prefixes):
    if not (SHARED / name).is_file():
        pytest.skip(f"{name} is not here")
    found = workload.read(SHARED / name)
    check_types(found)
    assert len(found.lengths) + found.empty == requests and found.has_prefixes == has_prefixes
    assert (np.diff(found.arrivals) >= 0).all() and found.arrivals[0] == 0 and 600 < found.arrivals[-1] < 4000
    assert (found.cached % 512 == 0).all() and (found.cached <= found.lengths).all()
    assert (found.cached.sum() > 0) == has_prefixes


# What is refused


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    missing, folder = refused(tmp_path / "none"), refused(tmp_path)
    assert missing.rule == "cannot be read (No such file or directory)" and missing.line is None
    assert folder.rule == "cannot be read (Is a directory)" and folder.hint == "name a file"
    assert "cannot be read" in refused(Path("a\0b")).rule

    def closed(path, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)  # the superuser may read a file of any mode
    assert refused(tmp_path / "none").rule == "cannot be read (Permission denied)"


@pytest.mark.parametrize(
    "content, line, value",
    [
        (b"ContextTokens\n5\n\xff\n", 3, "byte 0xff"),
        (b'{"input_length": 5}\n\n{"input_length": 5, "a": "\xe9"}', 3, "byte 0xe9"),
        ("ContextTokens\n5\n".encode("utf-16"), 1, "byte 0xff"),
        ("ContextTokens\n5\n".encode("utf-16-le"), 1, "byte 0x00"),
        (b"ContextTokens\n5\n\0\n", 3, "byte 0x00"),
        (b'{"input_length": 5}\n{"input_length": 5\0}', 2, "byte 0x00"),
    ],
)
def test_bytes_that_are_no_text(log, content, line, value):
    found = refused(log(content))
    assert (found.line, found.value) == (line, value) and found.hint == "save it as UTF-8"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeff",
        "\n \n",
        "ContextTokens\n",
        "ContextTokens\n0\n\n",
        "length,count\n5,0\n0,9\n",
        '{"input_length": 0}',
    ],
)
def test_a_log_of_no_tokens(log, text):
    assert refused(log(text)).rule == "holds no request with tokens"


@pytest.mark.parametrize(
    "text, line, key, hint",
    [
        ("\nTIMESTAMP,contexttokens\nx,1\n", 2, "ContextTokens", "there: TIMESTAMP, contexttokens"),
        ("TIMESTAMP,Context_Tokens\n", 1, "ContextTokens", 'did you mean "Context_Tokens"? (there: '),
        ("lenght,count\n5,1\n", 1, "length", 'did you mean "lenght"? (there: count, lenght)'),
        ("length,counts\n5,1\n", 1, "count", 'did you mean "counts"?'),
        ("ContextTokens;GeneratedTokens\n5;1\n", 1, "ContextTokens", "there: ContextTokens;GeneratedTokens"),
        ("[1, 2]\n", 1, "ContextTokens", "there: 2], [1"),
        (",".join(f"c{index}" for index in range(50)), 1, "ContextTokens", "and 30 more"),
        ('"a\nb",c\n', 1, "ContextTokens", "there: a\\nb, c"),
        (objects({"input_length": 1}, {"input_lenght": 5, "x": 1}), 2, "input_length", 'did you mean "input_lenght"?'),
        ("{}\n", 1, "input_length", "none is there"),
    ],
)
def test_a_missing_column_or_key(log, text, line, key, hint):
    found = refused(log(text))
    assert (found.line, found.key) == (line, key) and found.rule.startswith("is missing") and hint in found.hint


def test_a_column_that_stands_twice(log):
    found = refused(log("ContextTokens,ContextTokens\n1,2\n"))
    assert (found.line, found.key, found.rule) == (1, "ContextTokens", "2 columns have this name")


@pytest.mark.parametrize(
    "cell, rule",
    [("x", "is not an integer")]
    + [(cell, "is not an integer") for cell in ("", "5.0", "1e3", "1_000", "٣", "²", "true", "--5", "0x10")]
    + [("-1", "is negative"), ("-" + "9" * 30, "is negative")]
    + [
        ("16777217", "is absurd (more than"),
        ("9" * 30, "is absurd (30 digits)"),
        ("9" * 9999, "is absurd (9999 digits)"),
    ],
)
def test_a_cell_that_is_no_length(log, cell, rule):
    for header, row, key in (("TIMESTAMP,ContextTokens", f"2023-11-16 00:00:00,{cell}", "ContextTokens"),) + (
        ("count,length", f"1,{cell}", "length"),
    ):
        good = row.replace(f",{cell}", ",5")
        found = refused(log(f"{header}\n{good}\n\n{row}\n{good}\n"))
        assert (found.line, found.key) == (4, key) and found.rule.startswith(rule) and len(found.value) < 100


@pytest.mark.parametrize(
    "cell, rule",
    [("x", "is not an integer"), ("1.5", "is not an integer"), ("-3", "is negative"), ("9" * 19, "is absurd")]
    + [(str(2**38), "all counts are at most")],
)
def test_a_cell_that_is_no_count(log, cell, rule):
    found = refused(log(f"length,count\n7,1\n5,{cell}\n"))
    assert (found.line, found.key) == (3, "count") and found.rule.startswith(rule)


def test_the_largest_histogram_has_a_sum_of_tokens(log):
    found = workload.read(log(f"length,count\n{2**24},{2**38 - 1}\n1,1\n"))
    assert int((found.lengths * found.weights).sum()) == 2**24 * (2**38 - 1) + 1


@pytest.mark.parametrize(
    "stamp",
    ["", "now", "2023-11-16", "2023-11-16 18:17", "2023-13-16 18:17:03", "2023-11-16 18:17:61", "2023-11-16 18:17:03."]
    + ["2023-11-16 18:17:03.1234567890", "٢٠٢٣-11-16 18:17:03", "2023-11-16 18:17:03+25:00", "1700158623", "nan"],
)
def test_a_cell_that_is_no_time(log, stamp):
    found = refused(log(f"TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,1\n{stamp},0\n"))
    assert (found.line, found.key, found.rule) == (3, "TIMESTAMP", "is not a time")


@pytest.mark.parametrize(
    "row, rule", [("7", "has 1 of the header's 3 cells"), ("1,48", "has 2 of"), ("1,2,3,4", "has more than 3 cells")]
)
def test_a_row_of_another_width(log, row, rule):
    for header in ("a,ContextTokens,b", "length,count,b"):
        found = refused(log(f"{header}\n1,2,3\n{row}\n"))
        assert found.line == 3 and found.rule.startswith(rule)


@pytest.mark.parametrize(
    "row, rule",
    [
        ("x" * 200_000 + ",5", "field larger than field limit"),
        ('"x"y,5', "expected after"),
        ('"x,5\n6,7\n', "end of data"),
    ]
    + [("x\ry,5", "new-line character")],
)
def test_what_the_csv_module_refuses(log, row, rule):
    found = refused(log(f"name,ContextTokens\na,1\n{row}"))
    assert found.line == 3 and found.rule.startswith("is not CSV (") and rule in found.rule


def test_a_line_without_end(log, monkeypatch):
    monkeypatch.setattr(workload, "LINE_BYTES", 64)
    found = refused(log('{"input_length": 5}\n{"input_length": 5' + " " * 100 + "}\n"))
    assert (found.line, found.rule) == (2, "a line has fewer than 64 bytes")


@pytest.mark.parametrize(
    "text, rule",
    [
        ('{"input_length": 5', "is not JSON (Expecting"),
        ("ContextTokens", "is not JSON (Expecting value, column 1)"),
        ('{"input_length": 5} {}', "is not JSON (Extra data"),
        ('{"input_length": ' + "9" * 9999 + "}", "is "),  # of some Pythons no JSON, absurd to the others
        ('{"input_length": 5, "a": ' + "[" * 100_000 + "}", "is not JSON"),
        ("[5]", "is not a JSON object"),
        ("5", "is not a JSON object"),
        ("null", "is not a JSON object"),
        ('"input_length"', "is not a JSON object"),
    ],
)
def test_a_line_that_is_no_json_object(log, text, rule):
    found = refused(log(f'{{"input_length": 5}}\n\n{text}\n'))
    assert found.line == 3 and found.rule.startswith(rule) and len(str(found)) < 500


@pytest.mark.parametrize(
    "key, value, shown, rule",
    [
        ("input_length", True, "true", "is not an integer"),
        ("input_length", False, "false", "is not an integer"),
        ("input_length", 5.0, "5.0", "is not an integer"),
        ("input_length", "5", '"5"', "is not an integer"),
        ("input_length", None, "null", "is not an integer"),
        ("input_length", -1, "-1", "is negative"),
        ("input_length", 2**24 + 1, "16777217", "is absurd (more than 16777216 tokens)"),
        ("timestamp", "now", '"now"', "is not a time in milliseconds"),
        ("timestamp", True, "true", "is not a time in milliseconds"),
        ("timestamp", None, "null", "is not a time in milliseconds"),
        ("timestamp", float("nan"), "NaN", "is not a time in milliseconds"),
        ("timestamp", float("-inf"), "-Infinity", "is not a time in milliseconds"),
        ("timestamp", 10**400, None, "is not a time in milliseconds"),
        ("hash_ids", 5, "5", "is not a list"),
        ("hash_ids", None, "null", "is not a list"),
        ("hash_ids", {"1": 2}, '{"1": 2}', "is not a list"),
        ("hash_ids", [1, True], "true", "is not an integer"),
        ("hash_ids", [1, "a"], '"a"', "is not an integer"),
        ("hash_ids", [1, 2.0], "2.0", "is not an integer"),
        ("hash_ids", [[1]], "[1]", "is not an integer"),
        ("hash_ids", [3, -7, 1], "-7", "is negative"),
    ],
)
def test_a_wrong_value_in_a_json_line(log, key, value, shown, rule):
    good = {"timestamp": 0, "input_length": 0, "hash_ids": [1]}
    found = refused(log(objects(good, {**good, key: value}, good)))
    assert (found.line, found.key, found.rule) == (2, key, rule) and shown in (found.value, None)


def test_requests_have_times_all_or_none(log):
    timed, untimed = {"timestamp": 0, "input_length": 1}, {"input_length": 1}
    for first, second, rule in ((timed, untimed, "is missing, but"), (untimed, timed, "is here, but")):
        found = refused(log(objects(first, first, second)))
        assert (found.line, found.key) == (3, "timestamp") and found.rule.startswith(rule)

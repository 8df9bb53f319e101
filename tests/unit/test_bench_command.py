"""`codegen bench`: a log under the module's own planner and under powers of two, in numbers, as a plot and as a page."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from generator import catalog, geometry, manifest, targets
from generator.choosing import prices, report
from generator.choosing.prices import Prices
from generator.cli import main
from generator.matmuls import NoProgram
from generator.pass_time import pass_times
from generator.shapes import enumerate_shapes

MODEL, TARGET = "llama-3.1-8b", "n150"
LENGTHS = (64, 256, 512, 768, 1280, 2048)  # of the module
PROMPTS = (1, 31, 32, 33, 127, 128, 129, 2047, 2048, 2049)  # and two that no policy serves
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a <log> & more.jsonl"
    lengths = (*PROMPTS, 32769, 0)
    path.write_text("".join(f'{{"timestamp": 0, "input_length": {length}}}\n' for length in lengths))
    return path


def run(*arguments: object):
    return CliRunner().invoke(main, ["bench", MODEL, "--target", TARGET, *map(str, arguments)])


def replayed(*arguments: object) -> tuple[dict, dict, dict]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return (found, *found["policies"])


def resolved() -> geometry.Resolved:
    return geometry.resolve(manifest.load(catalog.BUILT_IN, MODEL), targets.load_board(catalog.BUILT_IN, TARGET))


def modelled() -> dict:
    times = pass_times(resolved(), enumerate_shapes(resolved()))
    return {(shape.variant, shape.rows, shape.tokens): time for shape, time in times.items()}


def test_every_prompt_by_itself_is_counted_by_hand(log: Path) -> None:
    found, own, powers = replayed("--workload", log)
    held = [next(length for length in LENGTHS if prompt <= length) for prompt in PROMPTS if prompt <= 2048]
    assert (own["passes"], own["computed_tokens"]) == (len(held) + 2, sum(held) + 2048 + 64)
    assert (powers["passes"], powers["computed_tokens"]) == (11, 6 * 128 + 1024 + 2 * 2048 + 2 * 2048)
    for one in (own, powers):
        assert (one["requests"], one["refused"], one["real_tokens"]) == (len(PROMPTS) + 1, 1, sum(PROMPTS))
        assert one["computed_over_real"] == one["computed_tokens"] / sum(PROMPTS)
        assert one["modelled_time_over_ideal"] >= 1
    assert (found["empty"], own["programs"], powers["programs"]) == (1, 36, 4)
    assert own["host_microseconds_a_request"] > 0 and powers["host_microseconds_a_request"] is None


def test_seconds_are_those_of_the_passes(tmp_path: Path) -> None:
    path, times = tmp_path / "log.csv", modelled()
    path.write_text("length,count\n60,3\n2000,1\n")
    _, own, powers = replayed("--workload", path)
    long = times["single", 1, 2048].seconds
    assert own["modelled_seconds"] == pytest.approx(3 * times["single", 1, 64].seconds + long, rel=1e-9)
    short = Prices(resolved()).seconds("single", 1, 128, 0, True)
    assert powers["modelled_seconds"] == pytest.approx(3 * short + long, rel=1e-9)


@pytest.mark.parametrize(
    "model, target", [(MODEL, TARGET), ("gemma-3-1b", "n150"), ("gemma-3-4b", "p150"), ("qwen3.5-9b", "p150")]
)
@pytest.mark.parametrize("window", [0, 1])
def test_a_replay_agrees_with_the_choice_about_the_modules_own_lengths(
    tmp_path: Path, model: str, target: str, window: int
) -> None:
    """Two ways to the same seconds: by the planner pass by pass, and by sums over gaps between lengths. Prompts over the context arrive
    too: first of a call, within it, and so that a call would be full with them.
    """
    path = tmp_path / "log.jsonl"
    lengths = (
        400000,
        1,
        128,
        129,
        2048,
        400000,
        2049,
        30000,
        24000,
        70,
        70,
        2100,
        2100,
        2100,
        400000,
        *[50, 5000] * 20,
    )
    rows = ({"timestamp": 400 * (at // 9), "input_length": length} for at, length in enumerate(lengths))
    path.write_text("\n".join(map(json.dumps, rows)))
    asked = (model, "--target", target, "--workload", str(path), "--window", str(window), "--json")
    bench, choice = (CliRunner().invoke(main, [command, *asked]) for command in ("bench", "shapes"))
    own, now = json.loads(bench.stdout)["policies"][0], json.loads(choice.stdout)["now"]
    assert (own["passes"], own["computed_tokens"]) == (now["passes"], now["computed_tokens"])
    assert own["refused"] == json.loads(choice.stdout)["refused"] > 2
    assert own["modelled_seconds"] == pytest.approx(now["modelled_seconds"], rel=1e-9)


def test_powers_of_two_refuse_a_prompt_whose_padding_reaches_past_the_table(tmp_path: Path) -> None:
    """512 cached tokens and 19,488 padded to 32,768, past the 33,024 tokens of a table row; the module serves it."""
    path = tmp_path / "log.jsonl"
    blocks = list(range(40))
    path.write_text(
        "".join(f'{{"input_length": {n}, "hash_ids": {ids}}}\n' for n, ids in ((512, [0]), (20000, blocks)))
    )
    _, own, powers = replayed("--workload", path)
    assert (own["refused"], powers["refused"]) == (0, 1)
    assert (own["real_tokens"], powers["real_tokens"]) == (20000, 512)


def test_only_a_prompts_last_chunk_has_the_tail(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("length,count\n2049,1\n")
    _, own, powers = replayed("--workload", path)
    cost = Prices(resolved()).seconds
    first, last = cost("chunked", 1, 2048, 0, False), cost("chunked", 1, 2048, 2048, True)
    assert powers["modelled_seconds"] == pytest.approx(first + last, rel=1e-12)
    assert own["modelled_seconds"] == pytest.approx(first + cost("chunked", 1, 64, 2048, True), rel=1e-12)
    tail = modelled()["chunked", 1, 2048].tail
    assert cost("chunked", 1, 2048, 0, True) - first == pytest.approx(tail, rel=1e-9)


def test_only_uncached_tokens_are_real(tmp_path: Path) -> None:
    """The second prompt has its first two blocks of 512 in common with the first, the third is the first again."""
    path = tmp_path / "log.jsonl"
    for length, blocks in ((1536, [1, 2, 3]), (1500, [1, 2, 4]), (1536, [1, 2, 3])):
        with path.open("a") as lines:
            lines.write(f'{{"input_length": {length}, "hash_ids": {blocks}}}\n')
    found, own, powers = replayed("--workload", path)
    assert found["tokens_saved"] == 1024 + 1535
    assert own["real_tokens"] == 1536 + 476 + 1
    assert own["computed_tokens"] == 2048 + 512 + 256  # the third computes its last aligned part again
    assert powers["passes"] == 2  # and has none at all there, where powers of two answer with zeros
    assert (own["unanswered"], powers["unanswered"]) == (0, 1) and powers["real_tokens"] == 1536 + 476
    both = Prices(resolved())
    first, second = both.seconds("single", 1, 2048, 0, True), both.seconds("chunked", 1, 1024, 1024, True)
    assert powers["modelled_seconds"] == pytest.approx(first + second, rel=1e-12)
    assert powers["modelled_time_over_ideal"] > 1


def test_without_chunks_both_policies_compute_again_what_is_cached(tmp_path: Path) -> None:
    """A soft cap leaves no legal chunk: neither policy may come below its own no-padding time by skipping a prefix."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"input_length": 2048, "hash_ids": {ids}}}\n' for ids in ([1, 2, 3, 4], [1, 2, 3, 5])))
    result = CliRunner().invoke(main, ["bench", "gemma-2-2b", "--workload", str(path), "--json"])
    own, powers = json.loads(result.stdout)["policies"]
    for one, length in ((own, 2560), (powers, 2048)):
        assert (one["passes"], one["computed_tokens"], one["real_tokens"]) == (2, 2 * length, 2048 + 512)
        assert one["modelled_time_over_ideal"] >= 1


def test_a_wave_that_no_program_holds_is_priced_row_by_row_and_said_so(log: Path, monkeypatch) -> None:
    choose = prices.choose_programs

    def only_single(resolved, shapes):
        if len(shapes) == 1 and shapes[0].rows == 4:
            raise NoProgram("none so wide")
        return choose(resolved, shapes)

    monkeypatch.setattr(prices, "choose_programs", only_single)
    log.write_text('{"timestamp": 0, "input_length": 2048}\n' * 3)
    _, own, powers = replayed("--workload", log, "--window", 1)
    assert (own["passes_priced_row_by_row"], powers["passes_priced_row_by_row"], powers["passes"]) == (0, 1, 1)
    expected = 4 * modelled()["single", 1, 2048].seconds
    assert powers["modelled_seconds"] == pytest.approx(expected, rel=1e-9)


def test_what_arrives_together_shares_waves(log: Path) -> None:
    _, alone, _ = replayed("--workload", log)
    _, own, powers = replayed("--workload", log, "--window", 1)
    assert own["passes"] < alone["passes"] and own["real_tokens"] == alone["real_tokens"]
    # Whole blocks of all that run in one pass are 20 + 64 + 64: one wave of 5120 tokens is none, so 4096 hold 128 of them.
    assert (own["passes"], own["computed_tokens"]) == (4, 4096 + 768 + 2048 + 64)
    assert own["modelled_time_over_ideal"] < alone["modelled_time_over_ideal"]
    assert alone["most_delay_seconds"] == powers["most_delay_seconds"] == 0
    assert powers["passes"] == 1 + 1 + 1 + 2


def test_a_delay_bounds_how_much_longer_the_pass_of_a_packed_prompt_takes(log: Path) -> None:
    cost = Prices(resolved())
    log.write_text('{"timestamp": 0, "input_length": 1300}\n{"timestamp": 0, "input_length": 40}\n')
    _, free, _ = replayed("--workload", log, "--window", 1)
    taken = cost.ragged(24, 64, [1300, 40])
    assert (free["passes"], free["modelled_seconds"]) == (1, pytest.approx(taken, rel=1e-12))
    assert free["most_delay_seconds"] == pytest.approx(taken - cost.seconds("single", 1, 64, 0, True), rel=1e-12)
    _, bound, _ = replayed("--workload", log, "--window", 1, "--most-delay", 0.05)
    assert (bound["passes"], bound["most_delay_seconds"]) == (2, 0)
    assert run("--workload", log, "--most-delay", "nan").exit_code == 2


def test_the_plot_marks_every_length_and_the_page_opens_offline(log: Path, tmp_path: Path) -> None:
    plot, page = tmp_path / "plot.svg", tmp_path / "page.html"
    assert run("--workload", log, "--svg", plot, "--html", page).exit_code == 0
    drawn = xml.fromstring(plot.read_text())
    lines = [one for one in drawn.iter(f"{SVG}line") if one.get("class") == "length"]
    told = {one.text for one in drawn.iter(f"{SVG}text")}
    assert len(lines) == len(LENGTHS) and {str(length) for length in LENGTHS} <= told
    text = page.read_text()
    assert plot.read_text() in text and "a &lt;log&gt; &amp; more" in text and "<log>" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "src=" not in text


def test_bars_are_as_high_as_what_they_stand_for() -> None:
    policies = [
        {"policy": "a", "real_tokens": 50, "computed_tokens": 100},
        {"policy": "b", "real_tokens": 50, "computed_tokens": 200},
    ]
    drawn = xml.fromstring(report.svg("t", np.array([1, 300]), np.array([3, 1]), (256, 512), policies))
    bars = {
        key: [float(one.get("height")) for one in drawn.iter(f"{SVG}rect") if one.get("class") == key]
        for key in ("real_tokens", "computed_tokens", "count")
    }
    assert bars["computed_tokens"] == pytest.approx([bars["real_tokens"][0] * 2, bars["real_tokens"][0] * 4], abs=0.2)
    tall = [height for height in bars["count"] if height]
    assert len(tall) == 2 and tall[0] == pytest.approx(3 * tall[1], abs=0.2)


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("ContextTokens\n40000\n", (), "no prompt of at most 32768 tokens"),
        ("ContextTokens\n40\n", ("--window", 1), "says nothing of time"),
        ("Tokens\n40\n", (), "ContextTokens"),
    ],
)
def test_a_log_that_cannot_be_replayed_is_refused(tmp_path: Path, text: str, more: tuple, words: str) -> None:
    path, plot = tmp_path / "log.csv", tmp_path / "plot.svg"
    path.write_text(text)
    result = run("--workload", path, "--svg", plot, *more)
    assert result.exit_code == 2 and words in result.output and not plot.exists()


def test_a_model_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(main, ["bench", "llama-3.1-9b", "--workload", "log.csv"])
    assert result.exit_code == 2 and "llama-3.1-8b" in result.output


@pytest.mark.parametrize("command", ["bench", "shapes"])
@pytest.mark.parametrize("window", ["nan", "inf", "-1"])
def test_a_window_is_a_finite_number_of_seconds(log: Path, command: str, window: str) -> None:
    result = CliRunner().invoke(main, [command, MODEL, "--workload", str(log), "--window", window])
    assert result.exit_code == 2 and "--window" in result.output


def test_plot_and_page_are_two_files(log: Path, tmp_path: Path) -> None:
    result = run("--workload", log, "--svg", tmp_path / "one", "--html", tmp_path / "folder" / ".." / "one")
    assert result.exit_code == 2 and "same file" in result.output and not (tmp_path / "one").exists()


def test_the_name_of_a_log_may_be_anything(tmp_path: Path) -> None:
    """Neither what is no UTF-8 nor a control character, which XML may not hold, keeps the plot from being read."""
    path, plot = tmp_path / os.fsdecode(b"a\xff\x01<.csv"), tmp_path / "plot.svg"
    path.write_text("ContextTokens\n5\n")
    result = run("--workload", path, "--svg", plot, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert xml.fromstring(plot.read_text()).find(f"{SVG}title").text.endswith("a\ufffd\ufffd<.csv")


def test_labels_of_near_lengths_do_not_overlap() -> None:
    lengths = (32, 64, 96, 128, 160, 256, 512, 4096)
    policies = [{"policy": "a", "real_tokens": 1, "computed_tokens": 2}]
    drawn = xml.fromstring(report.svg("t", np.array([1]), np.array([1]), lengths, policies))
    told = [one for one in drawn.iter(f"{SVG}text") if one.text in map(str, lengths)]
    spans = [(one.get("y"), float(one.get("x")), 2.5 * len(one.text)) for one in told]
    assert len(spans) == len(lengths)
    for index, (row, x, half) in enumerate(spans):
        assert all(abs(x - other) >= half + wide for y, other, wide in spans[:index] if y == row)


def test_both_files_are_looked_at_before_anything_is_replayed_or_written(log: Path, tmp_path: Path) -> None:
    plot, folder = tmp_path / "plot.svg", tmp_path / "folder"
    folder.mkdir()
    refused = run("--workload", log, "--svg", plot, "--html", folder)
    assert refused.exit_code == 2 and f"{folder}: is there and no file" in refused.output
    assert not plot.exists()
    (tmp_path / "file").touch()
    refused = run("--workload", log, "--svg", plot, "--html", tmp_path / "file" / "page.html")
    assert refused.exit_code == 2 and "is no folder that can be written" in refused.output and not plot.exists()


def test_a_link_is_written_through(log: Path, tmp_path: Path) -> None:
    plot, link = tmp_path / "plot.svg", tmp_path / "link.svg"
    plot.write_text("old")
    link.symlink_to(plot)
    assert run("--workload", log, "--svg", link).exit_code == 0
    assert link.is_symlink() and plot.read_text().startswith("<svg")

"""`codegen shapes`: its numbers, the manifest that it writes, and limits and logs that it refuses."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator import catalog, geometry, manifest, targets
from generator.choosing.compiling import compiling
from generator.choosing.default import WORTHWHILE
from generator.cli import main
from generator.choosing.writing import rewritten
from generator.shapes import enumerate_shapes

MODEL, TARGET = "llama-3.2-1b", "n150"
KEYS = {
    "lengths",
    "chunk",
    "waves",
    "requests",
    "refused",
    "passes",
    "computed_over_real",
    "modelled_time_over_ideal",
    "tokens_saved",
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    lengths = [1, 31, 32, 33, 127, 128, 129, 700, 2048, 2049, 5000, 32768, 32769, 0]
    path.write_text("ContextTokens\n" + "\n".join(map(str, lengths)) + "\n")
    return path


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    folder = tmp_path / "manifests"
    for kind, name in ((catalog.MODELS, MODEL), (catalog.TARGETS, TARGET), (catalog.TARGETS, "p150")):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        shutil.copy(catalog.BUILT_IN / kind / f"{name}.toml", folder / kind)
    return folder


def run(*arguments: object):
    return CliRunner().invoke(main, ["shapes", MODEL, "--target", TARGET, *map(str, arguments)])


def chosen(*arguments: object) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_one_object_says_the_choice(log: Path) -> None:
    found = chosen("--workload", log, "--chunk", 2048, "--max-lengths", 4)
    assert KEYS <= found.keys()
    assert (found["requests"], found["refused"], found["empty"]) == (13, 1, 1)
    assert found["chunk"] == found["lengths"][-1] == 2048 and len(found["lengths"]) == 4
    assert found["passes"] == 9 + 2 + 3 + 16
    assert 1 <= found["modelled_time_over_ideal"] < 2 and found["computed_over_real"] >= 1
    assert [len(one["lengths"]) for one in found["by_number_of_lengths"]] == [1, 2, 3, 4]


def test_each_further_length_is_no_slower_and_the_chosen_chunk_is_the_quickest(log: Path) -> None:
    whole = chosen("--workload", log)
    seconds = [one["modelled_seconds"] for one in whole["by_number_of_lengths"]]
    assert seconds == sorted(seconds, reverse=True)
    for chunk in (512, 1024, 2048, 4096):
        assert whole["modelled_seconds"] <= chosen("--workload", log, "--chunk", chunk)["modelled_seconds"]


def test_no_log_means_log_uniform_lengths_as_the_manifests_have_them() -> None:
    found = chosen()
    assert found["workload"] == "log-uniform lengths" and found["requests"] == 20000 and not found["refused"]
    assert found["lengths"] == found["now"]["lengths"] and found["lengths"][0] not in (64, 128)
    more = next(one for one in found["by_number_of_lengths"] if len(one["lengths"]) == len(found["lengths"]) + 1)
    assert more["modelled_seconds"] < found["modelled_seconds"]  # one length more gains, but less than it is worth
    assert chosen("--max-lengths", 2)["lengths"] == found["by_number_of_lengths"][1]["lengths"]


def test_programs_of_all_lengths_stay_within_the_limit(log: Path) -> None:
    for limit in (10, 24, 40):
        assert chosen("--workload", log, "--max-programs", limit)["programs"] <= limit


def test_programs_of_arrivals_stay_within_the_limit_too(together_and_apart: tuple[Path, Path]) -> None:
    for limit in (4, 7, 12):
        found = chosen("--workload", together_and_apart[0], "--window", 1, "--max-programs", limit, "--chunk", 2048)
        assert len(found["lengths"]) < found["programs"] <= limit and found["ragged_tokens"]


@pytest.fixture
def bursts(tmp_path: Path) -> Path:
    """Prompts of many lengths, seven at a time."""
    path = tmp_path / "bursts.jsonl"
    rows = ({"timestamp": 10_000 * (at // 7), "input_length": 1 + 37 * at * at % 4000} for at in range(84))
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def ways(bursts: Path) -> dict[str, tuple]:
    return {"no log": (), "alone": ("--workload", bursts), "together": ("--workload", bursts, "--window", 1)}


each_way = pytest.mark.parametrize("way", ["no log", "alone", "together"])


@each_way
def test_choices_are_compiled_within_the_limit(bursts: Path, way: str) -> None:
    """Each line of the table is, and a limit that binds costs time on the device."""
    options = (*ways(bursts)[way], "--chunk", 2048)
    free = chosen(*options)
    resolved = geometry.resolve(manifest.load(catalog.BUILT_IN, MODEL), targets.load_board(catalog.BUILT_IN, TARGET))
    passes = [(shape.variant, shape.rows * shape.tokens) for shape in enumerate_shapes(resolved)]
    assert free["now"]["compile_seconds"] == compiling(resolved).seconds(passes)
    limit = 0.7 * free["compile_seconds"]
    found = chosen(*options, "--max-compile-seconds", limit)
    assert all(one["compile_seconds"] <= limit for one in found["by_number_of_lengths"])
    assert found["compile_seconds"] <= limit and found["modelled_seconds"] >= free["modelled_seconds"]
    assert found["modelled_seconds"] > free["modelled_seconds"] or len(found["waves"]) < len(free["waves"])
    assert len(found["lengths"]) <= len(free["lengths"])
    assert len(found["ragged_tokens"]) <= len(free["ragged_tokens"])


@each_way
def test_too_little_time_to_compile_names_the_least_that_is_enough(bursts: Path, way: str) -> None:
    options = (*ways(bursts)[way], "--chunk", 2048)
    refused = run(*options, "--max-compile-seconds", 1)
    assert refused.exit_code == 2 and "--max-compile-seconds = 1: is under the" in refused.output
    least = int(refused.output.rsplit(" ", 1)[1])
    found = chosen(*options, "--max-compile-seconds", least)
    assert found["compile_seconds"] <= least and len(found["ragged_tokens"]) == len(found["lengths"]) == 1
    assert run(*options, "--max-compile-seconds", least - 1).exit_code == 2


def test_the_words_say_the_same(log: Path) -> None:
    found, words = chosen("--workload", log), run("--workload", log).output
    for line in (f"lengths = {found['lengths']}", f"prefill_chunk = {found['chunk']}", f"waves = {found['waves']}"):
        assert line in words
    assert "13 requests, 1 over the context of 32768, 1 without tokens" in words


def test_what_is_written_is_the_choice_and_nothing_else(log: Path, manifests: Path) -> None:
    path = manifests / catalog.MODELS / f"{MODEL}.toml"
    before = path.read_text()
    asked = ("--workload", log, "--manifests", manifests, "--chunk", 1024, "--max-lengths", 3)
    found = chosen(*asked)
    assert path.read_text() == before and not found["written"]
    assert chosen(*asked, "--write")["written"]
    after = manifest.load(manifests, MODEL).manifest
    table = after.target[TARGET]
    assert (list(table.lengths), table.prefill_chunk, list(table.waves)) == (
        found["lengths"],
        found["chunk"],
        found["waves"],
    )
    kept = manifest.load(catalog.BUILT_IN, MODEL).manifest
    assert after.model == kept.model and after.target["p150"] == kept.target["p150"]
    changed = set(path.read_text().splitlines()) - set(before.splitlines())
    assert all("codegen shapes" in line and "log.csv" in line for line in changed) and 1 <= len(changed) <= 3
    again = chosen(*asked, "--write")
    assert not again["written"] and again["now"]["modelled_seconds"] == again["modelled_seconds"]


@pytest.fixture
def together_and_apart(tmp_path: Path) -> tuple[Path, Path]:
    """Forty prompts of 100 tokens at once, and the same a minute apart."""
    paths = tmp_path / "together.jsonl", tmp_path / "apart.jsonl"
    for path, step in zip(paths, (0, 60000)):
        path.write_text("".join(f'{{"timestamp": {at * step}, "input_length": 100}}\n' for at in range(40)))
    return paths


def test_arrivals_within_a_window_share_waves_and_choose_them(together_and_apart: tuple[Path, Path]) -> None:
    """Of a model whose waves have equal rows: apart, none are wanted."""
    asked = ("shapes", "gemma-3-1b", "--target", "p150", "--window", "1", "--max-lengths", "3", "--json", "--workload")
    waved, alone = (json.loads(CliRunner().invoke(main, [*asked, str(path)]).stdout) for path in together_and_apart)
    assert (alone["passes"], alone["waves"]) == (40, [1])
    assert waved["passes"] < 40 and len(waved["waves"]) > 1 and not waved["ragged_tokens"]
    assert waved["modelled_seconds"] < alone["modelled_seconds"]
    assert waved["lengths"][0] * waved["waves"][-1] <= 8192


def test_arrivals_within_a_window_are_packed_and_choose_ragged_waves(together_and_apart: tuple[Path, Path]) -> None:
    """Of 128 tokens in whole blocks each, 32 fill one wave of 4096 and eight one of 1024."""
    waved, alone = (chosen("--workload", path, "--window", 1, "--max-lengths", 3) for path in together_and_apart)
    assert (alone["passes"], alone["waves"]) == (40, [1])
    assert waved["passes"] == 2 and waved["computed_tokens"] == 40 * 128
    assert {1024, 4096} <= set(waved["ragged_tokens"])
    assert waved["modelled_seconds"] < alone["modelled_seconds"]


def test_what_arrivals_chose_is_written_and_then_the_manifests_own(
    together_and_apart: tuple[Path, Path], manifests: Path
) -> None:
    asked = (
        "--workload",
        together_and_apart[0],
        "--manifests",
        manifests,
        "--window",
        1,
        "--max-lengths",
        2,
        "--write",
    )
    found = chosen(*asked)
    table = manifest.load(manifests, MODEL).manifest.target[TARGET]
    assert found["written"] and list(table.ragged_tokens) == found["ragged_tokens"]
    again = chosen(*asked)
    assert not again["written"] and again["now"]["passes"] == again["passes"] == 2
    assert again["now"]["modelled_seconds"] == pytest.approx(again["modelled_seconds"], rel=1e-12)


def test_a_window_needs_a_log_that_tells_time(log: Path) -> None:
    for asked in (("--workload", log), ()):
        result = run(*asked, "--window", 1)
        assert result.exit_code == 2 and "says nothing of time" in result.output


def test_waves_that_no_length_may_have_are_left_out(tmp_path: Path) -> None:
    """A manifest with them would be refused: 32 rows of the shortest length must be within wave_tokens."""
    path = tmp_path / "log.csv"
    path.write_text("length,count\n2048,5\n")
    assert chosen("--workload", path, "--chunk", 2048, "--max-lengths", 1)["waves"] == [1, 2, 4]


def test_an_array_of_several_lines_is_replaced_whole() -> None:
    text = catalog.read(catalog.BUILT_IN / catalog.MODELS / f"{MODEL}.toml")
    spread = text.replace("lengths = [256, 512,", "lengths = [ # a comment with ]\r\n  256,\r\n  512,", 1)
    assert spread != text
    file = manifest.parse(spread, "there", ("n150", "p150"))
    first = next(iter(file.manifest.target))
    values = {"waves": (1, 2), "lengths": (256, 2048), "prefill_chunk": 2048}
    made = manifest.parse(rewritten(spread, file, first, values, "why"), "there", ("n150", "p150"))
    assert {key: getattr(made.manifest.target[first], key) for key in values} == values
    other = next(name for name in file.manifest.target if name != first)
    assert made.manifest.target[other] == file.manifest.target[other]


def test_a_limit_that_no_choice_meets_names_the_smallest_that_can(log: Path) -> None:
    result = run("--workload", log, "--max-programs", 1, "--chunk", 2048)
    assert result.exit_code == 2 and "--max-programs" in result.output
    least = int(result.output.rsplit(" ", 1)[1])
    assert chosen("--workload", log, "--max-programs", least, "--chunk", 2048)["lengths"] == [2048]
    assert run("--workload", log, "--max-programs", least - 1, "--chunk", 2048).exit_code == 2
    of_any_chunk = int(run("--workload", log, "--max-programs", 1).output.rsplit(" ", 1)[1])
    assert of_any_chunk == least == 3  # one length, from the start and as a chunk, and one ragged wave
    assert run("--workload", log, "--max-programs", of_any_chunk).exit_code == 0
    assert run("--workload", log, "--max-programs", of_any_chunk - 1).exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ContextTokens\n40000\n", "no prompt of at most 32768 tokens"),
        ("ContextTokens\n", "no request with tokens"),
        ("Tokens\n5\n", "ContextTokens"),
        ("ContextTokens\n-3\n", ":2:"),
    ],
)
def test_a_log_that_nothing_can_be_chosen_for_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    result = run("--workload", path)
    assert result.exit_code == 2 and words in result.output and str(path) in result.output


@pytest.mark.parametrize(("chunk", "words"), [(2000, "multiple of the alignment 128"), (65536, "at most the context")])
def test_a_chunk_that_the_manifest_could_not_have_is_refused(log: Path, chunk: int, words: str) -> None:
    result = run("--workload", log, "--chunk", chunk)
    assert result.exit_code == 2 and words in result.output


def test_lengths_are_weighed_against_waves_under_a_limit(bursts: Path) -> None:
    """No limit makes a choice two hundredths slower than what some chunk, or no waves at all, would allow."""
    for limit in (5, 8, 12, 20):
        best = chosen("--workload", bursts, "--max-programs", limit)["modelled_seconds"]
        for chunk in (1024, 2048):
            named = chosen("--workload", bursts, "--max-programs", limit, "--chunk", chunk)
            assert best <= named["modelled_seconds"] / (1 - WORTHWHILE) and named["programs"] <= limit
        few = chosen("--workload", bursts, "--max-programs", limit, "--max-lengths", limit // 2, "--chunk", 2048)
        assert best <= few["modelled_seconds"] / (1 - WORTHWHILE)
        if limit >= 12:
            assert len(few["waves"]) < len(chosen("--workload", bursts)["waves"])


def pairs(tmp_path: Path, prompts: int, tokens: tuple[int, int]) -> Path:
    """Two prompts at a time, many seconds from the next two."""
    path = tmp_path / "pairs.jsonl"
    rows = ({"timestamp": 60000 * at, "input_length": length} for at in range(prompts) for length in tokens)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("delay", [(), ("--most-delay", 0)])
def test_rows_that_do_not_share_a_wave_after_all_have_their_lengths(tmp_path: Path, delay: tuple) -> None:
    """Where packing is no gain, or not allowed, what arrives together is served as quickly as each prompt by itself."""
    path = pairs(tmp_path, 40, (1500, 600))
    options = ("--workload", path, "--chunk", 2048)
    alone, together = chosen(*options), chosen(*options, "--window", 1, *delay)
    assert together["modelled_seconds"] <= alone["modelled_seconds"] * (1 + 1e-9)
    assert together["modelled_seconds"] <= together["now"]["modelled_seconds"]
    seconds = [one["modelled_seconds"] for one in together["by_number_of_lengths"]]
    assert seconds == sorted(seconds, reverse=True)


def test_where_nothing_arrives_together_one_ragged_wave_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "apart.csv"
    times = (f"2023-11-16 {at // 60:02d}:{at % 60:02d}:00,{1 + 97 * at % 2000}" for at in range(200))
    path.write_text("TIMESTAMP,ContextTokens\n" + "\n".join(times))
    found = chosen("--workload", path, "--window", 1, "--chunk", 2048)
    assert len(found["ragged_tokens"]) == 1 and len(found["lengths"]) > 4
    alone = chosen("--workload", path, "--chunk", 2048)
    assert found["modelled_seconds"] == pytest.approx(alone["modelled_seconds"], rel=0.01)


def test_a_window_over_a_log_that_goes_back_in_time_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "back.jsonl"
    path.write_text("\n".join(f'{{"timestamp": {time}, "input_length": 100}}' for time in (0, 5000, 1, 2)))
    refused = run("--workload", path, "--window", 1)
    assert refused.exit_code == 2 and f"{path}:3: --window = 1.0" in refused.output
    assert run("--workload", path, "--chunk", 2048).exit_code == 0


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "x"])
def test_a_time_to_compile_that_is_none_is_refused(log: Path, seconds: str) -> None:
    refused = run("--workload", log, "--max-compile-seconds", seconds)
    assert refused.exit_code == 2 and "--max-compile-seconds" in refused.output


def test_ragged_waves_are_weighed_against_lengths_under_a_limit(bursts: Path) -> None:
    """Eight programs are six ragged waves beside one length, or three beside two, which serve these rows in a tenth less time."""
    found = chosen("--workload", bursts, "--window", 1, "--chunk", 2048, "--max-programs", 8)
    assert (len(found["lengths"]), len(found["ragged_tokens"])) == (2, 3) and found["programs"] <= 8
    one = chosen("--workload", bursts, "--window", 1, "--chunk", 2048, "--max-programs", 8, "--max-lengths", 1)
    assert found["modelled_seconds"] < 0.92 * one["modelled_seconds"]


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_nothing_slower_than_the_manifests_own_lengths_is_chosen(tmp_path: Path, seed: int) -> None:
    """Rows of just those lengths: as many ragged waves as are worthwhile may be fewer than the manifest has."""
    held, drawn = manifest.load(catalog.BUILT_IN, MODEL).manifest.target[TARGET], random.Random(seed)
    several, path = drawn.choice([2, 3, 5]), tmp_path / "log.jsonl"
    lengths = [[drawn.choice(held.lengths) - drawn.randint(0, 3) for _ in range(several)] for _ in range(60)]
    rows = ({"timestamp": 10_000 * at, "input_length": tokens} for at, call in enumerate(lengths) for tokens in call)
    path.write_text("\n".join(map(json.dumps, rows)))
    found = chosen("--workload", path, "--window", 1)
    assert found["modelled_seconds"] <= found["now"]["modelled_seconds"]
    assert found["programs"] >= len(found["lengths"]) + len(found["ragged_tokens"])
    if seed == 6:
        assert (tuple(found["lengths"]), tuple(found["ragged_tokens"])) == (held.lengths, held.ragged_tokens)
        assert found["modelled_seconds"] == found["now"]["modelled_seconds"]


@pytest.mark.parametrize(("chunk", "packed"), [(512, 4), (2048, 12)])
def test_calls_are_counted_under_the_chosen_chunk_and_not_the_manifests(bursts: Path, chunk: int, packed: int) -> None:
    """Fewer rows are one pass from their start, so that fewer calls have several, under a shorter chunk."""
    calls = chosen("--workload", bursts, "--window", 1, "--chunk", chunk)["calls"]
    assert calls == {"all": 12, "chosen_for": 12, "to_pack": packed, "compared": packed, "packed": packed}

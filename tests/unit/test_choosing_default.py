"""Lengths and waves where no log is at hand: each prompt counts alike, and no length more than is worth its programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from generator import catalog, geometry, manifest, targets
from generator.choosing import default
from generator.choosing.choose import Choice, choose, evaluate
from generator.choosing.default import alike, choose_default, default_ragged, log_uniform, worthwhile
from generator.choosing.limits import most_traces
from generator.choosing.rows import cut
from generator.choosing.times import times
from generator.shapes import enumerate_shapes
from tests.support.building import committed

MODULES = [(model, target) for model, target in committed()]


def resolved(model: str, target: str) -> geometry.Resolved:
    return geometry.resolve(manifest.load(catalog.BUILT_IN, model), targets.load_board(catalog.BUILT_IN, target))


def choice(*lengths: int, seconds: float) -> Choice:
    return Choice(lengths, 0, seconds, 1.0, 0, 0)


@pytest.mark.parametrize(
    ("model", "target"),
    [("smollm2-135m", "n150"), ("llama-3.1-8b", "p150"), ("gemma-2-9b", "n150"), ("qwen3-30b-a3b", "p150")],
)
def test_the_manifests_have_what_is_chosen(model: str, target: str) -> None:
    numbers = resolved(model, target)
    found = choose_default(numbers)
    assert (found.lengths, found.ragged_tokens, found.waves) == (numbers.lengths, numbers.ragged_tokens, numbers.waves)


@pytest.mark.parametrize(("model", "target"), MODULES)
def test_the_traces_of_all_passes_fit_the_region(model: str, target: str) -> None:
    numbers = resolved(model, target)
    operations = times(numbers, numbers.block_size * 2).operations
    assert len(enumerate_shapes(numbers)) <= most_traces(operations, numbers.board)


def test_log_uniform_lengths_are_as_many_between_any_two_as_between_twice_the_two() -> None:
    lengths = log_uniform(4096).lengths
    counts = [int(((lengths > 2**n) & (lengths <= 2 ** (n + 1))).sum()) for n in range(6, 12)]
    assert lengths.min() >= 1 and lengths.max() == 4096 and max(counts) - min(counts) < 0.02 * counts[0]


def test_each_prompt_counts_alike() -> None:
    """Of all choices of three lengths none has a smaller mean of time over no padding, found prompt by prompt."""
    numbers = replace(resolved("smollm2-135m", "n150"), ragged_tokens=())
    found, asked = times(numbers, 512), cut(log_uniform(2048), numbers, 512)
    steps = 512 // found.step
    (best,) = [
        one for one in choose(alike(asked, found, 512), found, 512, [1] * steps, 3, 100) if len(one.lengths) == 3
    ]
    own = found.without_padding(asked.rows, 512)

    def mean(lengths: tuple[int, ...]) -> float:
        taken = np.asarray(lengths)[np.searchsorted(lengths, asked.rows.rest)] // found.step - 1
        last = found.last_pass(taken, asked.rows.chunked, asked.rows.start)
        whole = found.whole_chunks(512, asked.rows.begin, asked.rows.start)
        return float(np.average((whole + last) / own, weights=asked.rows.weight))

    every = [(*(found.step * at for at in some), 512) for some in combinations(range(1, steps), 2)]
    assert mean(best.lengths) == pytest.approx(min(map(mean, every)), rel=1e-12)
    assert evaluate(asked, found, best.lengths, 0).seconds >= min(
        evaluate(asked, found, one, 0).seconds for one in every
    )


def test_one_length_more_must_gain_a_fiftieth() -> None:
    some = [
        choice(4, seconds=100),
        choice(2, 4, seconds=97),
        choice(1, 2, 4, seconds=95.2),
        choice(1, 2, 3, 4, seconds=80),
    ]
    assert worthwhile(some) is some[1] and worthwhile(some[:2]) is some[1] and worthwhile(some[:1]) is some[0]


def test_where_the_region_is_small_the_largest_waves_are_left_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = resolved("llama-3.1-8b", "n150")
    whole = choose_default(numbers)
    for held in (40, 30, 22, 16):
        monkeypatch.setattr(default, "most_traces", lambda operations, board: held)
        found = choose_default(numbers)
        shapes = enumerate_shapes(
            replace(numbers, lengths=found.lengths, ragged_tokens=found.ragged_tokens, waves=found.waves)
        )
        assert len(shapes) <= held and found.lengths == whole.lengths
        assert found.waves == whole.waves[: len(found.waves)]
    assert found.waves == (1,) and len(found.ragged_tokens) == 16 - 2 * len(found.lengths)


def test_ragged_waves_are_of_whole_shares_up_to_wave_tokens_and_within_their_number() -> None:
    numbers = resolved("smollm2-135m", "n150")
    for budget in (1, 2, 4):
        sizes = default_ragged(numbers, budget)
        assert 1 <= len(sizes) <= budget and sizes[-1] == numbers.wave_tokens and all(size % 256 == 0 for size in sizes)
    assert default_ragged(numbers, 0) == () and default_ragged(resolved("gemma-3-1b", "n150"), 5) == ()

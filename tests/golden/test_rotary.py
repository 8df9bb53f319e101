"""Every kind of rotary embedding against transformers, turning whole heads or a part of them, and unusual widths."""

from __future__ import annotations

import pytest

from tests.support.families import VARIATIONS
from tests.support.golden import EXACT, PACKED, Bench, build_module, manifest, mistaken

LIMIT = 1e-4  # nothing is rounded in the emulator's float32 mode
WRONG = 100 * LIMIT


@pytest.fixture(scope="module", params=VARIATIONS)
def bench(request):
    return Bench(request.param)


def test_prompts_and_waves_equal_transformers(bench):
    for seed, lengths in enumerate([(1,), (33,), (300,), (100, 104, 108), (1, 31, 32, 127, 128, 129, 300)]):
        rows = bench.rows(lengths, seed)
        errors = bench.errors(rows, bench.call(rows))
        assert max(errors.values()) <= LIMIT, (lengths, errors)


def test_cached_prefixes_and_slices_equal_transformers(bench):
    row, cut = bench.rows([300, 300], seed=5)
    bench.call([row], ends=[96], slots=[5])
    bench.call([cut], ends=[64], slots=[1], final=False)
    bench.call([cut], starts=[64], ends=[256], slots=[1], final=False)
    for one, start, slot in ((row, 96, 6), (cut, 256, 1)):
        errors = bench.errors([one], bench.call([one], starts=[start], slots=[slot]))
        assert max(errors.values()) <= LIMIT, errors


@pytest.mark.parametrize("family", ["phi3", "phi3-three-quarters", "phi3-heads-of-96-two-thirds"])
@pytest.mark.parametrize(
    "options", [{"batch_invariant": True}, {"dtypes": PACKED}], ids=lambda options: next(iter(options))
)
def test_fused_projections_are_taken_apart_where_no_operation_joins_them(family, options):
    data = manifest(family, EXACT)
    data["target"]["n150"] |= options
    bench = Bench(family, module=build_module(data))
    rows = bench.rows([33, 300], seed=7)
    assert max(bench.errors(rows, bench.call(rows)).values()) <= LIMIT  # float32 mode rounds no block floats either


@pytest.mark.parametrize(
    "family, rope",
    [
        ("llama-linear", {"factor": 2.0}),
        ("llama-yarn", {"factor": 8.0}),
        ("llama-yarn", {"attention_factor": 1.0}),
        ("llama-yarn", {"beta_fast": 32.0}),
        ("llama-yarn", {"beta_slow": 0.1}),
        ("llama-yarn", {"original_context": 640}),
        ("llama-yarn", {"truncate": False}),
        ("qwen3-yarn-not-truncated", {"truncate": True}),
        ("qwen3-yarn-not-truncated", {"attention_factor": 1.0}),
    ],
)
def test_a_wrong_number_fails_the_comparison(family, rope):
    bench = Bench(family, module=mistaken(family, **rope))
    rows = bench.rows([129], seed=1)
    errors = bench.errors(rows, bench.call(rows))
    assert min(errors["logits"], errors["keys"]) > WRONG, errors


@pytest.mark.parametrize("dimensions", [22, 26, 32])
def test_a_wrong_number_of_rotary_dimensions_fails_the_comparison(dimensions):
    bench = Bench("phi3-three-quarters", module=mistaken("phi3-three-quarters", dimensions=dimensions))
    rows = bench.rows([129], seed=1)
    errors = bench.errors(rows, bench.call(rows))
    assert min(errors["logits"], errors["keys"]) > WRONG, errors

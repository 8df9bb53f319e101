"""Random legal geometries: emitted, loaded and run on the emulator against the reference, with random requests.

Whatever a manifest may say is built and served, not only the models that ship: odd vocabularies, both rotary styles, blocks and
attention chunks of every size, lengths that are no multiple of the alignment, contexts that end inside a chunk.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from generator import catalog, geometry, targets
from generator.families import FAMILIES
from generator.manifest import check
from generator.toml_source import scan
from runtime.backend import open_device, ttnn
from runtime.load import load
from runtime.prefill import Prefill
from runtime.reference.dense import forward
from runtime.reference.parameters import RandomParameters
from runtime.stores import allocate
from runtime.tables import rotary_switch
from runtime.weights import load_weights
from tests.support.building import program_of

GEOMETRIES_A_FAMILY = 50
SEQUENCES = 3  # of requests, for each geometry
LIMIT = 1e-4
BOARDS = {name: targets.load_board(catalog.BUILT_IN, name) for name in ("n150", "p150")}
ran: Counter[str] = Counter()


def multiples(unit: int, least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most).map(lambda count: unit * count)


@st.composite
def manifests(draw: st.DrawFn, family: str) -> dict[str, Any]:
    """A small manifest of a family, as plain data, that breaks no rule."""
    key_value_heads = draw(st.integers(1, 3))
    query_heads = key_value_heads * draw(st.integers(1, 4))
    head_dim = draw(st.sampled_from([32, 64, 96, 128]))
    model = {
        "vocabulary": draw(st.integers(33, 400)),
        "hidden": query_heads * head_dim,
        "intermediate": draw(multiples(32, 1, 8)),
        "layers": draw(st.integers(1, 2)),
        "query_heads": query_heads,
        "key_value_heads": key_value_heads,
        "maximum_context": 1 << 20,
        "norm_epsilon": draw(st.sampled_from([1e-5, 1e-6])),
        "activation": "silu",
        "tied_embeddings": draw(st.booleans()),
        "rope": draw(st.one_of(ROPES[family])),
    }
    if FAMILIES[family].experts:
        del model["intermediate"]
        model["experts"] = draw(mixtures(FAMILIES[family].renormalises))
    if family == "phi3":
        model["rotary_dimensions"] = draw(multiples(2, 1, head_dim // 2))
        if draw(st.booleans()):
            model["rope"] |= draw(longrope(model["rotary_dimensions"] // 2))
    if draw(st.booleans()):
        model |= {"head_dim": head_dim, "hidden": draw(multiples(32, 1, 6))}
    if family in WINDOWED and draw(st.booleans()):
        model |= draw(windows(model["layers"]))
    if family == "gemma3":
        model["activation"] = "gelu_tanh"
        model |= draw(st.sampled_from([{}, {"query_scale": 48}, {"logit_soft_cap": 2.5}]))
        if model.get("full_attention_layers") and draw(st.booleans()):
            model["local_rope"] = draw(st.one_of(ROPES[family]))
    if family == "gemma2":
        model |= {"activation": "gelu_tanh", "attention_soft_cap": 2.5, "logit_soft_cap": 3.5}
    target = draw(st.sampled_from(sorted(BOARDS)))
    table = draw(target_tables())
    if family == "gemma2":  # whose prompts run in one pass
        context = table["prefill_chunk"]
        table |= {"context": context, "key_value_blocks": 2 * context // table["block_size"]}
    return {
        "name": "drawn",
        "family": family,
        "source": "drawn at random",
        "model": model,
        "target": {target: table},
    }


@st.composite
def windows(draw: st.DrawFn, layers: int) -> dict[str, Any]:
    """A window in at least one layer, of any size: inside a block, as wide as some blocks, wider than the context."""
    full = draw(st.sets(st.integers(0, layers - 1), max_size=layers - 1))
    size = draw(st.one_of(st.sampled_from([1, 2, 31, 32, 33, 64, 65, 128, 129, 10000]), st.integers(1, 400)))
    return {"sliding_window": size, "full_attention_layers": tuple(sorted(full))}


default_rope = st.fixed_dictionaries({"kind": st.just("default"), "theta": st.sampled_from([1e4, 5e5])})
llama3_rope = st.fixed_dictionaries(
    {
        "kind": st.just("llama3"),
        "theta": st.sampled_from([1e4, 5e5]),
        "factor": st.sampled_from([8.0, 32.0]),
        "low_frequency_factor": st.just(1.0),
        "high_frequency_factor": st.just(4.0),
        "original_context": st.sampled_from([64, 8192]),
    }
)


yarn_rope = st.fixed_dictionaries(
    {
        "kind": st.just("yarn"),
        "theta": st.sampled_from([1e4, 5e5]),
        "factor": st.sampled_from([4.0, 32.0]),
        "original_context": st.sampled_from([64, 4096]),
        "beta_fast": st.sampled_from([8.0, 32.0]),
        "beta_slow": st.just(1.0),
        "truncate": st.booleans(),
        "attention_factor": st.sampled_from([1.0, 1.3465735902799727]),
    }
)
linear_rope = st.fixed_dictionaries(
    {"kind": st.just("linear"), "theta": st.just(1e4), "factor": st.sampled_from([2.0, 8.0])}
)


def mixtures(renormalises: bool | None) -> st.SearchStrategy[dict[str, Any]]:
    """Few experts up to all of which see a token, three tiles wide or more: a narrower one leaves too few cores for the widest hidden."""
    return st.fixed_dictionaries(
        {
            "count": st.integers(2, 9),
            "per_token": st.integers(1, 2),
            "intermediate": multiples(32, 3, 8),
            "renormalise": st.booleans() if renormalises is None else st.just(renormalises),
        }
    )


KINDS = {"default": default_rope, "linear": linear_rope, "llama3": llama3_rope, "yarn": yarn_rope}  # longrope: below
ROPES = {  # of families with attention in every layer; the others have a test of their own
    name: tuple(KINDS[kind] for kind in one.rope_kinds if kind in KINDS)
    for name, one in FAMILIES.items()
    if not one.gated_delta_net
}
WINDOWED = [name for name, one in FAMILIES.items() if "sliding_window" in one.options]


def longrope(pairs: int) -> st.SearchStrategy[dict[str, Any]]:
    factors = st.lists(st.floats(1.0, 64.0), min_size=pairs, max_size=pairs).map(tuple)
    return st.fixed_dictionaries(
        {
            "kind": st.just("longrope"),
            "original_context": st.integers(1, 400),
            "attention_factor": st.sampled_from([1.0, 1.19]),
            "short_factors": factors,
            "long_factors": factors,
        }
    )


@st.composite
def target_tables(draw: st.DrawFn) -> dict[str, Any]:
    block = draw(st.sampled_from([32, 64, 128]))
    attention_chunk = draw(st.sampled_from([32, 64, 128]))
    alignment = math.lcm(block, attention_chunk)
    chunk = alignment * draw(st.integers(1, 3 if alignment < 128 else 2))
    shorter = draw(st.sets(multiples(block, 1, chunk // block), max_size=3))
    context = max(chunk, block * draw(st.integers(1, 16)))
    blocks = context // block
    lengths = tuple(sorted({*shorter, chunk}))
    wave_tokens = chunk * draw(st.integers(1, 8))
    waves = draw(st.sets(st.sampled_from([2, 4, 8]), max_size=3))
    return {
        "context": context,
        "block_size": block,
        "key_value_blocks": blocks + draw(st.integers(0, 3 * blocks)),
        "lengths": lengths,
        "waves": tuple(sorted({1, *(wave for wave in waves if wave * lengths[0] <= wave_tokens)})),
        "wave_tokens": wave_tokens,
        "prefill_chunk": chunk,
        "attention_chunk": attention_chunk,
        "dtypes": {
            "weights": draw(st.sampled_from(["bfloat16", "bfloat8_b", "bfloat4_b"])),
            "embedding": "bfloat16",
            "head": draw(st.sampled_from(["bfloat16", "bfloat8_b"])),
            "key_value": draw(st.sampled_from(["bfloat16", "bfloat8_b"])),
            "activation": "bfloat16",
        },
    }


def requests(draw: st.DrawFn, module: Any) -> list[tuple[int, int]]:
    """(length, cached) of each row, as many rows as the blocks hold; cached is a multiple of the block and may be the length."""
    rows: list[tuple[int, int]] = []
    left = module.KEY_VALUE_BLOCKS
    edges = [1, 31, 32, 33, 127, 128, 129, *(n + d for n in module.LENGTHS for d in (-1, 0, 1)), module.CONTEXT]
    for _ in range(draw(st.integers(1, 5))):
        length = draw(
            st.one_of(st.sampled_from(edges), st.integers(1, module.CONTEXT)).map(lambda n: min(n, module.CONTEXT))
        )
        pages = -(-length // module.BLOCK_SIZE)
        if pages > left:
            break
        left -= pages
        rows.append((length, module.BLOCK_SIZE * draw(st.integers(0, length // module.BLOCK_SIZE))))
    return rows or [(1, 0)]


class Bench:
    """One emitted geometry with random weights on a device of its own."""

    def __init__(self, data: dict[str, Any], folder: Any, seed: int) -> None:
        (target,) = data["target"]
        file = check(data, "drawn.toml", scan(""), tuple(BOARDS))
        path = folder / "drawn.py"
        path.write_text(program_of(geometry.resolve(file, BOARDS[target]), "drawn.toml"), encoding="utf-8")
        self.module = load(path)
        self.device = open_device(self.module.BOARD, precision="float32")
        self.parameters = RandomParameters(self.module.GEOMETRY, seed)
        self.weights = load_weights(self.module, self.device, self.parameters)
        self.stores = allocate(self.module, self.device)
        self.prefill = Prefill(self.module, self.device, self.weights, self.stores)

    def serve(self, rows: list[tuple[int, int]], seed: int) -> float:
        """Prefill the cached prefixes, then the prompts over them; the worst relative error of the last tokens' logits."""
        drawn = np.random.default_rng(seed)
        module = self.module
        switch = rotary_switch(module)
        if switch is not None:  # nobody may serve a long prompt over the keys of a short one
            rows = [(length, 0 if prefix <= switch < length else prefix) for length, prefix in rows]
        lengths = [length for length, _ in rows]
        widest = -(-max(lengths) // module.BLOCK_SIZE)
        tokens = drawn.integers(0, module.VOCABULARY, (len(rows), max(lengths)))
        free = iter(drawn.permutation(module.KEY_VALUE_BLOCKS))
        page_table = np.full((len(rows), widest), -7)  # what lies past a row's blocks is stale and never read
        for row, length in enumerate(lengths):
            for page in range(-(-length // module.BLOCK_SIZE)):
                page_table[row, page] = next(free)
        cached = [row for row, (_, prefix) in enumerate(rows) if prefix]
        if cached:
            prefixes = [rows[row][1] for row in cached]
            self.prefill.prefill_forward(tokens[cached], page_table[cached], prefixes)
        found = self.prefill.prefill_forward(tokens, page_table, lengths, [prefix for _, prefix in rows])
        wanted = torch.cat(
            [
                forward(module.GEOMETRY, self.parameters, tokens[row, :length].tolist(), rows=[-1])
                for row, length in enumerate(lengths)
            ]
        )
        return float(((found - wanted).abs().amax(1) / wanted.abs().amax(1)).max())


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(ROPES))
def test_any_legal_geometry_serves_any_request_as_the_reference(family: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp(family)

    @settings(
        max_examples=GEOMETRIES_A_FAMILY,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # shrinking emits hundreds of modules; the drawn manifest and rows say enough
        suppress_health_check=list(HealthCheck),
    )
    @given(data=manifests(family), draws=st.data())
    def serve_all(data: dict[str, Any], draws: st.DataObject) -> None:
        bench = Bench(data, folder, seed=ran["geometries"])
        try:
            for seed in range(SEQUENCES):
                rows = requests(draws.draw, bench.module)
                error = bench.serve(rows, seed)
                assert error <= LIMIT, f"{rows}: relative error {error:.2e} over {LIMIT:g}"
                ran["sequences"] += 1
        finally:
            ttnn.close_device(bench.device)
        ran["geometries"] += 1

    serve_all()
    print(
        f"\n{family}: {ran['geometries']} geometries and {ran['sequences']} request sequences served as the reference"
    )
    assert ran["geometries"] >= GEOMETRIES_A_FAMILY

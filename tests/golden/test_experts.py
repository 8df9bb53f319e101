"""Mixtures of experts beyond what every family is held to: where tokens are placed, extremes of the routing, and the work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.backend import open_device, ttnn
from runtime.emulator.operations import experts as operations
from runtime.reference import experts as reference
from runtime.reference.dense import forward
from runtime.tables import TILE
from runtime.verification.comparison import relative_error
from tests.golden.test_families import LIMIT, holds
from tests.support.families import build_peer
from tests.support.golden import Bench

FAMILIES = ("qwen3_moe", "mixtral")
COUNTS = {"qwen3_moe": 8, "mixtral": 4}


@pytest.fixture(scope="module", params=FAMILIES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def place(bench: Bench, choice: torch.Tensor) -> tuple[list[int], ...]:
    """The emitted module's own placing of tokens whose experts are `choice` [tokens, chosen]."""
    tokens = len(choice)
    shape = SimpleNamespace(token_tiles=tokens // TILE)
    routing = bench.module.routing_tables(bench.weights, shape)
    chosen = ttnn.from_torch(
        choice[None, None].to(torch.int32), dtype=ttnn.uint16, layout=ttnn.TILE_LAYOUT, device=bench.device
    )
    return tuple([ttnn.to_torch(one).flatten().tolist() for one in bench.module.place_tokens(chosen, routing, shape)])


def choices(kind: str, tokens: int, experts: int) -> torch.Tensor:
    first = torch.arange(tokens)
    if kind == "all to one pair":
        return torch.tensor([[experts - 1, 0]]).repeat(tokens, 1)
    if kind == "one expert for each tile":
        return torch.stack([first // TILE % experts, (first // TILE + 1) % experts], 1)
    generator = torch.Generator().manual_seed(tokens)
    return torch.stack([torch.randperm(experts, generator=generator)[:2] for _ in range(tokens)])


@pytest.mark.parametrize("tokens", [32, 64, 128, 1024])
@pytest.mark.parametrize("kind", ["random", "all to one pair", "one expert for each tile"])
def test_every_choice_gets_a_slot_of_its_own_in_its_experts_region(bench, kind, tokens):
    experts = COUNTS[bench.module.GEOMETRY.experts.published]
    choice = choices(kind, tokens, experts)
    slots, token_of_slot, counts, starts = place(bench, choice)

    assert counts == choice.flatten().bincount(minlength=experts).tolist()
    tiles_before = [sum(-(-count // TILE) for count in counts[:expert]) for expert in range(experts)]
    assert starts == [TILE * before for before in tiles_before]
    assert len(set(slots)) == len(slots) == 2 * tokens
    for pair, (slot, expert) in enumerate(zip(slots, choice.flatten().tolist())):
        assert starts[expert] <= slot < starts[expert] + counts[expert]
        assert token_of_slot[slot] == pair // 2
    assert len(token_of_slot) == 2 * tokens + TILE * experts
    assert set(token_of_slot[slot] for slot in range(len(token_of_slot)) if slot not in slots) <= {0}


def bench_of(family: str, seed: int) -> Bench:
    """A bench whose peer no other test has, since its parameters will be changed."""
    bench = Bench(family)
    bench.peer = build_peer(family, seed=seed)
    return bench


def routers(bench: Bench) -> list[torch.Tensor]:
    """The peer's own parameters: changing them changes both sides."""
    name = reference.ROUTERS[bench.geometry.experts.published]
    return [bench.peer.tensors[f"model.layers.{layer}.{name}.weight"] for layer in range(bench.module.LAYERS)]


def rank(bench: Bench, order: list[int]) -> None:
    """Make every token rank the experts in one order: hidden states that add up to something positive, and routers that
    see their sum alone.
    """
    bench.peer.tensors["model.embed_tokens.weight"].abs_().add_(1)
    scores = torch.tensor([-0.01 * order.index(expert) for expert in range(len(order))])
    for router in routers(bench):
        router.copy_(scores[:, None].expand_as(router))
    bench.load(bench.peer.tensors)


@pytest.mark.parametrize("family", FAMILIES)
def test_experts_that_no_token_chooses_and_experts_that_all_choose(family, monkeypatch):
    bench, count = bench_of(family, seed=1), COUNTS[family]
    rank(bench, [count - 1, 1, *[expert for expert in range(count - 1) if expert != 1]])
    ran: set[tuple[int, ...]] = set()
    original = operations._regions

    def watched(*arguments: Any) -> list[tuple[int, int]]:
        regions = original(*arguments)
        ran.add(tuple(index for index, (_, rows) in enumerate(regions) if rows))
        return regions

    monkeypatch.setattr(operations, "_regions", watched)
    for length in (1, 31, 33, 129):
        rows = bench.rows([length], seed=length)
        assert holds(bench.errors(rows, bench.call(rows))), length
    assert ran == {(1, count - 1)}


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_scores_choose_as_many_experts_as_others(family, monkeypatch):
    """Which of equals is chosen is the device's affair: the emulator takes the first ones, so that the reference is told."""
    bench = bench_of(family, seed=2)
    for router in routers(bench):
        router.copy_(router[:1].expand_as(router))
    bench.load(bench.peer.tensors)
    chosen = bench.geometry.experts.per_token

    def first_ones(hidden: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(chosen).expand(len(hidden), -1), torch.full((len(hidden), chosen), 1 / chosen)

    monkeypatch.setattr(reference, "choose", first_ones)
    rows = bench.rows([1, 32, 70], seed=3)
    for row, logits in zip(rows, bench.call(rows)):
        wanted = forward(bench.geometry, bench.peer.tensors, row.tokens, rows=[-1])[0]
        assert relative_error(logits, wanted) <= LIMIT


def test_a_trace_routes_other_tokens_than_those_it_was_captured_with():
    """Nothing in a pass may depend on values: it is captured over token 0 alone and replayed over prompts of all kinds."""
    bench = Bench("qwen3_moe")
    ttnn.close_device(bench.device)
    bench.device = open_device(bench.module.BOARD, precision="float32", trace_region_size=1 << 28)
    bench.module = narrow(bench.module)
    bench.load(bench.peer.tensors)
    bench.prefill.warm_up()
    bench.prefill.capture(decode_traces="none")
    for seed, length in enumerate((1, 33, 128, 128, 200)):
        (row,) = bench.rows([length], seed)
        tokens = [list(row.tokens)]
        logits = bench.prefill.prefill_forward(tokens, [list(row.pages)], [length], traced=True)
        assert holds(bench.errors([row], logits)), length


def narrow(module: Any) -> Any:
    """No waves, so that capturing is quick."""
    traces = tuple([shape for shape in module.TRACES if shape.rows == 1])
    programs = tuple([(shape.digest, ending) for shape in traces for ending in module.SAMPLING])
    return SimpleNamespace(**vars(module) | {"TRACES": traces, "PROGRAMS": programs})


@pytest.mark.parametrize("family", FAMILIES)
def test_published_and_joined_checkpoints_give_the_same_weights(family):
    bench = Bench(family)
    rows = bench.rows([70], seed=2)
    one_by_one = bench.call(rows)
    joined = {name: tensor.detach() for name, tensor in bench.peer.model.state_dict().items()}
    assert len(joined) < len(bench.peer.tensors) and "model.layers.1.mlp.experts.gate_up_proj" in joined
    bench.load(joined)
    assert torch.equal(bench.call(rows), one_by_one)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_work_grows_with_the_experts_chosen_and_not_with_all(family, monkeypatch):
    """Tile rows through an expert's three products, against those of running every expert over every token."""
    bench = Bench(family)
    worked: list[int] = []
    original = operations._feed_forward

    def counted(rows: torch.Tensor, *rest: Any) -> torch.Tensor:
        worked.append(-(-len(rows) // TILE))
        return original(rows, *rest)

    monkeypatch.setattr(operations, "_feed_forward", counted)
    experts, chosen, layers = COUNTS[family], 2, bench.module.LAYERS
    for tokens in (32, 128):
        worked.clear()
        bench.call(bench.rows([tokens], seed=tokens))
        rows = tokens // TILE
        assert layers * rows * chosen <= sum(worked) <= layers * (rows * chosen + experts)
    assert sum(worked) < layers * experts * rows, "less than every expert over every token"

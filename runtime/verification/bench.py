"""One module on one device, measured against what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.prefill import Prefill
from runtime.verification.comparison import Agreement, agreement, likeliest, relative_error
from runtime.verification.expected import Expected
from runtime.verification.measure import caches, layer_outputs
from runtime.verification.report import Case, Gate, LayerRow
from runtime.verification.routes import ROUTES, Outcome, assign_pages

PEER_ERROR = 1e-4  # the reference's own distance from transformers, both in float32
LIKELIEST = 5
SEED = 7


@dataclass(frozen=True)
class Bench:
    """`words` turns a token id into what a reader sees."""

    module: ModuleType
    device: Any
    weights: SimpleNamespace
    stores: SimpleNamespace
    backend: str
    words: Callable[[int], str] = str

    def compare(
        self, expected: Sequence[Expected], gate: Gate, progress: Callable[[str], None] = lambda text: None
    ) -> tuple[list[Case], list[LayerRow]]:
        """Every prompt on every route that it is long enough for, and one prompt layer by layer."""
        module, prefill = self.module, Prefill(self.module, self.device, self.weights, self.stores)
        groups = assign_pages([one.tokens for one in expected], module.BLOCK_SIZE, module.KEY_VALUE_BLOCKS, SEED)
        cases: list[Case] = []
        worst: dict[str, list[Agreement]] = {}
        for name, route in ROUTES.items():
            progress(f"{gate.precision}: {name}")
            for rows in groups:
                outcomes = route(module, prefill, rows)
                for outcome, found in zip(outcomes, caches(module, self.stores, outcomes, expected)):
                    cases.append(self._case(name, outcome, expected[outcome.row.prompt], found, gate))
                    for store, layers in found.items():
                        worst[store] = [_worse(*pair) for pair in zip(worst.get(store, layers), layers)]
        progress(f"{gate.precision}: layer by layer")
        rows = [row for group in groups for row in group]
        hidden = self._layer_outputs(prefill, rows, expected)
        return cases, [
            LayerRow(gate.precision, layer, *(part for one in triple for part in (one.pcc, one.max_relative_error)))
            for layer, triple in enumerate(zip(hidden, worst["keys"], worst["values"]))
        ]

    def _case(
        self, route: str, outcome: Outcome, wanted: Expected, found: dict[str, list[Agreement]], gate: Gate
    ) -> Case:
        logits = agreement(outcome.logits, wanted.logits)
        keys, values = found["keys"], found["values"]
        peer_error = relative_error(wanted.logits, wanted.peer_logits)
        rows = {"emitted": outcome.logits, "reference": wanted.logits, "transformers": wanted.peer_logits}
        best = {peer: tuple(likeliest(row, LIKELIEST)) for peer, row in rows.items()}
        highest = wanted.logits.topk(2).values
        return Case(
            name=f"prompt {outcome.row.prompt + 1}, {route}",
            prompt=outcome.row.prompt,
            route=route,
            backend=self.backend,
            precision=gate.precision,
            tokens=len(wanted.tokens),
            passes=outcome.passes,
            pcc_logits=logits.pcc,
            max_relative_error=logits.max_relative_error,
            top1_match=best["emitted"][0] == best["reference"][0],
            top1_margin=((highest[0] - highest[1]) / wanted.logits.abs().max()).item(),
            keys_pcc=min(one.pcc for one in keys),
            keys_max_relative_error=max(one.max_relative_error for one in keys),
            values_pcc=min(one.pcc for one in values),
            values_max_relative_error=max(one.max_relative_error for one in values),
            peer_relative_error=peer_error,
            likeliest=best,
            likeliest_text={peer: tuple(map(self.words, ids)) for peer, ids in best.items()},
            seconds={"emitted": outcome.seconds, **wanted.seconds},
            passed=peer_error <= PEER_ERROR and gate.holds(logits, keys + values),
        )

    def _layer_outputs(self, prefill: Prefill, rows: Sequence[Any], expected: Sequence[Expected]) -> list[Agreement]:
        """For the prompt whose hidden rows were kept, as much of it as they cover."""
        index = max(range(len(expected)), key=lambda one: expected[one].hidden[0].shape[0])
        row = replace(rows[index], tokens=expected[index].tokens[: expected[index].hidden[0].shape[0]])
        return layer_outputs(self.module, self.device, self.weights, self.stores, prefill, row, expected[index])


def _worse(one: Agreement, other: Agreement) -> Agreement:
    return Agreement(min(one.pcc, other.pcc), max(one.max_relative_error, other.max_relative_error))

"""Last hidden rows -> what the caller asked for: the sampling paths that a module may list."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from runtime.backend import ttnn
from runtime.request import ARGMAX, LOGITS, TOP_K, Sampling
from runtime.resources import Scope
from runtime.sampling import choice_values, is_seeded, seed_inputs, seed_values, wants_log_probabilities
from runtime.staging import Persistent, Stager


@dataclass(frozen=True)
class Workspace:
    """Inputs of the endings that draw, at fixed addresses while traces live."""

    choice: Persistent
    seeds: Persistent


class Postprocessor:
    """The endings of one module. What it allocates is owned by the scope it is given."""

    def __init__(self, module: ModuleType, device: Any, weights: SimpleNamespace, stager: Stager) -> None:
        self._module = module
        self._device = device
        self._weights = weights
        self._stager = stager
        self._slots: int = module.ROW_SLOTS
        self._draws = TOP_K in module.SAMPLING
        self._seed_inputs = seed_inputs(self._slots)

    def workspace(self, scope: Scope) -> Workspace | None:
        """Persistent inputs, or None for a module that does not draw."""
        if not self._draws:
            return None
        return Workspace(
            self._stager.keep(self._module.SAMPLING_INPUTS, self._choice_values(()), scope),
            self._stager.keep(self._seed_inputs, seed_values((), self._slots), scope),
        )

    def refresh(self, workspace: Workspace, choices: tuple[Sampling, ...], scope: Scope) -> None:
        """Write a plan's choices into the workspace where they differ from what it holds, and seed the draw."""
        self._stager.refresh(workspace.choice, self._choice_values(choices))
        if is_seeded(choices):
            self._stager.refresh(workspace.seeds, seed_values(choices, self._slots))
            self._seed(workspace.seeds.tensors, scope)

    def stage(self, choices: tuple[Sampling, ...], scope: Scope) -> SimpleNamespace:
        """A plan's choices as new tensors, and the draw seeded."""
        if is_seeded(choices):
            seeds = self._stager.upload(self._seed_inputs, seed_values(choices, self._slots), scope)
            self._seed(seeds, scope)
            scope.release(*vars(seeds).values())
        return self._stager.upload(self._module.SAMPLING_INPUTS, self._choice_values(choices), scope)

    def __call__(
        self,
        hidden: Any,
        last_rows: Any,
        sampling: str,
        choices: tuple[Sampling, ...],
        choice: SimpleNamespace | None,
        scope: Scope,
    ) -> tuple[Any, Any]:
        """Hidden rows of a pass -> (output, log-probabilities or None): logits [1, 1, rows, vocabulary], or token ids
        of as many entries as there are picked rows.
        """
        scores = scope.own(self._module.logits(hidden, last_rows, self._weights))
        if sampling == LOGITS:
            return scores, None
        if sampling == ARGMAX:
            tokens = scope.own(self._module.argmax(scores))
        else:
            tokens = scope.own(self._module.top_k(scores, choice))
        if not wants_log_probabilities(choices):
            return tokens, None
        return tokens, scope.own(self._module.log_probabilities(scores, tokens))

    def _choice_values(self, choices: tuple[Sampling, ...]) -> dict[str, Any]:
        return choice_values(choices, self._slots, self._module.TOP_K)

    def _seed(self, seeds: SimpleNamespace, scope: Scope) -> None:
        scope.own(ttnn.manual_seed(seeds.seeds, device=self._device, user_ids=seeds.users))  # a tensor without meaning

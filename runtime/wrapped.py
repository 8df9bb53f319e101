"""Checkpoints of a text model inside a model of images and text: its tensors under the names that a module states.

A module says that it is such a text model by its weights' names, which begin with TEXT_MODEL as they are published. Files spell
these names in three ways, and hold the tensors of the other parts beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import torch

from runtime.checkpoint import Checkpoint
from runtime.errors import WeightError
from runtime.tables import Geometry

TEXT_MODEL = "language_model."
INNER, HEAD = "model.", "lm_head."  # how names of a text model by itself begin
SAVED_BY_TRANSFORMERS_5 = "model.language_model."  # for language_model.model.; the head has no prefix there
OTHER_PARTS = ("vision_tower.", "multi_modal_projector.", "visual.")
FURTHER_TOKENS = "mtp."  # layers that guess tokens behind the next one, as Qwen3-Next and Qwen3.5 publish


def is_text_model(module: ModuleType) -> bool:
    """Whether a module says that it is the text model of another one."""
    return any(source.startswith(TEXT_MODEL) for weight in module.WEIGHTS for source in weight.sources)


def published(name: str) -> str | None:
    """The name of a tensor as modules state it, whichever way it is spelled; None for a tensor of another part."""
    if name.removeprefix(INNER).startswith(OTHER_PARTS):
        return None
    if name.startswith(SAVED_BY_TRANSFORMERS_5):
        return f"{TEXT_MODEL}{INNER}{name.removeprefix(SAVED_BY_TRANSFORMERS_5)}"
    return f"{TEXT_MODEL}{name}" if name.startswith((INNER, HEAD)) else name


def alone(name: str) -> str | None:
    """The name that a tensor has in the text model by itself; None for a tensor of another part."""
    stated = published(name)
    return stated and stated.removeprefix(TEXT_MODEL)


def is_of_further_tokens(name: str, geometry: Geometry) -> bool:
    """Whether a tensor is of layers that prefill has no use for, which checkpoints of such a geometry may hold."""
    return geometry.gated_delta_net is not None and name.startswith(FURTHER_TOKENS)


class TextModel:
    """The tensors of a checkpoint by `published` name, without those of other parts. Raises WeightError where two are one."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._held: dict[str, str] = {}
        for name in checkpoint.names():
            stated = published(name)
            if stated in self._held:
                both = f"{self._held[stated]} in {checkpoint.where(self._held[stated])} and {name} in {checkpoint.where(name)}"
                raise WeightError(f"tensors {both} are two spellings of {stated}; keep one of them")
            if stated is not None:
                self._held[stated] = name

    def names(self) -> Iterable[str]:
        return self._held.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._checkpoint.shape(self._held[name])

    def read(self, name: str) -> torch.Tensor:
        return self._checkpoint.read(self._held[name])

    def read_entry(self, name: str, index: int) -> torch.Tensor:
        return self._checkpoint.read_entry(self._held[name], index)

    def where(self, name: str) -> str:
        return self._checkpoint.where(self._held.get(name, name))
